"""Measuring this machine: the costs that simulations and plans rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shieldfl.array_view import as_threads, as_unsigned
from shieldfl.build_info import build_info, machine_facts
from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.device_profile import DeviceProfile, ModelProfile
from shieldfl.fleet.costs.other_sets import measure_other_sets
from shieldfl.fleet.costs.scheme_calibration import SchemeWork, measure_schemes
from shieldfl.masks import Mask
from shieldfl.profiling.stages import median_seconds
from shieldfl.scheme.registry import DEFAULT_KEY_BITS, calibrations
from shieldfl.selection import SelectionLimits, select

__all__ = ["CalibrationSettings", "calibrate"]

# Updates are small: well inside the default range of +-8.
_DEVIATION = 0.05
_MASK_SHARE = 0.1


@dataclass(frozen=True)
class CalibrationSettings:
    """What is measured, and for how long.

    Attributes
    ----------
    schemes : some of :func:`shieldfl.scheme.registry.calibrations`.
    threads : numbers of threads for encryption and training; 1 is always among them. None: 1 and all cores.
    values : of an update, for everything but slow schemes.
    slow_ciphertexts : that slow schemes, Paillier, encrypt at a time, for each thread.
    key_bits : for schemes with a choice of it.
    seconds : for each figure, and three repetitions at least.
    model : a name of :data:`shieldfl.training.models.MODELS`, or None for no training step, which needs torch.
    sample_shape, classes, batch_size : of the training step.
    other_sets : whether encryption is also measured with the instruction sets below this processor's best.
    """

    schemes: Sequence[str] = field(default_factory=calibrations)
    threads: Sequence[int] | None = None
    values: int = 2**20
    slow_ciphertexts: int = 64
    key_bits: int = DEFAULT_KEY_BITS
    seconds: float = 0.5
    model: str | None = None
    sample_shape: tuple[int, ...] = (1, 28, 28)
    classes: int = 10
    batch_size: int = 32
    other_sets: bool = False

    def __post_init__(self) -> None:
        if not self.schemes or not set(self.schemes) <= set(calibrations()):
            raise ParameterError(f"schemes to calibrate must be some of {', '.join(calibrations())}")
        for name in ("values", "slow_ciphertexts", "batch_size"):
            if as_unsigned(getattr(self, name), name) < 1:
                raise ParameterError(f"{name} must be at least 1")
        if not 0.0 <= self.seconds < float("inf"):
            raise ParameterError("seconds must be finite and not negative")

    def thread_counts(self) -> tuple[int, ...]:
        """Return the numbers of threads, ascending, 1 among them."""
        asked = (build_info()["threads"],) if self.threads is None else self.threads
        return tuple(sorted({1, *(as_threads(count) for count in asked)}))


def calibrate(
    settings: CalibrationSettings | None = None, on_step: Callable[[str], None] | None = None
) -> DeviceProfile:
    """Measure this machine; takes some seconds for each scheme, most of it for slow schemes' keys.

    ``on_step`` is told what is measured next. Every scheme's opened sum is checked.

    Raises ParameterError for a model or sizes that cannot be, ImportError where a model is to be measured and torch is
    not installed.
    """
    chosen = settings or CalibrationSettings()
    tell = on_step or (lambda _: None)
    generator = np.random.default_rng(0)
    update = generator.normal(0.0, _DEVIATION, chosen.values).astype(np.float32)
    mask = Mask.from_bool(generator.random(chosen.values, dtype=np.float32) < _MASK_SHARE)
    gradient = generator.permutation(update)
    scores = np.abs(update * gradient)
    total = np.zeros(chosen.values, dtype=np.float64)
    work = SchemeWork(
        update, chosen.slow_ciphertexts, chosen.key_bits, chosen.thread_counts(), chosen.seconds
    )
    tell("gather, score and select")

    def per_value(step: Callable[[], Any]) -> float:
        return median_seconds(step, chosen.seconds) / chosen.values

    gather = per_value(lambda: mask.gather(update, threads=1))
    score = per_value(lambda: np.abs(update * gradient))
    limits = SelectionLimits(budget=1.0)
    select_positions = per_value(lambda: select(scores, update, limits, threads=1))
    add_clear = per_value(lambda: np.add(total, update, out=total))
    schemes = measure_schemes(chosen.schemes, work, tell)
    if chosen.other_sets:
        tell("other instruction sets")
        slower = measure_other_sets(chosen.schemes, work)
        schemes = [replace(scheme, other_sets=slower[scheme.name]) for scheme in schemes]
    model = None
    if chosen.model is not None:
        tell(f"training {chosen.model}")
        model = _measure_model(chosen.model, chosen)
    return DeviceProfile(
        machine=machine_facts(),
        schemes=tuple(schemes),
        gather_seconds_per_value=gather,
        score_seconds_per_value=score,
        select_seconds_per_value=select_positions,
        add_clear_seconds_per_value=add_clear,
        model=model,
    )


def _measure_model(name: str, settings: CalibrationSettings) -> ModelProfile:
    # Only here, so that a profile of the schemes alone needs no torch.
    from shieldfl.fleet.costs.train_step import TrainStep

    step = TrainStep(name, settings.sample_shape, settings.classes, settings.batch_size)
    seconds = {
        threads: step.seconds_per_sample(threads, settings.seconds) for threads in settings.thread_counts()
    }
    return ModelProfile(name, settings.sample_shape, step.parameters, seconds)
