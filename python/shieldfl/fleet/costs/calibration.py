"""Measuring this machine: the costs that simulations and plans rest on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from shieldfl.build_info import build_info, machine_facts
from shieldfl.fleet.costs.device_profile import DeviceProfile, ModelProfile
from shieldfl.fleet.costs.other_sets import measure_other_sets
from shieldfl.fleet.costs.scheme_calibration import SchemeWork, measure_schemes
from shieldfl.masks import Mask
from shieldfl.profiling.stages import median_seconds
from shieldfl.scheme.interface import KeyBits
from shieldfl.scheme.registry import DEFAULT_KEY_BITS, calibrations
from shieldfl.selection import SelectionLimits, select
from shieldfl.settings import Count, NotNegative, Settings, ThreadCounts, about
from shieldfl.training import MODELS

__all__ = ["CalibrationSettings", "calibrate"]

# Updates are small: well inside the default range of +-8.
_DEVIATION = 0.05
_MASK_SHARE = 0.1
_MODEL = "Training step"


@dataclass(frozen=True)
class CalibrationSettings(Settings):
    """What is measured, and for how long."""

    schemes: Annotated[
        tuple[str, ...],
        Meta(min_length=1),
        about("Schemes to measure.", choices=calibrations, options=("--scheme",)),
    ] = calibrations()
    threads: Annotated[
        ThreadCounts | None,
        about("For encryption and training; 1 is always among them. By default one, and all cores."),
    ] = None
    values: Annotated[Count, about("Of an update, for everything but slow schemes.")] = 2**20
    slow_ciphertexts: Annotated[
        Count, about("That slow schemes, Paillier, encrypt at a time, for each thread.")
    ] = 64
    key_bits: Annotated[KeyBits, about("Paillier's key size.")] = DEFAULT_KEY_BITS
    seconds: Annotated[NotNegative, about("For each figure, and three repetitions at least.")] = 0.5
    model: Annotated[
        str | None,
        about("Measure a training step of this model too; needs torch.", choices=MODELS, panel=_MODEL),
    ] = None
    sample_shape: Annotated[
        tuple[Count, ...], Meta(min_length=1), about("Shape of one sample.", panel=_MODEL)
    ] = (1, 28, 28)
    classes: Annotated[Count, about("Classes of the model.", panel=_MODEL)] = 10
    batch_size: Annotated[Count, about("Samples of a training step.", panel=_MODEL)] = 32
    other_sets: Annotated[
        bool,
        about(
            "Measure encryption with the instruction sets below this processor's best too, for clients that state "
            "theirs."
        ),
    ] = True

    def thread_counts(self) -> tuple[int, ...]:
        """Return the numbers of threads, ascending, 1 among them."""
        asked = (build_info()["threads"],) if self.threads is None else self.threads
        return tuple(sorted({1, *asked}))


def calibrate(
    settings: CalibrationSettings | None = None, on_step: Callable[[str], None] | None = None
) -> DeviceProfile:
    """Measure this machine; takes some minutes, half of them for other instruction sets where they are asked for.

    ``on_step`` is told what is measured next. Every scheme's opened sum is checked.

    Raises ParameterError for a model or sizes that cannot be, ImportError where a model is to be measured and torch is
    not installed.
    """
    chosen = settings or CalibrationSettings()
    tell = on_step or (lambda _: None)
    # Before what takes minutes: it refuses a model that cannot be.
    train = None if chosen.model is None else _model_measurement(chosen.model, chosen)
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
    if train is not None:
        tell(f"training {chosen.model}")
        model = train()
    return DeviceProfile(
        machine=machine_facts(),
        schemes=tuple(schemes),
        gather_seconds_per_value=gather,
        score_seconds_per_value=score,
        select_seconds_per_value=select_positions,
        add_clear_seconds_per_value=add_clear,
        model=model,
    )


def _model_measurement(name: str, settings: CalibrationSettings) -> Callable[[], ModelProfile]:
    # Only here, so that a profile of the schemes alone needs no torch.
    from shieldfl.fleet.costs.train_step import TrainStep

    step = TrainStep(name, settings.sample_shape, settings.classes, settings.batch_size)

    def measure() -> ModelProfile:
        seconds = {
            threads: step.seconds_per_sample(threads, settings.seconds)
            for threads in settings.thread_counts()
        }
        return ModelProfile(name, settings.sample_shape, step.parameters, seconds)

    return measure
