"""The figures that the library is held to, but for Paillier's: ``baselines.py --targets`` prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import kahe_targets
import mask_targets
import noise_targets
import pads_targets
import process_targets
import scheme_targets
from sizes import Sizes
from target import Target


def measure_all(sizes: Sizes, on_part: Callable[[str], None] = lambda part: None) -> list[Target]:
    """Measure every line, in the order in which they are printed."""
    targets: list[Target] = []
    parts: dict[str, Callable[[Sizes], Iterator[Target]]] = {
        "encryption": scheme_targets.measure,
        "key-additive encryption": kahe_targets.measure,
        "one-time pads": pads_targets.measure,
        "instruction sets and memory": process_targets.measure,
        "masks": mask_targets.measure,
        "noise": noise_targets.measure,
    }
    for part, measure in parts.items():
        on_part(part)
        targets += measure(sizes)
    return targets
