"""A small encrypted sum under every scheme, with every instruction set: what comes out must be what went in."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.authority.key_file import Contents
from shieldfl.build_info import build_info, cryptographic
from shieldfl.encryption.answers import open_answered
from shieldfl.encryption.parameters import SumNeeds
from shieldfl.encryption.registry import REGISTRY, Scheme
from shieldfl.errors import ShieldError
from shieldfl.masks import Mask

RANDOM = "randomness"
"""The name of the check that what is drawn differs each time."""

_CLIENTS = 3
_VALUES, _VALUES_OF_SLOW = 5000, 200
"""Several ciphertexts each."""
_MOST_ALIKE = 0.1
"""Of the bytes of two ciphertexts: of random ones 1/256 are equal."""
_CHILD = "from shieldfl.cli.doctor.self_test import answer; answer()"
_CHILD_SECONDS = 60.0

Pair = tuple[str, str]
"""A public key and its secret, in hexadecimal digits."""


@dataclass(frozen=True)
class Check:
    """What was tried, and what came of it."""

    name: str
    """The scheme's; or what was tried with all of them."""
    instruction_set: str
    milliseconds: float | None = None
    """None where it did not come to an end."""
    problem: str = ""
    """What went wrong; empty where nothing did."""
    skipped: str = ""
    """Why it was not tried; that is no failure."""


class _WrongSumError(ShieldError):
    """What was opened is not the sum of what went in."""


def self_test(instruction_sets: Sequence[str]) -> list[Check]:
    """Try all schemes with these sets: the one in use in this process, each other one in a process of its own.

    Nothing is raised: what goes wrong is in the checks.
    """
    others = [name for name in instruction_sets if name != build_info()["instruction_set"]]
    with _quiet(), ThreadPoolExecutor(max(1, len(others))) as pool:
        # A pair of theirs takes longer than all the rest, so it is made once; it protects nothing but this test.
        pairs = _slow_pairs()
        found = pool.map(partial(_tried_apart, pairs), others)
        trials = _Trials(pairs)
        here = [*trials.sums(), trials.threads(), trials.randomness()]
    return here + [check for checks in found for check in checks]


def answer() -> None:
    """Try all schemes with the pairs that standard input has, and print the checks as JSON: one set's own process."""
    pairs = json.load(sys.stdin)
    with _quiet():
        print(json.dumps([asdict(check) for check in _Trials(pairs).sums()]))


def _tried_apart(pairs: Mapping[str, Pair], instruction_set: str) -> list[Check]:
    """Try all schemes in a process with a set of its own: the core chooses once, when it is loaded."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _CHILD],
            input=json.dumps(pairs),
            capture_output=True,
            text=True,
            timeout=_CHILD_SECONDS,
            check=False,
            env=os.environ | {"SHIELDFL_SIMD": instruction_set},
        )
    except subprocess.TimeoutExpired:
        problem = f"no answer in {_CHILD_SECONDS:.0f} seconds"
    except OSError as error:
        problem = f"no process could be started: {error.strerror or error}"
    else:
        problem = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        with suppress(ValueError, TypeError):
            found = [Check(**facts) for facts in json.loads(done.stdout)]
            if done.returncode == 0 and [one.name for one in found] == list(REGISTRY):
                return found
    return [Check(name, instruction_set, problem=problem) for name in REGISTRY]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what is logged of keys that are shorter than those of real work."""
    logger = logging.getLogger("shieldfl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _why_not(scheme: Scheme) -> str:
    """Return why a scheme cannot be used here; empty where it can."""
    if scheme.enrols:
        try:
            cryptographic("hpke", "keys that clients share with an authority")
        except ShieldError as error:
            return str(error)
    return ""


class _Trials:
    """What one process tries: each scheme by itself, then all that could be tried once more."""

    def __init__(self, pairs: Mapping[str, Pair]) -> None:
        self._pairs = pairs
        self._set = build_info()["instruction_set"]
        self._made: dict[str, _Trial] = {}

    def sums(self) -> list[Check]:
        """Try each scheme on one thread."""
        return [self._sum(scheme) for scheme in REGISTRY.values()]

    def _sum(self, scheme: Scheme) -> Check:
        if why := _why_not(scheme):
            return Check(scheme.name, self._set, skipped=why)

        def work() -> float:
            self._made[scheme.name] = trial = _Trial(scheme, self._pairs.get(scheme.name))
            start = time.perf_counter()  # keys are made before
            trial.check(trial.open(trial.total(trial.frames(1, threads=1), 1, threads=1), threads=1))
            return start

        return self._tried(scheme.name, work)

    def threads(self) -> Check:
        """Try whether work on several threads gives what it gives on one."""
        if not self._made:
            return Check("threads", self._set, skipped="no scheme could be tried")
        threads = min(4, max(2, build_info()["threads"]))

        def work() -> float:
            start = time.perf_counter()
            for name, trial in self._made.items():
                frames = trial.frames(2, threads)
                one, several = (trial.total(frames, 2, count) for count in (1, threads))
                if one.to_bytes() != several.to_bytes():
                    raise _WrongSumError(f"{name}: {threads} threads give another total than one")
                trial.check(trial.open(several, threads))
            return start

        return self._tried(f"{threads} threads as one", work)

    def randomness(self) -> Check:
        """Try whether keys differ each time, and ciphertexts of the same values by round and by client."""
        if not self._made:
            return Check(RANDOM, self._set, skipped="no scheme could be tried")

        def work() -> float:
            start = time.perf_counter()
            for name, trial in self._made.items():
                if not trial.scheme.is_slow and trial.key_id == _Trial(trial.scheme).key_id:
                    raise _WrongSumError(f"{name}: the same key was drawn twice")
                if max(trial.likenesses()) > _MOST_ALIKE:
                    raise _WrongSumError(f"{name}: the same values were encrypted alike twice")
            return start

        return self._tried(RANDOM, work)

    def _tried(self, name: str, work: Callable[[], float]) -> Check:
        """Return what came of ``work``, which returns when that began which is timed."""
        try:
            began = work()
            seconds = time.perf_counter() - began
        except Exception as error:  # whatever it is, the user is to read it beside what works
            kind = "" if isinstance(error, ShieldError) else f"{type(error).__name__}: "
            return Check(name, self._set, problem=f"{kind}{' '.join(str(error).split())}")
        return Check(name, self._set, round(seconds * 1e3, 3))


def _slow_pairs() -> dict[str, Pair]:
    pairs = {}
    for scheme in REGISTRY.values():
        if scheme.is_slow:
            authority: Any = KeyAuthority(_parameters(scheme))  # with a key pair, for slow schemes have one
            contents = authority.contents()
            pairs[scheme.name] = (contents.public_key.hex(), contents.secret.hex())
    return pairs


def _parameters(scheme: Scheme) -> Any:
    """Return the smallest that it has for so few values."""
    needs = SumNeeds(
        clients=_CLIENTS,
        value_bits=24,
        fraction_bits=20,
        count=_count(scheme),
        key_bits=min(scheme.key_sizes, default=SumNeeds.key_bits),
    )
    return scheme.update_parameters(scheme.encryptions[0], needs)


def _count(scheme: Scheme) -> int:
    return _VALUES_OF_SLOW if scheme.is_slow else _VALUES


class _Trial:
    """Three clients, their aggregator and the key authority."""

    def __init__(self, scheme: Scheme, pair: Pair | None = None) -> None:
        self.scheme = scheme
        self._authority: Any
        if pair is None:
            self._authority = KeyAuthority(_parameters(scheme), threads=1)
        else:
            public, secret = map(bytes.fromhex, pair)
            self._authority = KeyAuthority.of_contents(
                Contents(public, _CLIENTS, True, {}, bytearray(secret))
            )
        self._public_key = self._authority.public_key
        self.key_id: bytes = self._public_key.id
        numbers = range(_CLIENTS)
        self._keys = [
            self._authority.enrol(f"client-{number}") if scheme.enrols else self._public_key
            for number in numbers
        ]
        self._clients = [
            key.client if scheme.enrols else number for number, key in zip(numbers, self._keys, strict=True)
        ]
        count, rng = _count(scheme), np.random.default_rng(1)
        self._updates = [rng.normal(0.0, 0.05, count).astype(np.float32) for _ in numbers]
        self._mask = Mask.full(count)
        self._positions = scheme.positions_of([self._mask] * _CLIENTS, 1)

    def frames(self, round_number: int, threads: int) -> list[bytes]:
        """Encrypt each client's update."""
        return [
            self._encrypted(client, update, round_number, threads)
            for client, update in enumerate(self._updates)
        ]

    def _encrypted(
        self, client: int, update: NDArray[np.float32], round_number: int, threads: int = 1
    ) -> bytes:
        encryptor = self.scheme.encryptor(self._keys[client], threads, "update")
        return self.scheme.encrypt(encryptor, update, self._mask, self._positions, None, round_number)[0]

    def likenesses(self) -> tuple[float, float]:
        """Return the share of equal bytes of two frames of the same values: by round, and by client."""
        frames = [
            self._encrypted(client, self._updates[0], number) for client, number in ((0, 3), (0, 4), (1, 4))
        ]
        # The first bytes are a head, much of which is the same for all.
        first, second, other = (np.frombuffer(frame, np.uint8)[len(frame) // 4 :] for frame in frames)
        return float(np.mean(first == second)), float(np.mean(second == other))

    def total(self, frames: Sequence[bytes], round_number: int, threads: int) -> Any:
        """Add the clients' frames."""
        aggregator = self.scheme.aggregator(
            self._public_key, threads, round_number, self._positions, weighted=False, purpose="update"
        )
        for client, frame in zip(self._clients, frames, strict=True):
            self.scheme.add(aggregator, client, frame, 1, None)
        return aggregator.total()

    def open(self, total: Any, threads: int) -> NDArray[np.float64]:
        """Open a total: by a client with the authority's answer where clients enrol, otherwise by the authority."""
        if self.scheme.enrols:
            answered = self._authority.sum_key(total.request())
            return open_answered(total, answered, self._keys[0], threads=threads)
        opener = self._authority
        if threads > 1:
            opener = KeyAuthority.of_contents(self._authority.contents(), threads=threads)
        opened: NDArray[np.float64] = opener.open(total)
        return opened

    def check(self, opened: NDArray[np.float64]) -> None:
        """Raise unless these are the sums, to the last bit once clients have rounded their values."""
        scale = 2.0**self._public_key.parameters.fraction_bits
        integers = np.sum([np.rint(update.astype(np.float64) * scale) for update in self._updates], axis=0)
        wrong = int(np.count_nonzero(self._positions.scatter(opened) * scale != integers))
        if wrong:
            raise _WrongSumError(f"{wrong:,} of {integers.size:,} values of the sum are wrong")
