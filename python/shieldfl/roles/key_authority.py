"""The key authority: the only holder of a secret key, and the keeper of what may be opened with it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shieldfl import _core, ckks, paillier
from shieldfl.array_view import as_threads, as_unsigned
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.roles import key_file
from shieldfl.roles.opened_totals import Answer, OpenedTotals
from shieldfl.scheme.ciphertext import SchemeBatch, SchemeTotal

__all__ = ["KeyAuthority"]

Parameters = ckks.Parameters | paillier.Parameters
Total = ckks.Total | paillier.Total


_LEAST_THAT_HIDES = 3
"""Of two clients each learns the other's update, by taking its own from the sum."""


@dataclass(frozen=True)
class _Scheme:
    """What the authority needs to know of an encryption scheme."""

    name: str
    face: ModuleType
    public_key: Any
    decryptor: Any
    coefficients_of: Callable[[Any], int]
    """What a total counts for in the budget of the key."""


def _ckks_coefficients(total: ckks.Total) -> int:
    parsed = total.parsed
    return int(parsed.facts["ring_degree"]) * parsed.ciphertexts


def _paillier_values(total: paillier.Total) -> int:
    return total.count + total.weighted


_SCHEMES = (
    _Scheme("ckks", ckks, _core.CkksPublicKey, _core.CkksDecryptor, _ckks_coefficients),
    _Scheme("paillier", paillier, _core.PaillierPublicKey, _core.PaillierDecryptor, _paillier_values),
)


def _scheme_of_parameters(params: Any) -> _Scheme:
    for scheme in _SCHEMES:
        if isinstance(params, scheme.face.Parameters):
            return scheme
    names = " or ".join(f"{scheme.name}.Parameters" for scheme in _SCHEMES)
    raise ParameterError(f"params must be {names}, not {type(params).__name__}")


def _scheme_of_key_frame(public_key: bytes) -> _Scheme:
    kind = _core.summarise_frame(public_key).kind_name
    for scheme in _SCHEMES:
        if kind == f"{scheme.name} public key":
            return scheme
    raise WireFormatError("the key file holds the key of no scheme that this version has: update shieldfl")


class KeyAuthority:
    """Makes a key pair, gives away the public half and opens totals with the secret one.

    It refuses (PolicyError) a total of fewer than ``min_clients`` clients and, with ``one_total_per_round``, a
    second, different total of a round: the difference of two totals can be one client's update. The same
    total can be opened again and gives the same values, so that a lost answer can be asked for again; the newest
    one is answered from memory. A key opens 2^32 coefficients, then nothing more.

    The number of clients is what the total states. An aggregator that lies about it is outside the threat
    model (docs/threat-model.md).

    Parameters
    ----------
    params : ckks.Parameters or paillier.Parameters. A Paillier key takes seconds to make.
    min_clients : the fewest clients of a total that is opened, at least 1 and at most ``params.max_clients``. Below 3
        a sum hides nothing among those who know one of its parts: say so on purpose.
    one_total_per_round : False gives up the protection against differences, and computes each answer anew.
    threads : for opening; None for all cores.
    """

    def __init__(
        self,
        params: Parameters,
        min_clients: int = _LEAST_THAT_HIDES,
        one_total_per_round: bool = True,
        *,
        threads: int | None = None,
    ) -> None:
        scheme = _scheme_of_parameters(params)
        self._check_min_clients(params, min_clients)
        decryptor = scheme.decryptor(params._handle)
        self._set_up(scheme, decryptor, min_clients, one_total_per_round, {}, threads)

    def _set_up(
        self,
        scheme: _Scheme,
        decryptor: _core.CkksDecryptor | _core.PaillierDecryptor,
        min_clients: int,
        one_total_per_round: bool,
        opened: dict[int, str],
        threads: int | None,
        opened_coefficients: int = 0,
    ) -> None:
        self._scheme = scheme
        # Takes totals of its own scheme alone, which _open sees to.
        self._decryptor: Any = decryptor
        self._threads = as_threads(threads)
        self._opened = OpenedTotals(opened, opened_coefficients)
        self._lock = threading.Lock()
        self._public_key = scheme.face.PublicKey(decryptor.public_key)
        self.min_clients = min_clients
        self.one_total_per_round = bool(one_total_per_round)

    @property
    def public_key(self) -> Any:
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

    def open_mean(self, total: Total | bytes) -> NDArray[np.float64]:
        """Open a total and divide by the sum of weights: encrypted ones, or else those that the aggregator gave.

        Where there are neither, that is the number of clients.
        """
        sums, weight_sum, total_weight = self._open(total)
        sums /= total_weight if weight_sum is None else weight_sum
        return sums

    def _open(self, total: Total | bytes) -> tuple[NDArray[np.float64], float | None, int]:
        if isinstance(total, SchemeBatch):
            raise PolicyError(
                "only totals are opened, never a single client's batch: add it to an Aggregator"
            )
        own = self._scheme.face.Total
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
        coefficients = self._scheme.coefficients_of(total)
        with self._lock:
            answer = self._opened.find(total.round, digest) if self.one_total_per_round else None
            if answer is None:
                self._opened.check_budget(total.round, digest, coefficients)
                answer = Answer(*self._decryptor.open(total.parsed, self._threads))
                self._opened.remember(
                    total.round, digest, coefficients, answer, keep=self.one_total_per_round
                )
        return answer.sums, answer.weight_sum, total.total_weight

    def save(self, path: str | Path, passphrase: str) -> None:
        """Write the key pair, under the passphrase, with what was opened so far; file mode 0600.

        Save again after opening, or a restarted authority forgets which totals it opened. Needs the
        ``cryptography`` package. Raises ParameterError for an empty passphrase, OSError.
        """
        with self._lock:
            secret = self._decryptor.export_secret()
            try:
                contents = key_file.Contents(
                    public_key=self.public_key.to_bytes(),
                    min_clients=self.min_clients,
                    one_total_per_round=self.one_total_per_round,
                    opened=dict(self._opened.digests),
                    secret=secret,
                    opened_coefficients=self._opened.coefficients,
                )
                key_file.write(Path(path), passphrase, contents)
            finally:
                secret[:] = bytes(len(secret))

    @classmethod
    def load(cls, path: str | Path, passphrase: str, *, threads: int | None = None) -> KeyAuthority:
        """Read what :meth:`save` wrote.

        Raises KeyMismatchError for a wrong passphrase or an altered file, WireFormatError for no key file at all.
        """
        contents = key_file.read(Path(path), passphrase)
        try:
            scheme = _scheme_of_key_frame(contents.public_key)
            public_key = scheme.public_key.from_bytes(contents.public_key)
            decryptor = scheme.decryptor.import_secret(public_key, contents.secret)
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
        )
        return authority

    def __repr__(self) -> str:
        return f"KeyAuthority(key_id={self.public_key.id.hex()}, min_clients={self.min_clients})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PolicyError("a KeyAuthority holds a secret key and is neither copied nor pickled: use save()")
