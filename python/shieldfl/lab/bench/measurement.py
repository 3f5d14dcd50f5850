"""Timing one case: all schemes take turns, each result is checked, medians are kept."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from typing import Any, ParamSpec, TypeVar

import numpy as np

from shieldfl.lab.bench.scheme import Scheme, Selection

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STAGES = ("encrypt", "serialise", "add", "close", "open")


@dataclass(frozen=True)
class Ciphertexts:
    """On how many of Paillier's ciphertexts everybody is timed: no repetition takes more than a second or two."""

    fast: int = 1024
    """With powers of one base from a table, eight at once."""
    medium: int = 256
    slow: int = 32
    """With a whole exponentiation for each."""


@dataclass(frozen=True)
class Effort:
    """How long a case is measured: until the seconds and the fewest repetitions are over, or the most are."""

    seconds: float = 3.0
    """Of one case, all schemes together."""
    fewest_repetitions: int = 3
    most_repetitions: int = 15
    baseline_values: int = 48 * 4096
    """Others are measured on at most this many values, since their cost is linear; they fill whole ciphertexts."""
    ciphertexts: Ciphertexts = field(default_factory=Ciphertexts)
    mask_positions: int = 10_000_000
    """Of each mask that is negotiated."""

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
    """Without stages that this scheme has not, or whose time says nothing."""
    cores: float
    """Processor time over time while encrypting: how many cores were at work."""
    values_per_ciphertext: int

    @property
    def encrypt_and_serialise_ns(self) -> float:
        """From float32 values to bytes."""
        return self.stage_ns["encrypt and serialise"]

    def ciphertext_us(self, stage: str) -> float:
        """Return the microseconds that a stage takes for each ciphertext."""
        return self.stage_ns[stage] * self.values_per_ciphertext / 1e3


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
            stage_ns={
                stage: 1e9 * median(times) / self.values
                for stage, times in times_of.items()
                if stage not in scheme.untimed
            },
            cores=median(processor_seconds["encrypt"]) / median(seconds["encrypt"]),
            values_per_ciphertext=scheme.values_per_ciphertext,
        )


def _repeat(
    scheme: Scheme, selection: Selection, first_frame: Any, clock: StageClock, with_clear: bool
) -> None:
    """Encrypt, add to a sum that holds ``first_frame``, open, check; ``with_clear``: once more with clear values."""
    values = scheme.sample(selection)
    total = scheme.start_sum(first_frame)
    with clock("encrypt"):
        encrypted = scheme.encrypt(selection)
    with clock("serialise"):
        frame = scheme.serialise(encrypted)
    if with_clear:
        clear = np.ascontiguousarray(values[::-1])
        mixed = scheme.start_sum(first_frame)
        with clock("load"):
            frame = scheme.load(frame)
        with clock("add with plaintext"):
            scheme.add_with_clear(mixed, frame, clear)
        scheme.check(scheme.open(scheme.answer(scheme.close(mixed))), values, times=2, clear=clear)
    with clock("add"):
        scheme.add(total, frame)
    with clock("close"):
        closed = scheme.close(total)
    answered = scheme.answer(closed)
    with clock("open"):
        opened = scheme.open(answered)
    scheme.check(opened, values, times=2)


def measure(
    schemes: Sequence[Scheme], selection: Selection, effort: Effort, *, with_clear: bool = False
) -> list[Figure]:
    """Time the schemes in turns, one repetition of each after the other, so that a slow spell hits all alike.

    ``with_clear``: parsing and sums with values in the clear are timed as well, for those that can.

    Raises WrongSumError when a scheme opens a wrong sum.
    """
    records = [_warm_up(scheme, selection) for scheme in schemes]
    begin = time.perf_counter()
    repetitions = 0
    while not effort.is_enough(repetitions, time.perf_counter() - begin):
        for scheme, record in zip(schemes, records, strict=True):
            _repeat(scheme, selection, record.first_frame, record.clock, with_clear)
        repetitions += 1
    return [record.figure(scheme) for scheme, record in zip(schemes, records, strict=True)]


def _warm_up(scheme: Scheme, selection: Selection) -> _Record:
    frame = scheme.serialise(scheme.encrypt(selection))
    opened = scheme.open(scheme.answer(scheme.close(scheme.start_sum(frame))))
    scheme.check(opened, selection.values, times=1)
    return _Record(frame, opened.size, scheme.size_bytes(frame) / opened.size)


def run_on_cores(
    cores: int,
    function: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **options: Arguments.kwargs,
) -> Result:
    """Return what a function of a module returns, or raise what it raises, in a process bound to so many cores.

    HEU works on all cores of its process and has no other setting. Where everybody is bound to the same cores, nobody
    has more threads at work than the others, whatever their libraries start. It is a fresh process, not a copy of this
    one: threads that libraries have started here would not be bound. Its standard output goes nowhere, because HEU
    logs to it. Where there are fewer cores than asked for it gets them all.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_bind, initargs=(cores,)) as pool:
        return pool.submit(function, *arguments, **options).result()


def _bind(cores: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    logging.disable(
        logging.WARNING
    )  # that 2048-bit keys are short is said by the page that explains the figures
