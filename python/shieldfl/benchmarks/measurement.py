"""Timing one case: all schemes take turns, each result is checked, medians are kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from shieldfl.benchmarks.scheme import Scheme, Selection

__all__ = ["STAGES", "Effort", "Figure", "measure"]

STAGES = ("encrypt", "serialise", "add", "close", "open")


@dataclass(frozen=True)
class Effort:
    """How long a case is measured: until the seconds and the fewest repetitions are over, or the most are."""

    seconds: float = 3.0
    """Of one case, all schemes together."""
    fewest_repetitions: int = 3
    most_repetitions: int = 15
    peer_values: int = 48 * 4096
    """Others are measured on at most this many values, since their cost is linear; they fill whole ciphertexts."""

    def is_enough(self, repetitions: int, seconds: float) -> bool:
        """Say whether a case has been measured for long enough."""
        if repetitions >= self.most_repetitions:
            return True
        return repetitions >= self.fewest_repetitions and seconds >= self.seconds


@dataclass(frozen=True)
class Figure:
    """What one scheme took for one case: medians over the repetitions, for each value that it was measured on."""

    scheme: str
    setting: str
    own: bool
    values: int
    repetitions: int
    bytes_per_value: float
    stage_ns: dict[str, float]

    @property
    def encrypt_and_serialise_ns(self) -> float:
        """From float32 values to bytes."""
        return self.stage_ns["encrypt and serialise"]


@dataclass
class _Record:
    """What is remembered of a scheme while its case is measured."""

    first_frame: Any
    values: int
    bytes_per_value: float
    seconds: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})

    def figure(self, scheme: Scheme) -> Figure:
        both = [sum(pair) for pair in zip(self.seconds["encrypt"], self.seconds["serialise"], strict=True)]
        seconds = self.seconds | {"encrypt and serialise": both}
        return Figure(
            scheme=scheme.name,
            setting=scheme.setting,
            own=scheme.own,
            values=self.values,
            repetitions=len(both),
            bytes_per_value=self.bytes_per_value,
            stage_ns={stage: 1e9 * median(times) / self.values for stage, times in seconds.items()},
        )


def measure(schemes: Sequence[Scheme], selection: Selection, effort: Effort) -> list[Figure]:
    """Time the schemes in turns, one repetition of each after the other, so that a slow spell hits all alike.

    Raises WrongSumError when a scheme opens a wrong sum.
    """
    records = [_warm_up(scheme, selection) for scheme in schemes]
    begin = time.perf_counter()
    repetitions = 0
    while not effort.is_enough(repetitions, time.perf_counter() - begin):
        for scheme, record in zip(schemes, records, strict=True):
            _repeat(scheme, selection, record)
        repetitions += 1
    return [record.figure(scheme) for scheme, record in zip(schemes, records, strict=True)]


def _warm_up(scheme: Scheme, selection: Selection) -> _Record:
    frame = scheme.serialise(scheme.encrypt(selection))
    opened = scheme.open(scheme.close(scheme.start_sum(frame)))
    scheme.check(opened, selection.values, times=1)
    return _Record(frame, opened.size, scheme.size_bytes(frame) / opened.size)


def _repeat(scheme: Scheme, selection: Selection, record: _Record) -> None:
    total = scheme.start_sum(record.first_frame)
    marks = [time.perf_counter()]
    encrypted = scheme.encrypt(selection)
    marks.append(time.perf_counter())
    frame = scheme.serialise(encrypted)
    marks.append(time.perf_counter())
    scheme.add(total, frame)
    marks.append(time.perf_counter())
    closed = scheme.close(total)
    marks.append(time.perf_counter())
    opened = scheme.open(closed)
    marks.append(time.perf_counter())
    for stage, begin, end in zip(STAGES, marks, marks[1:], strict=False):
        record.seconds[stage].append(end - begin)
    scheme.check(opened, selection.values, times=2)
