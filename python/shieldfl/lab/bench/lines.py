"""What is measured once for all cases: an authority's answers where clients enrol, and the negotiation of masks.

The authority's time grows with clients, and where answers are long with values too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.encryption.answers import open_total
from shieldfl.encryption.registry import REGISTRY
from shieldfl.lab.bench.own import EnrolledSession, enrolled_parameter_sets
from shieldfl.lab.bench.scheme import WrongSumError, from_fixed_point, select, to_fixed_point
from shieldfl.lab.bench.target import Target, at_most, median_seconds_in_turns
from shieldfl.masks import Mask, negotiate

CLIENTS = 20
"""Whose masks are negotiated."""
CONSENSUS = 0.2
_SHARE = 0.1
_READERS = {"sum": np.add.reduce, "XOR": np.bitwise_xor.reduce, "maximum": np.maximum.reduce}
# Larger than any cache that a core has to itself or shares, for the sizes that figures are for.
_EVICTING_TIMES = 8

_ONE_SECRET = 100
"""Values of an update: one ciphertext, and so one secret of each client, as up to 32 ciphertexts of kahe have."""
_MANY = 1_000_000
"""Values of an update where each costs the authority."""


@dataclass(frozen=True)
class AuthorityFigure:
    """The key of one total."""

    clients: int
    seconds: float
    """To derive all secrets and to sum them."""
    answer_bytes: int
    request_bytes: int

    @property
    def note(self) -> str:
        """What the time is made of, in words."""
        return (
            f"{1e6 * self.seconds / self.clients:.2f} µs a client; request of {self.request_bytes:,} bytes, "
            f"answer of {self.answer_bytes:,}"
        )


def measure_authority(
    parameters: Any, clients: int, threads: int, repetitions: int, values: int = _ONE_SECRET
) -> AuthorityFigure:
    """Encrypt and add for all clients, time the authority, and open. Raises WrongSumError."""
    return measure_authorities({"alone": parameters}, clients, threads, repetitions, values)["alone"]


def measure_authorities(
    parameter_sets: Mapping[str, Any],
    clients: int,
    threads: int,
    repetitions: int,
    values: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, AuthorityFigure]:
    """Do what :func:`measure_authority` does for each parameter set; authorities answer in turns.

    ``clock`` : as for :func:`median_seconds_in_turns`.
    """
    sums = {
        name: _AskedSum(parameters, clients, threads, values) for name, parameters in parameter_sets.items()
    }
    seconds = median_seconds_in_turns(
        {name: one.answer for name, one in sums.items()}, repetitions, clock=clock
    )
    for one in sums.values():
        one.check()
    return {
        name: AuthorityFigure(clients, seconds[name], len(one.answered), len(one.request))
        for name, one in sums.items()
    }


class _AskedSum:
    """A total of the same update of all clients, and the request for its key."""

    def __init__(self, parameters: Any, clients: int, threads: int, values: int) -> None:
        self._clients, self._threads = clients, threads
        self._session = EnrolledSession(parameters, clients)
        self._update = select(values, 1.0).update
        scheme = self._session.scheme
        aggregator = scheme.Aggregator(self._session.public_key, threads)
        for key in self._session.client_keys:
            aggregator.add(scheme.Encryptor(key, threads).encrypt(self._update))
        self._total = aggregator.total()
        self.request = self._total.request()
        self._participants = [client for client, _ in self._total.participants]
        self.answered = bytearray()

    def answer(self) -> None:
        """Do what is timed."""
        self.answered = self._session.answer(self.request, self._participants, self._threads)

    def check(self) -> None:
        """Open with the last answer. Raises WrongSumError."""
        public_key = self._session.public_key
        fraction_bits = public_key.parameters.fraction_bits
        opened, _ = open_total(public_key, self._total, self.answered, threads=self._threads)
        expected = from_fixed_point(
            self._clients * to_fixed_point(self._update, fraction_bits), fraction_bits
        )
        if not np.array_equal(opened, expected):
            raise WrongSumError(f"the key of {self._clients:,} clients opened a wrong sum")


def authority_lines(scheme: str, threads: int, repetitions: int) -> Iterator[Target]:
    """Yield a line for each parameter set, with as many clients as it is for; nothing is asked of them.

    Where answers are long, for some numbers of clients, each with many values.
    """
    sets = enrolled_parameter_sets(scheme)
    if not REGISTRY[scheme].long_answers:
        for name, parameters in sets.items():
            yield _line(name, parameters, parameters.max_clients, threads, repetitions, _ONE_SECRET)
        return
    name, parameters = next(iter(sets.items()))
    for clients in (4, parameters.max_clients):
        yield _line(name, parameters, clients, threads, repetitions, _MANY)


def _line(name: str, parameters: Any, clients: int, threads: int, repetitions: int, values: int) -> Target:
    figure = measure_authority(parameters, clients, threads, repetitions, values)
    on = "1 thread" if threads == 1 else f"{threads} threads"
    return at_most(
        f"authority of {name}: answer for {figure.clients:,} clients with {values:,} values, {on}",
        1e3 * figure.seconds,
        None,
        unit="ms",
        note=figure.note,
    )


def voters(positions: int) -> NDArray[np.bool_]:
    """Return a random tenth of the positions for each of CLIENTS clients: bool (CLIENTS, positions)."""
    rng = np.random.default_rng(1)
    chosen = np.empty((CLIENTS, positions), dtype=np.bool_)
    for row in chosen:
        np.less(rng.random(positions, dtype=np.float32), _SHARE, out=row)
    return chosen


def negotiation_over_reading(positions: int, repetitions: int) -> Target:
    """Compare ``negotiate`` with the fastest of some passes of NumPy over as much memory as the masks take.

    Both on one thread, and from memory: before each pass something else is read that fills the caches. The core shows
    nobody the words of its masks, so what is read is a copy: one array a mask, of the same words.
    """
    chosen = voters(positions)
    masks = [Mask.from_bool(row) for row in chosen]
    words = [_words(row) for row in chosen]
    # Written: what is only ever read of new memory is one page of zeros, which evicts nothing.
    elsewhere = np.ones(_EVICTING_TIMES * sum(row.size for row in words), np.uint64)

    def reading(reduce: Callable[[NDArray[np.uint64]], object]) -> Callable[[], object]:
        return lambda: [reduce(row) for row in words]

    seconds = median_seconds_in_turns(
        {
            "negotiate": lambda: negotiate(masks, CONSENSUS, threads=1),
            **{name: reading(ufunc) for name, ufunc in _READERS.items()},
        },
        repetitions,
        before=elsewhere.max,
    )
    fastest = min(_READERS, key=seconds.__getitem__)
    return at_most(
        f"negotiate {CLIENTS} masks of {positions:,}, over reading them once",
        seconds["negotiate"] / seconds[fastest],
        1.25,
        note=f"{1e3 * seconds['negotiate']:.3g} ms beside "
        + ", ".join(f"{1e3 * seconds[name]:.3g} ms by {name}" for name in _READERS)
        + " over uint64; the fastest counts",
    )


def _words(chosen: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return a mask as words of 64 positions."""
    padded = np.zeros(-(-chosen.size // 64) * 64, np.bool_)
    padded[: chosen.size] = chosen
    return np.packbits(padded, bitorder="little").view(np.uint64)
