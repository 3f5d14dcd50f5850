"""What a benchmark times, with any library: schemes take turns, sums are checked, medians are kept."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ShieldError
from shieldfl.masks import Mask

Result = TypeVar("Result")

BOTH = "encrypt and serialise"
VALUE_BITS = 24
FRACTION_BITS = 20
"""``VALUE_BITS`` and ``FRACTION_BITS`` of the fixed-point numbers that Paillier's libraries encrypt."""


class WrongSumError(ShieldError):
    """A scheme opened a wrong sum: its times mean nothing."""


class Selection(NamedTuple):
    """An update and the positions of it that are encrypted."""

    update: NDArray[np.float32]
    mask: Mask | None
    """Positions to encrypt; None for all positions."""
    values: NDArray[np.float32]
    """The update's values at these positions, (k,)."""


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


@dataclass(kw_only=True)
class Scheme:
    """One library at one setting, and the steps of a round.

    It has both keys: it plays every role by itself.
    """

    name: str
    setting: str
    """Parameters and versions, so that others can repeat the measurement."""
    encrypt: Callable[[Selection], Any]
    serialise: Callable[[Any], Any]
    """Turns the result of ``encrypt`` into a frame to send."""
    start_sum: Callable[[Any], Any]
    """Returns a sum that holds one frame; not timed."""
    add: Callable[[Any, Any], object]
    """Parses and checks a frame, or takes a loaded one, and adds it to a sum in place."""
    open: Callable[[Any], NDArray[np.float64]]
    load: Callable[[Any], Any] | None = None
    """Turns a frame into what ``add`` takes; None if ``add`` parses frames, as with most libraries."""
    add_with_clear: Callable[[Any, Any, NDArray[np.float32]], object] | None = None
    """Adds a frame and a clear value for each encrypted one to a sum; None if the library cannot."""
    close: Callable[[Any], Any] | None = None
    """Turns a sum into what the aggregator sends to the key holder or authority; None if that is the sum."""
    answer: Callable[[Any], Any] | None = None
    """Adds the answer of an authority that does not open sums; None if there is no such authority.

    It is not timed, since its cost depends on the number of clients.
    """
    size_bytes: Callable[[Any], int] = len
    most_values: int | None = None
    """Number of gathered values that are timed, since the cost is linear; None for the whole update."""
    values_per_ciphertext: int = 1
    fraction_bits: int | None = None
    """Fraction bits of numbers whose sums must be exact; None if they are not exact."""
    tolerance: float = 0.0
    """Largest error of a value for each update in the sum."""
    own: bool = False
    opens: bool = True
    """Whether the time of opening is reported; not if other roles would open in a round."""
    encryptor: Any = None
    """Encryptor of this library's schemes that have a single one; else None."""

    def opened(self, total: Any) -> NDArray[np.float64]:
        """Close, answer and open, untimed."""
        for step in filter(None, (self.close, self.answer)):
            total = step(total)
        return self.open(total)

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
        if not error <= times * self.tolerance:
            raise WrongSumError(
                f"{self.name} opened a wrong sum of {expected.size:,} values: off by {error:.2g}"
            )

    def _encoded(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        if self.fraction_bits is None:
            return values.astype(np.float64)
        return from_fixed_point(to_fixed_point(values, self.fraction_bits), self.fraction_bits)


@dataclass(frozen=True)
class Effort:
    """How long a case is measured: for the seconds and fewest repetitions, or until the most repetitions."""

    seconds: float = 3.0
    """Seconds of one case, for all schemes together."""
    fewest_repetitions: int = 3
    most_repetitions: int = 15
    baseline_values: int = 48 * 4096
    """Most values that other libraries are timed on, since their cost is linear.

    This number of values fills whole ciphertexts.
    """
    fast_ciphertexts: int = 1024
    """Paillier ciphertexts with a table of one base's powers; no repetition takes over a second or two."""
    medium_ciphertexts: int = 256
    slow_ciphertexts: int = 32
    """Paillier ciphertexts with a whole exponentiation for each."""

    def is_enough(self, repetitions: int, seconds: float) -> bool:
        if repetitions >= self.most_repetitions:
            return True
        return repetitions >= self.fewest_repetitions and seconds >= self.seconds


@dataclass(frozen=True)
class Figure:
    """What a scheme took for a case: medians over repetitions, for each value that it was measured on."""

    scheme: str
    setting: str
    own: bool
    values: int
    repetitions: int
    bytes_per_value: float
    stage_ns: dict[str, float]
    """Nanoseconds for each value, by stage, without stages that the scheme lacks or does not report."""
    cores: float
    """Number of busy cores during encryption: processor time over elapsed time."""
    values_per_ciphertext: int

    @property
    def encrypt_and_serialise_ns(self) -> float:
        """Nanoseconds for each value, from float32 values to bytes."""
        return self.stage_ns[BOTH]


class _Record:
    """Measurements of a scheme while its case runs: by stage, an entry for each repetition."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme, self._selection = scheme, selection
        self._frame = scheme.serialise(scheme.encrypt(selection))
        opened = scheme.opened(scheme.start_sum(self._frame))
        scheme.check(opened, selection.values, times=1)
        self._count = opened.size
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._cores: list[float] = []

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begin, processor_begin = time.perf_counter(), time.process_time()
        yield
        processor_end, end = time.process_time(), time.perf_counter()
        self._seconds[name].append(end - begin)
        if name == "encrypt":
            self._cores.append((processor_end - processor_begin) / (end - begin))

    def repeat(self, with_clear: bool) -> None:
        """Encrypt, add to a sum that holds a frame, open, check.

        ``with_clear``: once more with clear values.
        """
        scheme, values = self._scheme, self._selection.values
        total = scheme.start_sum(self._frame)
        with self._stage("encrypt"):
            encrypted = scheme.encrypt(self._selection)
        with self._stage("serialise"):
            frame = scheme.serialise(encrypted)
        if with_clear and scheme.add_with_clear is not None:
            clear = np.ascontiguousarray(values[: scheme.most_values][::-1])
            mixed = scheme.start_sum(self._frame)
            with self._stage("load"):
                frame = frame if scheme.load is None else scheme.load(frame)
            with self._stage("add with plaintext"):
                scheme.add_with_clear(mixed, frame, clear)
            scheme.check(scheme.opened(mixed), values, times=2, clear=clear)
        with self._stage("add"):
            scheme.add(total, frame)
        if scheme.close is not None:
            with self._stage("close"):
                total = scheme.close(total)
        if scheme.answer is not None:
            total = scheme.answer(total)
        with self._stage("open"):
            opened = scheme.open(total)
        scheme.check(opened, values, times=2)

    def figure(self) -> Figure:
        scheme, seconds = self._scheme, self._seconds
        both = [sum(pair) for pair in zip(seconds["encrypt"], seconds["serialise"], strict=True)]
        return Figure(
            scheme=scheme.name,
            setting=scheme.setting,
            own=scheme.own,
            values=self._count,
            repetitions=len(both),
            bytes_per_value=scheme.size_bytes(self._frame) / self._count,
            stage_ns={
                stage: 1e9 * median(times) / self._count
                for stage, times in (seconds | {BOTH: both}).items()
                if scheme.opens or stage != "open"
            },
            cores=median(self._cores),
            values_per_ciphertext=scheme.values_per_ciphertext,
        )


def measure(
    schemes: Sequence[Scheme], selection: Selection, effort: Effort, *, with_clear: bool = False
) -> list[Figure]:
    """Time the schemes in turns, one repetition of each after the other, so that a slow spell hits all alike.

    ``with_clear``: parsing and sums with values in the clear are timed too, if a scheme has them.

    Raises WrongSumError when a scheme opens a wrong sum.
    """
    records = [_Record(scheme, selection) for scheme in schemes]
    begin = time.perf_counter()
    repetitions = 0
    while not effort.is_enough(repetitions, time.perf_counter() - begin):
        for record in records:
            record.repeat(with_clear)
        repetitions += 1
    return [record.figure() for record in records]


def run_on_cores(cores: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return what a module's function returns, or raise what it raises, in a process bound to so many cores.

    HEU works on all cores of its process and has no other setting. It is a fresh process, not a copy of this
    one: threads that libraries have started here would not be bound. Its standard output goes nowhere,
    because HEU logs to it. Where there are fewer cores than asked for it gets them all.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_bind, initargs=(cores,)) as pool:
        return pool.submit(function, *arguments).result()


def _bind(cores: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    logging.disable(
        logging.WARNING
    )  # that 2048-bit keys are short stands on the page that explains the figures
