"""What a benchmark times, whichever library takes the steps: schemes take turns, sums are checked, medians are kept."""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ShieldError
from shieldfl.masks import Mask

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STAGES = ("encrypt", "serialise", "add", "close", "open")
VALUE_BITS = 24
FRACTION_BITS = 20
"""Of the numbers that Paillier's libraries encrypt."""


class WrongSumError(ShieldError):
    """A scheme opened something else than the sum of what went in: its times mean nothing."""


@dataclass(frozen=True)
class Selection:
    """An update and the positions of it that are encrypted."""

    update: NDArray[np.float32]
    mask: Mask | None
    """None for all positions."""
    values: NDArray[np.float32]
    """The update's values at these positions."""


def select(size: int, share: float) -> Selection:
    """Make an update of ``size`` values like a model's and choose a random ``share`` of its positions."""
    rng = np.random.default_rng(0)
    update = rng.standard_normal(size, dtype=np.float32)
    update *= np.float32(0.05)
    if share >= 1.0:
        return Selection(update, None, update)
    chosen = rng.random(size, dtype=np.float32) < share
    chosen[0] = True  # so that even a small share of few values is not empty
    return Selection(update, Mask.from_bool(chosen), update[chosen])


def to_fixed_point(values: NDArray[np.float32], fraction_bits: int = FRACTION_BITS) -> NDArray[np.int64]:
    return np.rint(values.astype(np.float64) * 2.0**fraction_bits).astype(np.int64)


def from_fixed_point(integers: NDArray[np.int64], fraction_bits: int = FRACTION_BITS) -> NDArray[np.float64]:
    return integers / 2.0**fraction_bits


class Scheme(ABC):
    """One library at one setting. Holds both keys: it plays every role of a round by itself.

    Parameters
    ----------
    name : short enough for a column of a table.
    setting : all that somebody needs to repeat it.
    most_values : how many values it is timed on at most, gathered already, since its cost is linear; None for the
        whole update, the mask included.
    values_per_ciphertext : how many of them one ciphertext holds.
    fraction_bits : of numbers whose sums must be right to the last bit; None where they are not exact.
    tolerance : how far off a value may be then.
    """

    own: bool = False
    """Whether it is this library."""
    untimed: frozenset[str] = frozenset({"close"})
    """Stages whose time would say nothing: there is nothing to do, or other roles do it in a round."""

    def __init__(
        self,
        name: str,
        setting: str,
        most_values: int | None = None,
        *,
        values_per_ciphertext: int = 1,
        fraction_bits: int | None = None,
        tolerance: float = 0.0,
    ) -> None:
        self.name, self.setting = name, setting
        self.most_values, self.values_per_ciphertext = most_values, values_per_ciphertext
        self._fraction_bits, self._tolerance = fraction_bits, tolerance

    def sample(self, selection: Selection) -> NDArray[np.float32]:
        """Return the values that it is timed on."""
        return selection.values[: self.most_values]

    @abstractmethod
    def encrypt(self, selection: Selection) -> Any:
        """Encrypt the selected values as a client does."""

    @abstractmethod
    def serialise(self, encrypted: Any) -> Any:
        """Turn what ``encrypt`` returned into what travels."""

    def size_bytes(self, frame: Any) -> int:
        return sum(map(len, frame)) if isinstance(frame, list) else len(frame)

    def load(self, frame: Any) -> Any:
        """Turn what travelled into what ``add`` takes; most do that in ``add``."""
        return frame

    @abstractmethod
    def start_sum(self, frame: Any) -> Any:
        """Make a sum that holds one frame. Is not timed."""

    @abstractmethod
    def add(self, total: Any, frame: Any) -> None:
        """Add what travelled: parse, check, add."""

    def add_with_clear(self, total: Any, loaded: Any, clear: NDArray[np.float32]) -> None:
        """Add, with each ciphertext, what its client sent in the clear, where the library can."""
        raise NotImplementedError

    def close(self, total: Any) -> Any:
        """Turn the sum into what leaves the aggregator: what the key holder opens, or what an authority is asked."""
        return total

    def answer(self, closed: Any) -> Any:
        """Have an authority that does not open sums answer what it is asked; the result is what ``open`` takes.

        Is not timed: it costs by the clients, not by the values.
        """
        return closed

    @abstractmethod
    def open(self, closed: Any) -> NDArray[np.float64]:
        """Decrypt and decode."""

    def check(
        self,
        opened: NDArray[np.float64],
        values: NDArray[np.float32],
        times: int,
        clear: NDArray[np.float32] | None = None,
    ) -> None:
        """Raise WrongSumError unless ``opened`` is ``times`` the values and once the ``clear`` ones."""
        expected = times * self._encoded(values[: self.most_values])
        if clear is not None:
            expected = expected + self._encoded(clear)
        error = np.abs(opened - expected).max(initial=0.0) if opened.size == expected.size else np.inf
        if not error <= times * self._tolerance:
            raise WrongSumError(
                f"{self.name} opened a wrong sum of {expected.size:,} values: off by {error:.2g}"
            )

    def _encoded(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        if self._fraction_bits is None:
            return values.astype(np.float64)
        return from_fixed_point(to_fixed_point(values, self._fraction_bits), self._fraction_bits)


@dataclass(frozen=True)
class Effort:
    """How long a case is measured: until the seconds and the fewest repetitions are over, or the most are."""

    seconds: float = 3.0
    """Of one case, all schemes together."""
    fewest_repetitions: int = 3
    most_repetitions: int = 15
    baseline_values: int = 48 * 4096
    """Others are measured on at most this many values, since their cost is linear; they fill whole ciphertexts."""
    fast_ciphertexts: int = 1024
    """Of Paillier, so that no repetition takes more than a second or two: with powers of one base from a table."""
    medium_ciphertexts: int = 256
    slow_ciphertexts: int = 32
    """With a whole exponentiation for each."""

    def is_enough(self, repetitions: int, seconds: float) -> bool:
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


@dataclass
class _Record:
    """What is remembered of a scheme while its case is measured: of each stage an entry for each repetition."""

    first_frame: Any
    values: int
    bytes_per_value: float
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cores: list[float] = field(default_factory=list)
    """At work while encrypting."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin, processor_begin = time.perf_counter(), time.process_time()
        yield
        processor_end, end = time.process_time(), time.perf_counter()
        self.seconds[name].append(end - begin)
        if name == "encrypt":
            self.cores.append((processor_end - processor_begin) / (end - begin))

    def repeat(self, scheme: Scheme, selection: Selection, with_clear: bool) -> None:
        """Encrypt, add to a sum that holds a frame, open, check; ``with_clear``: once more with clear values."""
        values, total = scheme.sample(selection), scheme.start_sum(self.first_frame)
        with self.stage("encrypt"):
            encrypted = scheme.encrypt(selection)
        with self.stage("serialise"):
            frame = scheme.serialise(encrypted)
        if with_clear:
            clear = np.ascontiguousarray(values[::-1])
            mixed = scheme.start_sum(self.first_frame)
            with self.stage("load"):
                frame = scheme.load(frame)
            with self.stage("add with plaintext"):
                scheme.add_with_clear(mixed, frame, clear)
            scheme.check(scheme.open(scheme.answer(scheme.close(mixed))), values, times=2, clear=clear)
        with self.stage("add"):
            scheme.add(total, frame)
        with self.stage("close"):
            closed = scheme.close(total)
        answered = scheme.answer(closed)
        with self.stage("open"):
            opened = scheme.open(answered)
        scheme.check(opened, values, times=2)

    def figure(self, scheme: Scheme) -> Figure:
        both = [sum(pair) for pair in zip(self.seconds["encrypt"], self.seconds["serialise"], strict=True)]
        return Figure(
            scheme=scheme.name,
            setting=scheme.setting,
            own=scheme.own,
            values=self.values,
            repetitions=len(both),
            bytes_per_value=self.bytes_per_value,
            stage_ns={
                stage: 1e9 * median(times) / self.values
                for stage, times in (self.seconds | {"encrypt and serialise": both}).items()
                if stage not in scheme.untimed
            },
            cores=median(self.cores),
            values_per_ciphertext=scheme.values_per_ciphertext,
        )


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
            record.repeat(scheme, selection, with_clear)
        repetitions += 1
    return [record.figure(scheme) for scheme, record in zip(schemes, records, strict=True)]


def _warm_up(scheme: Scheme, selection: Selection) -> _Record:
    frame = scheme.serialise(scheme.encrypt(selection))
    opened = scheme.open(scheme.answer(scheme.close(scheme.start_sum(frame))))
    scheme.check(opened, selection.values, times=1)
    return _Record(frame, opened.size, scheme.size_bytes(frame) / opened.size)


def run_on_cores(
    cores: int, function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result:
    """Return what a function of a module returns, or raise what it raises, in a process bound to so many cores.

    HEU works on all cores of its process and has no other setting. It is a fresh process, not a copy of this one:
    threads that libraries have started here would not be bound. Its standard output goes nowhere, because HEU logs to
    it. Where there are fewer cores than asked for it gets them all.
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
    )  # that 2048-bit keys are short stands on the page that explains the figures
