"""What methods make of fixed inputs, as plain data: models, disclosures, bytes of every message part, epsilon, notes.

Training is a few operations on float32 vectors, each rounded as IEEE 754 says, and noise is drawn from seeds: so the
figures are the same on every machine, and a change of any of them is a change of what a method does.

    (cd tests && python -m methods.golden_rounds)     # writes golden_rounds.json anew
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from methods.method_conformance import SteppedRun
from methods.variants import Variant, twins, variants
from privacy.seeded_draws import noise_from_seeds
from shieldfl.authority.message import Message
from shieldfl.masks import Mask

GOLDEN = Path(__file__).with_suffix(".json")
CLIENTS = 5
WEIGHTS = (3, 1, 4, 1, 5)
# By round: who takes part, and who of them leaves before the last phase.
ROUNDS = (([0, 1, 2, 3, 4], []), ([0, 1, 2, 3, 4], [1]), ([0, 2, 3, 4], [3]))
NOISED = {"noise_multiplier": 0.8, "clip_norm": 0.3}
NOISED_SUMS = {"sum_noise_multiplier": 0.8, "sum_clip_norm": 0.3}


def golden_variants() -> list[Variant]:
    """Those of the conformance suite, those that noise, with as much noise as users have, and the twins of all."""
    found = [_for_five(variant) for variant in variants()]
    by_label = {variant.label: variant for variant in found}
    for label in ("clear", "hidden", "hidden-discrete"):
        variant = by_label[f"selective-shield/{label}"].with_settings(**NOISED)
        found.append(dataclasses.replace(variant, label=f"{variant.label}/noised"))
    for label in ("dp-fedavg", "ddp-fedavg"):
        noised = by_label[label].with_others(**NOISED)
        found.append(dataclasses.replace(noised, label=f"{label}/noised"))
    adaptive = by_label["ddp-fedavg"].with_others(**NOISED, clipping="adaptive", clip_count_noise=0.5)
    found.append(dataclasses.replace(adaptive, label="ddp-fedavg/adaptive"))
    for label in ("full-he", "top-2", "dict-pfl"):
        noised = by_label[label].with_others(**NOISED_SUMS)
        found.append(dataclasses.replace(noised, label=f"{label}/noised-sums"))
    return found + twins(found)


def _for_five(variant: Variant) -> Variant:
    """With thresholds of five clients, where the conformance suite's four have their own."""
    if isinstance(variant.settings.threshold, tuple):
        return variant.with_settings(threshold=(*variant.settings.threshold, 0.3))
    return variant


def golden_rounds(variant: Variant, *, restarts_roles: bool = False) -> dict[str, Any]:
    """Run the rounds and say what came of them."""
    run = SteppedRun(
        variant, clients=CLIENTS, weights=WEIGHTS, rounds=len(ROUNDS), restarts_roles=restarts_roles
    )
    rounds = []
    with noise_from_seeds():
        for participants, leaving in ROUNDS:
            run.run_round(participants, leaving)
            rounds.append(
                {
                    "parameters": digest(run.parameters),
                    "buffers": digest(run.buffers),
                    "merged": [digest(run.merged(client).parameters) for client in participants],
                    "sent": {
                        phase: {str(client): sizes(message) for client, message in messages.items()}
                        for phase, messages in run.sent.items()
                    },
                    "closed": {phase: sizes(message) for phase, message in run.closed.items()},
                    "answers": {phase: sizes(message) for phase, message in run.answers.items()},
                    "disclosures": [plain(run.clients[client].disclosure) for client in participants],
                    "privacy": plain(run.account.spent()),
                }
            )
    return {
        "rounds": rounds,
        "events": sorted(map(plain, run.account.book.all), key=json.dumps),
        "notes": list(run.account.notes),
        "settings": plain(run.settings()),
    }


def digest(values: np.ndarray) -> str:
    """Half of a hash of the numbers."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:32]


def sizes(message: Message) -> dict[str, int]:
    """Bytes by part."""
    return {name: len(part) for name, part in message.items()}


def plain(value: Any) -> Any:
    """As JSON has it; a mask as its number of positions and a digest, an object with its kind."""
    if isinstance(value, Mask):
        return [value.count, digest(value.to_bool())]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {"kind": type(value).__name__} | {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def written(found: dict[str, dict[str, Any]]) -> str:
    """A line for each variant's round and for each of its other facts, so that a difference shows where it is."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    entries = []
    for label, entry in found.items():
        rounds = ",\n".join(map(line, entry["rounds"]))
        others = "".join(f',\n"{name}":{line(fact)}' for name, fact in entry.items() if name != "rounds")
        entries.append(f'{line(label)}:{{"rounds":[\n{rounds}]{others}}}')
    return "{" + ",\n".join(entries) + "}\n"


if __name__ == "__main__":
    from methods.keys_made_once import ready_keys

    with ready_keys():
        GOLDEN.write_text(written({one.label: golden_rounds(one) for one in golden_variants()}), "utf-8")
    print(f"{GOLDEN}: {GOLDEN.stat().st_size:,} bytes", file=sys.stderr)
