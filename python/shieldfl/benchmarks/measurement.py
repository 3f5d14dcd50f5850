"""Timing one case: all schemes take turns, each result is checked, medians are kept."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

from shieldfl.benchmarks.scheme import Scheme, Selection

__all__ = ["STAGES", "Effort", "Figure", "StageClock", "measure"]

AnyScheme = TypeVar("AnyScheme", bound=Scheme)

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
    cores: float
    """Processor time over time while encrypting: how many cores were at work."""

    @property
    def encrypt_and_serialise_ns(self) -> float:
        """From float32 values to bytes."""
        return self.stage_ns["encrypt and serialise"]


class StageClock:
    """Remembers what each stage took, one entry for each repetition."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.processor_seconds: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time what happens inside of ``with``."""
        begin, processor_begin = time.perf_counter(), time.process_time()
        yield
        processor_end, end = time.process_time(), time.perf_counter()
        self.seconds[stage].append(end - begin)
        self.processor_seconds[stage].append(processor_end - processor_begin)


@dataclass
class _Record:
    """What is remembered of a scheme while its case is measured."""

    first_frame: Any
    values: int
    bytes_per_value: float
    clock: StageClock = field(default_factory=StageClock)

    def figure(self, scheme: Scheme) -> Figure:
        seconds, processor_seconds = self.clock.seconds, self.clock.processor_seconds
        both = [sum(pair) for pair in zip(seconds["encrypt"], seconds["serialise"], strict=True)]
        times_of = seconds | {"encrypt and serialise": both}
        return Figure(
            scheme=scheme.name,
            setting=scheme.setting,
            own=scheme.own,
            values=self.values,
            repetitions=len(both),
            bytes_per_value=self.bytes_per_value,
            stage_ns={stage: 1e9 * median(times) / self.values for stage, times in times_of.items()},
            cores=median(processor_seconds["encrypt"]) / median(seconds["encrypt"]),
        )


def repeat_sum(scheme: Scheme, selection: Selection, first_frame: Any, clock: StageClock) -> None:
    """Encrypt, add to a sum that holds ``first_frame``, open and check."""
    total = scheme.start_sum(first_frame)
    with clock("encrypt"):
        encrypted = scheme.encrypt(selection)
    with clock("serialise"):
        frame = scheme.serialise(encrypted)
    with clock("add"):
        scheme.add(total, frame)
    with clock("close"):
        closed = scheme.close(total)
    with clock("open"):
        opened = scheme.open(closed)
    scheme.check(opened, selection.values, times=2)


def measure(
    schemes: Sequence[AnyScheme],
    selection: Selection,
    effort: Effort,
    repeat: Callable[[AnyScheme, Selection, Any, StageClock], None] = repeat_sum,
) -> list[Figure]:
    """Time the schemes in turns, one repetition of each after the other, so that a slow spell hits all alike.

    ``repeat`` is one repetition: it goes through the stages, each on the clock, and checks the sum.

    Raises WrongSumError when a scheme opens a wrong sum.
    """
    records = [_warm_up(scheme, selection) for scheme in schemes]
    begin = time.perf_counter()
    repetitions = 0
    while not effort.is_enough(repetitions, time.perf_counter() - begin):
        for scheme, record in zip(schemes, records, strict=True):
            repeat(scheme, selection, record.first_frame, record.clock)
        repetitions += 1
    return [record.figure(scheme) for scheme, record in zip(schemes, records, strict=True)]


def _warm_up(scheme: Scheme, selection: Selection) -> _Record:
    frame = scheme.serialise(scheme.encrypt(selection))
    opened = scheme.open(scheme.close(scheme.start_sum(frame)))
    scheme.check(opened, selection.values, times=1)
    return _Record(frame, opened.size, scheme.size_bytes(frame) / opened.size)
