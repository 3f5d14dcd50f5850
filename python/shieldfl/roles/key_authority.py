"""The key authority: the only holder of a secret key, and the keeper of what may be opened with it."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from shieldfl import _core, ckks
from shieldfl.array_view import as_threads, as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.roles import key_file

__all__ = ["KeyAuthority"]


class KeyAuthority:
    """Makes a key pair, gives away the public half and opens totals with the secret one.

    It refuses (PolicyError) a total of fewer than ``min_clients`` clients and, with ``one_total_per_round``, a
    second, different total of a round: the difference of two totals can be one client's update. The same
    total can be opened again and gives the same values, so that a lost answer can be asked for again.

    The number of clients is what the total states. An aggregator that lies about it is outside the threat
    model (docs/threat-model.md).

    Parameters
    ----------
    params : ckks.Parameters.
    min_clients : the fewest clients of a total that is opened, at least 1 and at most ``params.max_clients``.
    one_total_per_round : False gives up the protection against differences.
    threads : for opening; None for all cores.
    """

    def __init__(
        self,
        params: ckks.Parameters,
        min_clients: int = 2,
        one_total_per_round: bool = True,
        *,
        threads: int | None = None,
    ) -> None:
        if not isinstance(params, ckks.Parameters):
            raise ParameterError(f"params must be ckks.Parameters, not {type(params).__name__}")
        self._check_min_clients(params, min_clients)
        self._set_up(params._new_decryptor(), min_clients, one_total_per_round, {}, threads)

    def _set_up(
        self,
        decryptor: _core.CkksDecryptor,
        min_clients: int,
        one_total_per_round: bool,
        opened: dict[int, str],
        threads: int | None,
    ) -> None:
        self._decryptor = decryptor
        self._threads = as_threads(threads)
        self._opened = opened  # round -> digest of the one total that may be opened
        self._lock = threading.Lock()
        self.public_key = ckks.PublicKey(decryptor.public_key)
        self.min_clients = min_clients
        self.one_total_per_round = bool(one_total_per_round)

    @staticmethod
    def _check_min_clients(params: ckks.Parameters, min_clients: int) -> None:
        if not 1 <= as_unsigned(min_clients, "min_clients") <= params.max_clients:
            raise ParameterError(f"min_clients must be between 1 and max_clients = {params.max_clients}")

    def open(self, total: ckks.Total | bytes) -> NDArray[np.float64]:
        """Open a total: the weighted sums, float64 (count,), in the order of ascending positions.

        Raises PolicyError for what may not be opened, KeyMismatchError, ParameterError, WireFormatError.
        """
        return self._open(total)[0]

    def open_mean(self, total: ckks.Total | bytes) -> NDArray[np.float64]:
        """Open a total and divide by the sum of weights, or by the number of clients where there are none."""
        sums, weight_sum, clients = self._open(total)
        return sums / (clients if weight_sum is None else weight_sum)

    def _open(self, total: ckks.Total | bytes) -> tuple[NDArray[np.float64], float | None, int]:
        if isinstance(total, ckks.CiphertextBatch):
            raise PolicyError(
                "only totals are opened, never a single client's batch: add it to an Aggregator"
            )
        if not isinstance(total, ckks.Total):
            return self._open(ckks.Total.from_bytes(total, self._threads or None))
        total.parse(self._threads or None)  # 0 is the core's number for all cores
        if total.clients < self.min_clients:
            raise PolicyError(
                f"the total holds {total.clients} clients, fewer than min_clients = {self.min_clients}: "
                "wait for more clients before closing the round"
            )
        digest = hashlib.sha256(total.to_bytes()).hexdigest()
        with self._lock:
            if self.one_total_per_round and self._opened.get(total.round, digest) != digest:
                raise PolicyError(
                    f"a different total of round {total.round} was opened before: the difference of the two could "
                    "be one client's update. Start a new round"
                )
            sums, weight_sum = self._decryptor.open(total.parsed, self._threads)
            self._opened[total.round] = digest
        return sums, weight_sum, total.clients

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
                    opened=dict(self._opened),
                    secret=secret,
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
            public_key = _core.CkksPublicKey.from_bytes(contents.public_key)
            decryptor = _core.CkksDecryptor.import_secret(public_key, contents.secret)
        finally:
            contents.secret[:] = bytes(len(contents.secret))
        authority = cls.__new__(cls)
        authority._set_up(
            decryptor, contents.min_clients, contents.one_total_per_round, contents.opened, threads
        )
        return authority

    def __repr__(self) -> str:
        return f"KeyAuthority(key_id={self.public_key.id.hex()}, min_clients={self.min_clients})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PolicyError("a KeyAuthority holds a secret key and is neither copied nor pickled: use save()")
