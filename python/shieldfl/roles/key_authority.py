"""The key authority: the only holder of a secret key, and the keeper of what may be opened with it."""

from __future__ import annotations

import hashlib
import math
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import as_real, as_threads, as_unsigned
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.roles import key_file
from shieldfl.roles.opened_totals import Answer, OpenedTotals
from shieldfl.scheme.encryption import SchemeBatch, SchemeTotal
from shieldfl.scheme.interface import Scheme
from shieldfl.scheme.keys import SchemePublicKey
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import REGISTRY, scheme_of
from shieldfl.stateful import Uncopied

if TYPE_CHECKING:
    # Type checkers know it without an installation; its TypeVar, unlike that of Python 3.11, can have a default.
    from typing_extensions import TypeVar

    Key = TypeVar("Key", bound=SchemePublicKey[Any], default=Any)
else:
    from typing import TypeVar

    Key = TypeVar("Key")

__all__ = ["KeyAuthority"]

Parameters = SchemeParameters[Any, Any]
Total = SchemeTotal[Any]


_LEAST_THAT_HIDES = 3
"""Of two clients each learns the other's update, by taking its own from the sum."""


_MISSTATED = (
    "the weights in the total do not sum to what the clients stated in the clear: one of them is forged, so no mean is "
    "given. Start a new round"
)


def _checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    smallest, largest = (as_real(bound, "a bound of weights") for bound in bounds)
    if not 0.0 < smallest <= largest < math.inf:
        raise ParameterError("weight_bounds must be two finite numbers above 0, the smaller one first")
    return smallest, largest


def _scheme_of_key_frame(public_key: bytes) -> Scheme:
    kind = _core.summarise_frame(public_key).kind_name
    for name, scheme in REGISTRY.items():
        if kind == f"{name} public key":
            return scheme
    raise WireFormatError("the key file holds the key of no scheme that this version has: update shieldfl")


class KeyAuthority(Uncopied, Generic[Key]):
    """Makes a key pair, gives away the public half and opens totals with the secret one.

    It refuses (PolicyError) a total of fewer than ``min_clients`` clients and, with ``one_total_per_round``, a
    second, different total of a round: the difference of two totals can be one client's update. The same
    total can be opened again and gives the same values, so that a lost answer can be asked for again; the newest
    one is answered from memory. A key opens 2^32 coefficients, then nothing more.

    **Under** ``ckks`` **make a new one for each round, and wipe() the old one.** One client that alters its own
    ciphertexts, or an aggregator that lies, gets the whole secret key from an opened sum, and with it every update
    under this key that it has recorded, of all rounds (docs/threat-model.md). Methods do so by
    :class:`~shieldfl.roles.round_keys.RoundKeys`.

    The number of clients is what the total states. An aggregator that lies about it is outside the threat
    model (docs/threat-model.md).

    Parameters
    ----------
    params : ckks.Parameters or paillier.Parameters. A Paillier key takes seconds to make.
    min_clients : the fewest clients of a total that is opened, at least 1 and at most ``params.max_clients``. Below 3
        a sum hides nothing among those who know one of its parts: say so on purpose.
    one_total_per_round : False gives up the protection against differences, and computes each answer anew.
    threads : for opening; None for as many as the work is worth.
    weight_bounds : the smallest and the largest encrypted weight that a client may have, above 0. Whoever takes part
        can encrypt any weight, also a negative one, so a mean is given only where the sum of all is one that weights
        within these bounds can have. By default 1/64 and 1.
    """

    _why_uncopied = "holds a secret key and is neither copied nor pickled: use save()"

    def __init__(
        self,
        params: SchemeParameters[Any, Key],
        min_clients: int = _LEAST_THAT_HIDES,
        one_total_per_round: bool = True,
        *,
        threads: int | None = None,
        weight_bounds: tuple[float, float] = key_file.WEIGHT_BOUNDS,
    ) -> None:
        scheme = scheme_of(params)
        self._check_min_clients(params, min_clients)
        bounds = _checked_bounds(weight_bounds)
        decryptor = import_module(scheme.opening).Decryptor(params._handle)
        self._set_up(scheme, decryptor, min_clients, one_total_per_round, {}, threads, weight_bounds=bounds)

    def _set_up(
        self,
        scheme: Scheme,
        decryptor: Any,
        min_clients: int,
        one_total_per_round: bool,
        opened: dict[int, str],
        threads: int | None,
        opened_coefficients: int = 0,
        *,
        weight_bounds: tuple[float, float] = key_file.WEIGHT_BOUNDS,
    ) -> None:
        self._scheme = scheme
        # Takes totals of its own scheme alone, which _open sees to.
        self._decryptor = decryptor
        self._threads = as_threads(threads)
        self._opened = OpenedTotals(opened, opened_coefficients)
        self._lock = threading.Lock()
        self._public_key: Key = scheme.PublicKey(decryptor.public_key)
        self.min_clients = min_clients
        self.one_total_per_round = bool(one_total_per_round)
        self.weight_bounds = weight_bounds

    @property
    def public_key(self) -> Key:
        """What others get: a ckks.PublicKey or a paillier.PublicKey, as the parameters are."""
        return self._public_key

    @property
    def opened_coefficients(self) -> int:
        """How many coefficients (CKKS) or values (Paillier) were opened under the key; 2^32 at most."""
        return self._opened.coefficients

    @staticmethod
    def _check_min_clients(params: Parameters, min_clients: int) -> None:
        if not 1 <= as_unsigned(min_clients, "min_clients") <= params.max_clients:
            raise ParameterError(
                f"min_clients is {min_clients}, but must be between 1 and max_clients = {params.max_clients}. Of two "
                "clients each learns the other's update from the sum: pass min_clients where that is meant"
            )

    def open(self, total: Total | bytes) -> NDArray[np.float64]:
        """Open a total: the weighted sums, float64 (count,), in the order of ascending positions.

        A total of batches that were encrypted in a union is in the order of that ``paillier.UnionOrder``.

        Raises PolicyError for what may not be opened, KeyMismatchError, ParameterError, WireFormatError.
        """
        return self._open(total)[0]

    def open_mean(self, total: Total | bytes, *, stated_weight: float | None = None) -> NDArray[np.float64]:
        """Open a total and divide by the sum of weights: encrypted ones, or else those that the aggregator gave.

        Where there are neither, that is the number of clients.

        Parameters
        ----------
        stated_weight : what the weights sum to by what the clients stated in the clear, where they did.

        Raises RangeError, beside what :meth:`open` raises, where encrypted weights sum to what none within
        ``weight_bounds`` do, or to something else than was stated, but for their rounding: half a step for each.
        """
        read: Any = total
        if not isinstance(total, SchemeTotal | SchemeBatch):
            read = self._scheme.Total.from_bytes(total, self._threads or None)
        sums, weight_sum, total_weight = self._open(read)
        if weight_sum is None:
            if stated_weight is not None and stated_weight != total_weight:
                raise RangeError(_MISSTATED)
            return sums / total_weight
        self._check_weight(weight_sum, read.clients, stated_weight)
        return sums / weight_sum

    def _check_weight(self, weight_sum: float, clients: int, stated_weight: float | None) -> None:
        parameters = self._public_key.parameters
        step = parameters.weight_step
        slack = (clients / 2 + 1) * step
        smallest, largest = (clients * bound for bound in self.weight_bounds)
        # Not what they sum to: that is not for everybody who reads an error.
        if not max(smallest - slack, step) <= weight_sum <= largest + slack:
            raise RangeError(
                f"the encrypted weights of {clients} clients do not sum to what weights between "
                f"{self.weight_bounds[0]:g} and {self.weight_bounds[1]:g} can: one of them is forged, or these bounds "
                "are not the clients'. Say which are by weight_bounds, and start a new round"
            )
        if stated_weight is not None and not abs(weight_sum - stated_weight) <= slack:
            raise RangeError(_MISSTATED)

    def _open(self, total: Total | bytes) -> tuple[NDArray[np.float64], float | None, int]:
        if isinstance(total, SchemeBatch):
            raise PolicyError(
                "only totals are opened, never a single client's batch: add it to an Aggregator"
            )
        own = self._scheme.Total
        if isinstance(total, SchemeTotal) and not isinstance(total, own):
            raise ParameterError(
                f"the total is of another encryption scheme: this authority opens {self._scheme.name} totals"
            )
        if not isinstance(total, own):
            return self._open(own.from_bytes(total, self._threads or None))
        total.parse(self._threads or None)  # 0 is the core's number for all cores
        if total.clients < self.min_clients:
            raise PolicyError(
                f"the total holds {total.clients} clients, fewer than min_clients = {self.min_clients}: "
                "wait for more clients before closing the round"
            )
        digest = hashlib.sha256(total.to_bytes()).hexdigest()
        coefficients = import_module(self._scheme.opening).opened_coefficients(total)
        with self._lock:
            answer = self._opened.find(total.round, digest) if self.one_total_per_round else None
            if answer is None:
                self._opened.check_budget(total.round, digest, coefficients)
                answer = Answer(*self._held_decryptor().open(total.parsed, self._threads))
                self._opened.remember(
                    total.round, digest, coefficients, answer, keep=self.one_total_per_round
                )
        return answer.sums, answer.weight_sum, total.total_weight

    def has_opened(self, round_number: int) -> bool:
        """Say whether a total of this round was opened."""
        with self._lock:
            return round_number in self._opened.digests

    def contents(self) -> key_file.Contents:
        """Return the key pair, whose secret the receiver overwrites, with what was opened so far."""
        with self._lock:
            return key_file.Contents(
                public_key=self.public_key.to_bytes(),
                min_clients=self.min_clients,
                one_total_per_round=self.one_total_per_round,
                opened=dict(self._opened.digests),
                weight_bounds=self.weight_bounds,
                secret=self._held_decryptor().export_secret(),
                opened_coefficients=self._opened.coefficients,
            )

    def save(self, path: str | Path, passphrase: str) -> None:
        """Write the key pair, under the passphrase, with what was opened so far; file mode 0600.

        Save again after opening, or a restarted authority forgets which totals it opened. Needs the
        ``cryptography`` package. Raises ParameterError for an empty passphrase, OSError.
        """
        contents = self.contents()
        try:
            key_file.write(Path(path), passphrase, contents)
        finally:
            contents.secret[:] = bytes(len(contents.secret))

    @classmethod
    def load(cls, path: str | Path, passphrase: str, *, threads: int | None = None) -> KeyAuthority:
        """Read what :meth:`save` wrote.

        Raises KeyMismatchError for a wrong passphrase or an altered file, WireFormatError for no key file at all.
        """
        return cls.of_contents(key_file.read(Path(path), passphrase), threads=threads)

    @classmethod
    def of_contents(cls, contents: key_file.Contents, *, threads: int | None = None) -> KeyAuthority:
        """Make an authority of what :meth:`contents` gave, whose secret is overwritten. Raises WireFormatError."""
        try:
            scheme = _scheme_of_key_frame(contents.public_key)
            opening = import_module(scheme.opening)
            public_key = opening.KeyPair.from_bytes(contents.public_key)
            decryptor = opening.Decryptor.import_secret(public_key, contents.secret)
        finally:
            contents.secret[:] = bytes(len(contents.secret))
        authority = cls.__new__(cls)
        authority._set_up(
            scheme,
            decryptor,
            contents.min_clients,
            contents.one_total_per_round,
            contents.opened,
            threads,
            contents.opened_coefficients,
            weight_bounds=contents.weight_bounds,
        )
        return authority

    def wipe(self) -> None:
        """Give the secret key up: its memory is overwritten, and nothing more is opened or saved (PolicyError)."""
        with self._lock:
            # The only reference: the core overwrites the key's memory as it frees it.
            self._decryptor = None
            self._opened.forget_answer()

    def _held_decryptor(self) -> Any:
        if self._decryptor is None:
            raise PolicyError("the secret key was wiped: make a new KeyAuthority for the next round")
        return self._decryptor

    def __repr__(self) -> str:
        return f"KeyAuthority(key_id={self.public_key.id.hex()}, min_clients={self.min_clients})"
