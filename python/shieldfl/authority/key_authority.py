"""The key authority: the only holder of a secret key, and the keeper of what may be opened with it."""

from __future__ import annotations

import hashlib
import threading
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

import shieldfl._core as _core
from shieldfl.authority import key_file
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.sum_key_authority import SumKeyAuthority, reopened_authority
from shieldfl.authority.total_opener import (
    LEAST_THAT_HIDES,
    WEIGHT_BOUNDS,
    Answer,
    Key,
    TotalOpener,
    checked_min_clients,
    checked_weight_bounds,
)
from shieldfl.encryption.encryption import SchemeTotal
from shieldfl.encryption.keys import EnrolledPublicKey
from shieldfl.encryption.opening import DECRYPTORS
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import REGISTRY, Scheme, scheme_of
from shieldfl.errors import ParameterError, PolicyError, WireFormatError

__all__ = ["KeyAuthority"]

MOST_OPENED_COEFFICIENTS = 2**32
"""Under one key: that no opened sum holds encryption noise is proved for so many (docs/packings.md)."""

Parameters = SchemeParameters[Any, Any]
Total = SchemeTotal
SessionKey = TypeVar("SessionKey", bound=EnrolledPublicKey)


def _scheme_of_key_frame(public_key: bytes) -> Scheme:
    kind = _core.summarise_frame(public_key).kind_name
    for name, scheme in REGISTRY.items():
        if kind == f"{name} public key":
            return scheme
    raise WireFormatError("the key file holds the key of no scheme that this version has: update shieldfl")


class OpenedTotals:
    """One total for each round, a budget for the key, and the first answer to the newest total. Not thread-safe.

    A total that is asked for again gets the answer that it got, not another computation: whoever sees a right and a
    faulty one of a Paillier total knows the key. Memory is bounded by keeping the newest alone; an older total is
    opened again, with the same result and all checks.

    Parameters
    ----------
    digests : of the total that was opened, by round.
    coefficients : that were opened so far.
    """

    def __init__(self, digests: dict[int, str], coefficients: int) -> None:
        self.digests = digests
        self.coefficients = coefficients
        self._newest: tuple[str, Answer] | None = None

    def find(self, round_number: int, digest: str) -> Answer | None:
        """Return the first answer to this total, None if it has to be opened. Raises PolicyError for another one."""
        if self.digests.get(round_number, digest) != digest:
            raise PolicyError(
                f"a different total of round {round_number} was opened before: the difference of the two could "
                "be one client's update. Start a new round"
            )
        if self._newest is None or self._newest[0] != digest:
            return None
        return self._newest[1].copy()

    def check_budget(self, round_number: int, digest: str, coefficients: int) -> None:
        """Raise PolicyError where so many coefficients more are too many for the key."""
        if self.coefficients + self._cost(round_number, digest, coefficients) > MOST_OPENED_COEFFICIENTS:
            raise PolicyError(
                f"this key has opened {self.coefficients:,} coefficients, and {coefficients:,} more would pass the "
                f"{MOST_OPENED_COEFFICIENTS:,} that one key may: make a new key authority"
            )

    def remember(
        self, round_number: int, digest: str, coefficients: int, answer: Answer, *, keep: bool
    ) -> None:
        """Take note of an answer before it leaves, and keep it, if so asked, for :meth:`find`."""
        self.coefficients += self._cost(round_number, digest, coefficients)
        self.digests[round_number] = digest
        if keep:
            self._newest = digest, answer.copy()

    def forget_answer(self) -> None:
        """Drop the answer that is kept; which totals were opened, and how much, stays known."""
        self._newest = None

    def _cost(self, round_number: int, digest: str, coefficients: int) -> int:
        # The same sums once more tell nothing more.
        return 0 if self.digests.get(round_number) == digest else coefficients


class _OfKeyPair(TotalOpener[Key]):
    """How a key authority is set up with a key pair.

    Not in KeyAuthority itself: a type checker asks ``__init__`` what a class makes where that has both, and only
    ``__new__`` says that it may be another one.
    """

    def __init__(
        self,
        params: SchemeParameters[Any, Key],
        min_clients: int = LEAST_THAT_HIDES,
        one_total_per_round: bool = True,
        *,
        threads: int | None = None,
        weight_bounds: tuple[float, float] = WEIGHT_BOUNDS,
    ) -> None:
        scheme = scheme_of(params)
        min_clients = checked_min_clients(params, min_clients)
        checked_weight_bounds(weight_bounds)  # before a key is made, which can take seconds
        decryptor = DECRYPTORS[scheme.PublicKey._core_class](params._handle)
        self._set_up(
            scheme, decryptor, min_clients, one_total_per_round, {}, threads, weight_bounds=weight_bounds
        )

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
        weight_bounds: tuple[float, float] = WEIGHT_BOUNDS,
    ) -> None:
        super().__init__(scheme.PublicKey(decryptor.public_key), min_clients, weight_bounds, threads)
        # Takes totals of its own scheme alone, which is seen to before.
        self._decryptor = decryptor
        self._opened = OpenedTotals(opened, opened_coefficients)
        self._lock = threading.Lock()
        self.one_total_per_round = bool(one_total_per_round)


class KeyAuthority(_OfKeyPair[Key]):
    """Makes a key pair, gives away the public half and opens totals with the secret one.

    It refuses (PolicyError) a total of fewer than ``min_clients`` clients and, with ``one_total_per_round``, a
    second, different total of a round: the difference of two totals can be one client's update. The same
    total can be opened again and gives the same values, so that a lost answer can be asked for again; the newest
    one is answered from memory. A key opens 2^32 coefficients, then nothing more.

    **Under** ``ckks`` **make a new one for each round, and wipe() the old one.** One client that alters its own
    ciphertexts, or an aggregator that lies, gets the whole secret key from an opened sum, and with it every update
    under this key that it has recorded, of all rounds (docs/threat-model.md). Methods do so by
    :class:`~shieldfl.authority.round_keys.RoundKeys`.

    The number of clients is what the total states. An aggregator that lies about it is outside the threat
    model (docs/threat-model.md).

    Parameters
    ----------
    params : ckks.Parameters or paillier.Parameters. A Paillier key takes seconds to make. For kahe.Parameters it is a
        :class:`~shieldfl.authority.sum_key_authority.SumKeyAuthority` that is made, which clients enrol with.
    min_clients : the fewest clients of a total that is opened, at least 1 and at most ``params.max_clients``. Below 3
        a sum hides nothing among those who know one of its parts: say so on purpose.
    one_total_per_round : False gives up the protection against differences, and computes each answer anew.
    threads : for opening; None for as many as the work is worth.
    weight_bounds : the smallest and the largest encrypted weight that a client may have, above 0. Whoever takes part
        can encrypt any weight, also a negative one, so a mean is given only where the sum of all is one that weights
        within these bounds can have. By default 1/64 and 1.
    """

    _why_uncopied = "holds a secret key and is neither copied nor pickled: use save()"

    @overload
    def __new__(  # type: ignore[misc]  # what is made is no KeyAuthority, and all that follows from it is true
        cls,
        params: SchemeParameters[Any, SessionKey],
        min_clients: int = ...,
        one_total_per_round: bool = ...,
        *,
        threads: int | None = ...,
        weight_bounds: tuple[float, float] = ...,
        most_values: int = ...,
        owner: AuthoritySecrets | None = ...,
        store: AuthorityStore | str | PathLike[str] | None = ...,
        public_key: Any = ...,
        purpose: str | None = ...,
    ) -> SumKeyAuthority[SessionKey]: ...

    @overload
    def __new__(
        cls,
        params: SchemeParameters[Any, Key],
        min_clients: int = ...,
        one_total_per_round: bool = ...,
        *,
        threads: int | None = ...,
        weight_bounds: tuple[float, float] = ...,
    ) -> KeyAuthority[Key]: ...

    def __new__(cls, params: Any = None, *arguments: Any, **options: Any) -> Any:
        """Make a :class:`~shieldfl.authority.sum_key_authority.SumKeyAuthority` for schemes in which clients enrol."""
        if params is not None and scheme_of(params).enrols:
            return SumKeyAuthority(params, *arguments, **options)
        return super().__new__(cls)

    @property
    def opened_coefficients(self) -> int:
        """How many coefficients (CKKS) or values (Paillier) were opened under the key; 2^32 at most."""
        return self._opened.coefficients

    def _answer(self, total: Total) -> Answer:
        digest = hashlib.sha256(total.to_bytes()).hexdigest()
        coefficients = self._scheme.opened_coefficients(total)
        with self._lock:
            answer = self._opened.find(total.round, digest) if self.one_total_per_round else None
            if answer is None:
                self._opened.check_budget(total.round, digest, coefficients)
                answer = Answer(*self._held_decryptor().open(total.parsed, self._threads))
                self._opened.remember(
                    total.round, digest, coefficients, answer, keep=self.one_total_per_round
                )
        return answer

    def has_opened(self, total: Total) -> bool:
        """Say whether a total of this one's round was opened."""
        with self._lock:
            return total.round in self._opened.digests

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
    def load(
        cls,
        path: str | Path,
        passphrase: str,
        *,
        threads: int | None = None,
        store: str | Path | None = None,
        at_least: tuple[int, int] = (0, 0),
        restored: bool = False,
    ) -> Any:
        """Read what :meth:`save` wrote; where clients enrol, go on from the store as well.

        Parameters
        ----------
        path, passphrase : of the key file.
        threads : for opening; None for as many as the work is worth.
        store : the path that the authority was made with, where clients enrol.
        at_least : a position that the store is known to have reached: an older file is refused.
        restored : the store is a backup. Its sessions end, and the authority that is returned begins a new one, in a
            new epoch: save it again, and have clients enrol anew.

        Raises KeyMismatchError for a wrong passphrase, an altered file or the store of another authority;
        WireFormatError for no key file at all, and a damaged store; PolicyError for an old copy of a store, and for one
        that another process holds; DataError; ParameterError for a store that is missing, or is there for nothing.
        """
        contents = key_file.read(Path(path), passphrase)
        scheme = _scheme_of_key_frame(contents.public_key)
        if scheme.enrols != (store is not None):
            raise ParameterError(
                "the key file is that of an authority that goes on from its store: pass store="
                if scheme.enrols
                else "the key file has all that its authority knows: pass no store"
            )
        if store is None:
            return cls.of_contents(contents, threads=threads)
        public_key = scheme.PublicKey.from_bytes(contents.public_key)
        return reopened_authority(
            contents, public_key, store, threads=threads, at_least=at_least, restored=restored
        )

    @classmethod
    def of_contents(cls, contents: key_file.Contents, *, threads: int | None = None) -> KeyAuthority:
        """Make an authority of what :meth:`contents` gave, whose secret is overwritten. Raises WireFormatError."""
        try:
            scheme = _scheme_of_key_frame(contents.public_key)
            pair = scheme.PublicKey._core_class
            decryptor = DECRYPTORS[pair].import_secret(pair.from_bytes(contents.public_key), contents.secret)
        finally:
            contents.secret[:] = bytes(len(contents.secret))
        authority: KeyAuthority = object.__new__(cls)
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
