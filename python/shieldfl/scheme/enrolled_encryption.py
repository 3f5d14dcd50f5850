"""From updates to batches to a total where clients have keys of their own: nothing here opens anything."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer, Pieces, as_threads, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask, bits_of
from shieldfl.scheme.client_key import EnrolledClientKey
from shieldfl.scheme.core import CoreCiphertext
from shieldfl.scheme.encryption import (
    Batch,
    Encrypted,
    FrameSource,
    SchemeAggregator,
    SchemeBatch,
    SchemeEncryptor,
    SchemeTotal,
)
from shieldfl.scheme.enrolled_key import EnrolledPublicKey
from shieldfl.scheme.parameters import SchemeParameters

__all__ = [
    "CoreListed",
    "EnrolledAggregator",
    "EnrolledBatch",
    "EnrolledEncryptor",
    "EnrolledTotal",
    "purpose_id",
]


class CoreListed(CoreCiphertext, Protocol):
    """A checked frame that names whose values are in it."""

    @property
    def facts(self) -> dict[str, Any]:
        """The parameters, as the core's parameters have them."""

    @property
    def purpose(self) -> bytes:
        """What :func:`purpose_id` gave."""

    @property
    def part(self) -> int:
        """Of the model."""

    @property
    def participants(self) -> list[tuple[int, bytes]]:
        """Client's number and 16 bytes of the frame's id, by client in ascending order."""

    def open(
        self, key: Any, total_digest: Buffer, sum_keys: list[Any], threads: int
    ) -> tuple[NDArray[np.float64], float | None]:
        """Open a total."""


Core = TypeVar("Core", bound=CoreListed)

_BESIDE = b"shieldfl beside1"
ListingAggregator = TypeVar("ListingAggregator", bound=Any)


def purpose_id(purpose: str) -> bytes:
    """Return 16 bytes that stand for what is encrypted, such as ``"update"``, in every frame."""
    return hashlib.blake2b(purpose.encode(), digest_size=16).digest()


def _checked_part(part: int) -> int:
    if (number := as_unsigned(part, "part")) >= 2**32:
        raise ParameterError("part must be below 2**32")
    return number


class EnrolledBatch(SchemeBatch[Core]):
    """One client's encrypted update. Reading one checks every field and every residue."""

    __slots__ = ()

    @property
    def client(self) -> int:
        """The number of the client whose key it was encrypted under; whoever carries it cannot change that."""
        ((client, _),) = self.parsed.participants
        return client


class EnrolledTotal(SchemeTotal[Core]):
    """The encrypted sum of a round and the list of those in it. Reading one checks every field and every residue."""

    __slots__ = ("_digest",)
    _core_request: ClassVar[Any]

    def __init__(self, frame: bytes) -> None:
        super().__init__(frame)
        self._digest: bytes | None = None

    def digest(self, beside: bytes = b"", threads: int | None = None) -> bytes:
        """Return what binds an answer to the total, 32 bytes: BLAKE2b of its frame, and of what is sent beside it.

        docs/wire-format.md defines it; on ``threads`` threads, None for as many as the work is worth, it is the same.
        The frame is hashed once: whoever opens a total needs this for its request, and for the core.
        """
        if self._digest is None:
            self._digest = _core.total_digest(self._frame, as_threads(threads))
        if not beside:
            return self._digest
        return hashlib.blake2b(self._digest + beside, digest_size=32, person=_BESIDE).digest()

    @property
    def participants(self) -> list[tuple[int, bytes]]:
        """Client's number and 16 bytes of the frame's id, by client in ascending order."""
        return self.parsed.participants

    @property
    def named_clients(self) -> tuple[int, ...]:
        """The numbers of those who are in it, ascending."""
        return tuple(client for client, _ in self.participants)

    def is_for(self, purpose: str) -> bool:
        """Say whether its values were encrypted for this purpose."""
        return self.parsed.purpose == purpose_id(purpose)

    def request(self, beside: bytes = b"") -> bytes:
        """Return the frame that asks the key authority for the key of this total: the list, and a digest.

        ``beside`` is a digest, 32 bytes, of what travels with the total: the answer is bound to that too.
        """
        asked = self._core_request(self.parsed, self.digest(beside))
        return bytes(asked.to_bytes())


class EnrolledEncryptor(SchemeEncryptor[Batch]):
    """Encrypts a client's masked updates under its own key.

    Each frame takes the round that it is told, and the key goes on to it once the frame is made: a round before that is
    refused (PolicyError). Never send two frames of one round, purpose and part, nor the same update again once it was
    in a sum that was opened: the difference of two sums would be the update.

    Parameters
    ----------
    client_key : of this client in a session.
    threads : None for as many as the work is worth.
    purpose : what is encrypted; values for different purposes are never summed.
    part : which part of the model, where it is sent in parts; below 2**32.
    """

    _why_uncopied = "holds a secret and is neither copied nor pickled"
    _client_key_class: ClassVar[type[EnrolledClientKey[Any]]]
    _core_encryptor: ClassVar[Any]

    def __init__(
        self,
        client_key: EnrolledClientKey[Any],
        threads: int | None = None,
        *,
        purpose: str = "update",
        part: int = 0,
    ) -> None:
        if not isinstance(client_key, self._client_key_class):
            scheme = self._client_key_class._public_key_class._scheme
            raise ParameterError(f"client_key must be a {scheme}.ClientKey, not {type(client_key).__name__}")
        client_key.check_complete()
        self.public_key: Any = client_key.public_key
        self._client_key = client_key
        self._purpose = purpose_id(purpose)
        self._part = _checked_part(part)
        self._threads = as_threads(threads)
        self._core = self._core_encryptor(type(self.public_key).core_of(self.public_key))

    def _encrypt(
        self,
        pieces: Pieces,
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        encrypted: Encrypted = self._core.encrypt(
            self._client_key._cores,
            pieces,
            mask,
            weight,
            round,
            self._purpose,
            self._part,
            clip,
            self._threads,
        )
        self._client_key._go_on_to(round)
        return encrypted

    def _parameters(self) -> SchemeParameters[Any, Any]:
        parameters: SchemeParameters[Any, Any] = self.public_key.parameters
        return parameters


Total = TypeVar("Total", bound=EnrolledTotal[Any])


class EnrolledAggregator(SchemeAggregator[ListingAggregator, Total]):
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions),
    KeyMismatchError (another session), PolicyError (another round, purpose or part), DuplicateFrameError (a client that
    is in the sum), CapacityError.

    Parameters
    ----------
    public_key : of the session.
    threads : None for as many as the work is worth.
    round : the round whose batches are accepted.
    positions : the mask that the clients encrypt under; ``Mask.full(size)`` where they encrypt everything.
    weighted : whether an encrypted weight travels beside the values.
    purpose, part : as for ``Encryptor``.

    What is None of ``round``, ``positions`` and ``weighted``, the first batch decides. Give what was agreed on: one
    client that is first, and wrong, otherwise keeps all others out.
    """

    _public_key_class: ClassVar[type[EnrolledPublicKey[Any]]]
    _core_aggregator: ClassVar[Any]
    _total_type: ClassVar[type]
    _core_ciphertext: ClassVar[type]

    def __init__(
        self,
        public_key: EnrolledPublicKey[Any],
        threads: int | None = None,
        *,
        round: int | None = None,
        positions: Mask | None = None,
        weighted: bool | None = None,
        purpose: str = "update",
        part: int = 0,
    ) -> None:
        if not isinstance(weighted, bool | None):
            raise ParameterError(f"weighted must be True, False or None, not {weighted!r}")
        core = self._core_aggregator(
            self._public_key_class.core_of(public_key),
            purpose_id(purpose),
            _checked_part(part),
            None if round is None else as_unsigned(round, "round"),
            None if positions is None else bits_of(positions),
            weighted,
            as_threads(threads),
        )
        super().__init__(core, self._total_type, self._core_ciphertext)

    def add(self, batch: EnrolledBatch[Any] | FrameSource, client: int | None = None) -> None:
        """Add one client's batch: an object, the bytes of one, or the file that holds them.

        Bytes are checked and added in one pass and without a copy; files are mapped. They must not change
        meanwhile. ``client`` is the number of who sent it, where that is known: KeyMismatchError for another
        client's. Raises OSError for a file that cannot be read.
        """
        number = None if client is None else as_unsigned(client, "client")
        self._add(
            batch,
            lambda parsed: self._core.add_parsed(parsed, number),
            lambda frame: self._core.add_bytes(frame, number),
        )
