"""From updates to batches to a total, in every scheme: nothing here holds a secret of others, or opens anything."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import (
    Buffer,
    Update,
    as_frame,
    as_pieces,
    as_real,
    as_threads,
    as_unsigned,
    frame_buffer,
    mapped_frame,
)
from shieldfl.encryption.enrolment import ClientKey, EnrolledPublicKey
from shieldfl.encryption.parameters import SchemePublicKey, checked_key
from shieldfl.errors import ParameterError, PrecisionWarning, RangeError
from shieldfl.masks import Mask, bits_of
from shieldfl.stateful import Uncopied

Vector = NDArray[np.float32] | NDArray[np.float64]


class Positions(Protocol):
    """Which of an update's ``size`` values a sum is encrypted in, and in which order."""

    @property
    def mask(self) -> Mask: ...
    @property
    def size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def id(self) -> bytes:
        """16 bytes that identify size, positions and their order in every frame."""

    def to_bytes(self) -> bytes: ...
    def gather(self, dense: Any) -> NDArray[Any]: ...
    def scatter(self, sums: Any) -> NDArray[Any]:
        """Return a vector of ``size`` values with ``count`` sums where they belong, zero elsewhere."""


class UnionMask:
    """All clients encrypt the union of their masks, in ascending order."""

    def __init__(self, mask: Mask) -> None:
        self.mask, self.size = mask, mask.size
        self.to_bytes, self.gather = mask.to_bytes, mask.gather

    @property
    def count(self) -> int:
        return self.mask.count

    @property
    def id(self) -> bytes:
        return _core.mask_id(self.mask.bits)

    def scatter(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.count == self.size:
            return sums
        dense = np.zeros(self.size)
        self.mask.scatter(sums, dense)
        return dense


def purpose_id(purpose: str) -> bytes:
    """Return 16 bytes that stand for what is encrypted, such as ``"update"``, in every frame of those who enrol."""
    return hashlib.blake2b(purpose.encode(), digest_size=16).digest()


def _bound_to(public_key: SchemePublicKey, purpose: str, part: int) -> tuple[Any, ...]:
    number = as_unsigned(part, "part", 32)
    if isinstance(public_key, EnrolledPublicKey):
        return purpose_id(purpose), number
    if number or purpose != "update":
        raise ParameterError(
            "frames say what they are, and which part of a model, only where clients enrol: leave purpose and part out"
        )
    return ()


class CoreCiphertext(Protocol):
    """A checked frame of a batch or a total, as the core has it."""

    parameter_id: bytes
    key_id: bytes
    mask_id: bytes
    facts: dict[str, Any]
    round: int
    count: int
    weighted: bool
    clients: int
    ciphertexts: int
    total_weight: int
    """Where weights are integers."""
    purpose: bytes
    """Where clients enrol, as part and participants: what :func:`purpose_id` gave."""
    part: int
    participants: list[tuple[int, bytes]]


class _Ciphertext:
    """A frame whose every field has been checked, or that was made here."""

    _read: ClassVar[Any]
    """Checks a frame of this kind, on so many threads; 0 means all cores."""
    _parsed: CoreCiphertext | None = None

    def __init__(self, frame: bytes) -> None:
        self._frame = frame

    def to_bytes(self) -> bytes:
        """Return the frame that travels."""
        return self._frame

    @property
    def parsed(self) -> CoreCiphertext:
        """The core's checked view of the frame."""
        return self.parse()

    def parse(self, threads: int | None = None) -> CoreCiphertext:
        """Check the frame unless that was done before, on ``threads`` threads. Raises WireFormatError."""
        if self._parsed is None:
            self._parsed = type(self)._read(self._frame, as_threads(threads))
        return self._parsed

    @property
    def nbytes(self) -> int:
        """The length of the frame in bytes."""
        return len(self._frame)

    @property
    def round(self) -> int:
        """The round that it belongs to."""
        return self.parsed.round

    @property
    def count(self) -> int:
        """The number of values."""
        return self.parsed.count

    @property
    def weighted(self) -> bool:
        """Whether an encrypted weight travels beside the values."""
        return self.parsed.weighted

    @property
    def clients(self) -> int:
        """The number of clients whose updates are in it."""
        return self.parsed.clients

    def is_of(self, positions: Mask | Positions) -> bool:
        """Say whether its values belong to these positions, in their order."""
        if isinstance(positions, Mask):
            positions = UnionMask(positions)
        return self.parsed.mask_id == positions.id and self.count == positions.count

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return type(self).from_bytes, (self._frame,)

    @classmethod
    def from_bytes(cls, frame: Buffer, threads: int | None = None) -> Self:
        """Read a frame; everything is checked that can be without the public key. Raises WireFormatError.

        ``threads`` : None for as many as the work is worth. A frame that is only to be added needs none of this: pass
        its bytes to ``Aggregator.add``, which checks as it adds.
        """
        ciphertext = cls(bytes(as_frame(frame)))
        ciphertext.parse(threads)
        return ciphertext

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nbytes:,} bytes)"


class SchemeBatch(_Ciphertext):
    """One client's encrypted update. Reading one checks every field and every residue."""

    def __init__(self, frame: bytes, clipped: int | None = None, underflowed: int | None = None) -> None:
        super().__init__(frame)
        self.clipped = clipped
        """How many values were saturated; None for a batch that was read, since it does not travel."""
        self.underflowed = underflowed
        """How many values were not zero and, times the weight, rounded to zero; None for a batch that was read."""

    @property
    def client(self) -> int:
        """Where clients enrol, the number of the one whose key it is under; whoever carries it cannot change that."""
        ((client, _),) = self.parsed.participants
        return client


class SchemeTotal(_Ciphertext):
    """The encrypted sum of a round, for whoever opens it. Reading one checks every field and every residue.

    Where clients enrol it has the list of those in it.
    """

    _core_request: ClassVar[Any] = None
    """The core's class of what asks for the key of one, where clients enrol; then a total says who is in it."""
    _digest: bytes | None = None

    @property
    def total_weight(self) -> int:
        """The sum of the weights that the aggregator gave: ``clients`` where it gave none."""
        return self.clients

    @property
    def participants(self) -> list[tuple[int, bytes]]:
        """Where clients enrol, client's number and 16 bytes of the frame's id, by client in ascending order."""
        return self.parsed.participants

    @property
    def named_clients(self) -> tuple[int, ...]:
        """The numbers of those who are in it, where clients enrol; empty elsewhere, where nothing says who is."""
        return tuple(client for client, _ in self.participants) if self._core_request else ()

    def is_for(self, purpose: str) -> bool:
        """Say whether its values were encrypted for this purpose; True where frames do not say what for."""
        return not self._core_request or self.parsed.purpose == purpose_id(purpose)

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

    def request(self, beside: bytes = b"") -> bytes:
        """Return the frame that asks a key authority for the key of this total, where clients enrol: list and digest.

        ``beside`` is a digest, 32 bytes, of what travels with the total: the answer is bound to that too.
        """
        if self._core_request is None:
            raise ParameterError(
                "such a total is opened by the holder of the secret key, who is sent the total"
            )
        return bytes(self._core_request(self.parsed, self.digest(beside)).to_bytes())


_BESIDE = b"shieldfl beside1"
_POSITION = re.compile(r"the value at position (\d+) ")

_TO_HOLD = "raise value_bits, lower fraction_bits, or pass clip=True"
"""What the core says to do about a value that is too large."""
_TO_KEEP = (
    "Take the scale from Parameters.fit(sample_update, weights=...), or raise fraction_bits and value_bits"
)
_BY_SETTINGS = {
    _TO_HOLD: "lower the learning rate, or of the method's settings raise value_bits or lower fraction_bits",
    _TO_KEEP: "Raise the method's settings fraction_bits and value_bits by as many",
}
MOST_LOST = 0.1
"""The share of the values that are not zero which may be lost, rounded to zero or clipped, without a warning."""

Encrypted = tuple[bytes, tuple[int, int, int]]
"""A frame, and how many values were not zero, rounded to zero, and were saturated."""


class Encryptor(Uncopied):
    """Encrypts masked updates under a public key, or, where clients enrol, under a client's own key.

    Safe to use from several threads. Where clients enrol, the key goes on to the round of each frame once the frame is
    made: a round before that is refused (PolicyError). Never send two frames of one round, purpose and part, nor the
    same update again once it was in a sum that was opened: the difference of two sums would be the update.

    Parameters
    ----------
    key : a PublicKey; where clients enrol, this client's ClientKey. It says the scheme.
    threads : None for as many as the work is worth.
    purpose : what is encrypted; where clients enrol, values for different purposes are never summed.
    part : which part of the model, where clients enrol and it is sent in parts; below 2**32.
    """

    _keys: ClassVar[type[SchemePublicKey]]
    """The scheme's public keys: it takes these, or clients' keys under them, and no others."""
    _warned_round: int | None = None
    _with: tuple[Any, ...] = ()
    """What the core's encryptor takes besides in this scheme."""
    speaks_of_settings = False
    """Whether errors and warnings say what to do by settings of a method, and not by arguments of its own."""
    _why_uncopied = "may hold secrets, and is neither copied nor pickled: make another from its key"

    def __init__(
        self,
        key: SchemePublicKey | ClientKey,
        threads: int | None = None,
        *,
        purpose: str = "update",
        part: int = 0,
    ) -> None:
        if isinstance(key, EnrolledPublicKey):
            raise ParameterError(
                "a session's public_key encrypts nothing: pass the ClientKey of one who enrolled"
            )
        self._client_key = key if isinstance(key, ClientKey) else None
        if isinstance(key, ClientKey):
            shared, key = len(key._cores), key.public_key
            if key.identity is not None and len(key.identity.members) != shared:
                raise ParameterError(
                    f"the session has {len(key.identity.members)} authorities, and the key is shared with "
                    f"{shared}: make it by requests(), of which each authority gets one"
                )
        self.public_key: Any = checked_key(key, self._keys)
        self._threads = as_threads(threads)
        self._bound = _bound_to(self.public_key, purpose, part)
        self._core = self.public_key._core_encryptor(self.public_key._core)

    def encrypt(
        self,
        update: Update | Sequence[Update],
        mask: Mask | None = None,
        weight: float | None = None,
        round: int = 0,
        *,
        clip: bool = False,
    ) -> SchemeBatch:
        """Encrypt the values at the mask's positions, in one pass and without a copy of the update.

        Parameters
        ----------
        update : float32 or float64 vector, contiguous: NumPy or CPU torch; or a list of such vectors, of one dtype,
            that are the update one after the other. ArrayTypeError otherwise.
        mask : which positions; None for all. ParameterError when its size is not that of the update.
        weight : scales the update and travels encrypted beside it, so that the mean is right whichever clients
            take part. Positive, in steps of ``weight_step``: divide by the largest that any client has. A small
            weight makes small values, for which the scale has to be fine enough: see ``Parameters.fit``.
        round : the round that the batch is good for.
        clip : saturate values that are out of range, and count them in ``clipped``, instead of refusing them.

        Raises RangeError that names the first position whose value is NaN, infinite or out of range. Values that
        round to zero are counted in ``underflowed``; a PrecisionWarning comes, once a round, when these are more
        than a tenth of those that are not zero.
        """
        pieces, number = as_pieces(update), as_unsigned(round, "round")
        bits = None if mask is None else bits_of(mask)
        factor = None if weight is None else as_real(weight, "weight")
        own = () if self._client_key is None else (self._client_key._cores,)
        try:
            encrypted: Encrypted = self._core.encrypt(
                *own, pieces, bits, factor, number, *self._bound, bool(clip), self._threads, *self._with
            )
        except RangeError as error:
            raise self._located(error, sum(piece.size for piece in pieces)) from None
        if self._client_key is not None:
            self._client_key._go_on_to(number)
        return self._batch(encrypted, number)

    def _advice(self, by_arguments: str) -> str:
        return _BY_SETTINGS[by_arguments] if self.speaks_of_settings else by_arguments

    def _located(self, error: RangeError, size: int) -> RangeError:
        """Return an error of the core, whose message is all that it hands over, with the value's position."""
        if found := _POSITION.match(str(error)):
            error = RangeError(str(error).replace(_TO_HOLD, self._advice(_TO_HOLD)))
            error.position, error.size = int(found[1]), size
        return error

    def _batch(self, encrypted: Encrypted, round: int) -> SchemeBatch:
        """Make the batch; warn whoever called the caller of values that are lost."""
        frame, (nonzero, underflowed, clipped) = encrypted
        if underflowed > MOST_LOST * nonzero and self._warned_round != round:
            self._warned_round = round
            step = f"2^-{self.public_key.parameters.fraction_bits}"
            warnings.warn(
                f"{underflowed:,} of the {nonzero:,} values that are not zero round to zero: times the weight, if "
                f"any, they are below half of the step {step}, and the sum loses them. {self._advice(_TO_KEEP)}",
                PrecisionWarning,
                stacklevel=3,
            )
        batch: SchemeBatch = self.public_key._batch_class(frame, clipped, underflowed)
        return batch


FrameSource = Buffer | mmap.mmap | os.PathLike[str]
"""Bytes of a frame, or the file that holds them."""


class Aggregator:
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions),
    KeyMismatchError (another key or session), PolicyError (another round, purpose or part), DuplicateFrameError (also
    for a second frame of a client that enrolled), CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under, or that of their session. It says the scheme.
    threads : None for as many as the work is worth.
    round : the round whose batches are accepted.
    positions : the mask that the clients encrypt under; ``Mask.full(size)`` where they encrypt everything.
    weighted : whether an encrypted weight travels beside the values.
    purpose, part : as for ``Encryptor``.

    What is None of ``round``, ``positions`` and ``weighted``, the first batch decides. Give what was agreed on: one
    client that is first, and wrong, otherwise keeps all others out.
    """

    _keys: ClassVar[type[SchemePublicKey]]

    def __init__(
        self,
        public_key: SchemePublicKey,
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
        self._make_core(
            checked_key(public_key, self._keys),
            *_bound_to(public_key, purpose, part),
            None if round is None else as_unsigned(round, "round"),
            None if positions is None else bits_of(positions),
            weighted,
            as_threads(threads),
        )

    def _make_core(self, public_key: SchemePublicKey, *settings: Any) -> None:
        self._public_key, self._enrols = public_key, isinstance(public_key, EnrolledPublicKey)
        self._core = public_key._core_aggregator(public_key._core, *settings)

    def add(self, batch: SchemeBatch | FrameSource, client: int | None = None) -> None:
        """Add one client's batch: an object, the bytes of one, or the file that holds them.

        Bytes are checked and added in one pass and without a copy; files are mapped. They must not change meanwhile.
        ``client`` is the number of who sent it, where that is known: where clients enrol, KeyMismatchError for
        another client's; elsewhere frames do not say whose they are. Raises OSError for a file that cannot be read.
        """
        number = None if client is None else as_unsigned(client, "client")
        if number is not None and not self._enrols:
            raise ParameterError("frames of this scheme do not say whose they are: leave client out")
        more = (number,) if self._enrols else ()
        self._add(batch, self._core.add_parsed, self._core.add_bytes, *more)

    def add_total(self, total: SchemeTotal | FrameSource) -> None:
        """Add the total of another aggregator, which stands for all clients that it names.

        Take totals from aggregators alone, over a channel that tells who is who: a client that could pass one
        off would count as many. Raises as ``add`` does, DuplicateFrameError if any of its batches is in the sum.
        """
        self._add(total, self._core.add_parsed_total, self._core.add_total_bytes)

    def _add(
        self,
        source: _Ciphertext | FrameSource,
        add_parsed: Callable[..., None],
        add_bytes: Callable[..., None],
        *more: Any,
    ) -> None:
        if isinstance(source, _Ciphertext):
            # What another scheme has read is bytes here, which the core then refuses by their kind.
            if isinstance(source._parsed, self._public_key._core_ciphertext):
                add_parsed(source._parsed, *more)
            else:
                add_bytes(source.to_bytes(), *more)
        elif isinstance(source, os.PathLike):
            with mapped_frame(source) as frame:
                add_bytes(frame, *more)
        else:
            add_bytes(frame_buffer(source), *more)

    def total(self) -> SchemeTotal:
        """Return the sum so far. Raises ParameterError before the first batch."""
        total: SchemeTotal = self._public_key._total_class(self._core.total())
        return total

    @property
    def clients(self) -> int:
        """How many batches are in the sum."""
        return int(self._core.clients)

    @property
    def round(self) -> int | None:
        """The round that is summed; None before the first batch unless it was given."""
        number: int | None = self._core.round
        return number
