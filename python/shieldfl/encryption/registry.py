"""What a scheme is to the rest of the package, and its verbs: from updates to batches to a total.

Nothing here holds others' secrets, or opens anything; and no other module asks which scheme it has.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import (
    Buffer,
    Update,
    Vector,
    as_frame,
    as_pieces,
    as_real,
    as_threads,
    as_unsigned,
    frame_buffer,
    mapped_frame,
)
from shieldfl.encryption.enrolment import ClientKey, EnrolledPublicKey
from shieldfl.encryption.parameters import SchemePublicKey, SumNeeds, checked_key
from shieldfl.errors import ParameterError, PolicyError, PrecisionWarning, RangeError
from shieldfl.masks import Mask, Positions, bits_of
from shieldfl.stateful import Uncopied


def purpose_id(purpose: str) -> bytes:
    """Return the 16 bytes of a purpose, such as ``"update"``, in every frame of clients that enrol."""
    return hashlib.blake2b(purpose.encode(), digest_size=16).digest()


def _bound_to(public_key: SchemePublicKey, purpose: str, part: int) -> tuple[Any, ...]:
    number = as_unsigned(part, "part", 32)
    if isinstance(public_key, EnrolledPublicKey):
        return purpose_id(purpose), number
    if number or purpose != "update":
        raise ParameterError(
            "frames say what they are, and which part of a model, only where clients enrol: leave purpose "
            "and part out"
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
    """Sum of the clients' weights; only in schemes with integer weights."""
    purpose: bytes
    """Result of :func:`purpose_id`; it exists, as do ``part`` and ``participants``, only if clients enrol."""
    part: int
    participants: list[tuple[int, bytes]]


_NAMELESS = "frames of this scheme do not say whose they are"


class _Ciphertext:
    """A frame whose every field has been checked, or that was made here."""

    _read: ClassVar[Any]
    """Checks a frame of this kind on a number of threads; 0 leaves the number to the core."""
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

    @property
    def _named(self) -> list[tuple[int, bytes]]:
        try:
            return self.parsed.participants
        except AttributeError:
            raise AttributeError(_NAMELESS) from None

    def is_of(self, positions: Positions) -> bool:
        """Say whether its values belong to these positions, in their order."""
        return self.parsed.mask_id == positions.id and self.count == positions.count

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return type(self).from_bytes, (self._frame,)

    @classmethod
    def from_bytes(cls, frame: Buffer, threads: int | None = None) -> Self:
        """Read a frame; everything is checked that can be without the public key. Raises WireFormatError.

        ``threads`` is None for as many as the work is worth. A frame that is only to be added need not be
        read: pass its bytes to ``Aggregator.add``, which checks as it adds.
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
        """Number of saturated values; None for a batch that was read, since it does not travel."""
        self.underflowed = underflowed
        """Number of nonzero values that, times the weight, round to zero; None for a batch that was read."""

    @property
    def client(self) -> int:
        """Number of the client whose key it is under, if clients enrol.

        A carrier of the frame cannot change that.
        """
        ((client, _),) = self._named
        return client


class SchemeTotal(_Ciphertext):
    """The encrypted sum of a round, for its opener. Reading one checks every field and every residue.

    If clients enrol, it lists those in it.
    """

    _core_request: ClassVar[Any] = None
    """The core's class of the request for a total's key, if clients enrol: a total then says who is in it."""
    _digest: bytes | None = None

    @property
    def total_weight(self) -> int:
        """The sum of the weights that the aggregator gave: ``clients`` where it gave none."""
        return self.clients

    @property
    def participants(self) -> list[tuple[int, bytes]]:
        """Number of each client in it, ascending, with 16 bytes of its frame's id, if clients enrol."""
        return self._named

    @property
    def named_clients(self) -> tuple[int, ...]:
        """Numbers of the clients in it, if clients enrol; otherwise empty."""
        return tuple(client for client, _ in self.participants) if self._core_request else ()

    def is_for(self, purpose: str) -> bool:
        """Say whether its values were encrypted for this purpose; True where frames do not say what for."""
        return not self._core_request or self.parsed.purpose == purpose_id(purpose)

    def digest(self, beside: bytes = b"", threads: int | None = None) -> bytes:
        """Return what binds an answer to the total, 32 bytes: BLAKE2b of its frame and of ``beside``.

        docs/reference/wire-format.md defines it. It does not depend on ``threads``, None for as many as the
        work is worth. The frame is hashed once: an opener needs this for its request, and for the core.
        """
        if self._digest is None:
            self._digest = _core.total_digest(self._frame, as_threads(threads))
        if not beside:
            return self._digest
        return hashlib.blake2b(self._digest + beside, digest_size=32, person=_BESIDE).digest()

    def request(self, beside: bytes = b"") -> bytes:
        """Return the frame that asks an authority for the total's key, where clients enrol: list and digest.

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
"""The core's advice for a value that is too large."""
_TO_KEEP = (
    "Take the scale from Parameters.fit(sample_update, weights=...), or raise fraction_bits and value_bits"
)
_BY_SETTINGS = {
    _TO_HOLD: "lower the learning rate, or of the method's settings raise value_bits or lower fraction_bits",
    _TO_KEEP: "Raise the method's settings fraction_bits and value_bits by as many",
}
MOST_LOST = 0.1
"""Share of nonzero values that may be lost without a warning, rounded to zero or clipped."""

Encrypted = tuple[bytes, tuple[int, int, int]]
"""A frame, and the numbers of values that were not zero, that rounded to zero, and that were saturated."""


class Encryptor(Uncopied):
    """Encrypts masked updates under a public key, or, where clients enrol, under a client's own key.

    Safe to use from several threads. If clients enrol, the key advances to the round of each frame once the
    frame is made: an earlier round is refused (PolicyError). Never send two frames of one round, purpose and
    part, nor the same update again once it was in a sum that was opened: the difference of two sums would be
    the update.

    Parameters
    ----------
    key : a PublicKey; where clients enrol, this client's ClientKey. It says the scheme.
    threads : None for as many as the work is worth.
    purpose : what is encrypted; where clients enrol, values for different purposes are never summed.
    part : which part of the model, where clients enrol and it is sent in parts; below 2**32.
    """

    _keys: ClassVar[type[SchemePublicKey]]
    """Class of the scheme's public keys: the encryptor takes only these, or clients' keys under them."""
    _warned_round: int | None = None
    _with: tuple[Any, ...] = ()
    """Further arguments of the core's encryptor in this scheme."""
    speaks_of_settings = False
    """Whether errors and warnings give advice by settings of a method instead of arguments of this class."""
    _why_uncopied = "may hold secrets, and is neither copied nor pickled: make another from its key"

    def __init__(
        self,
        key: SchemePublicKey | ClientKey,
        threads: int | None = None,
        *,
        purpose: str = "update",
        part: int = 0,
    ) -> None:
        own = ClientKey if issubclass(self._keys, EnrolledPublicKey) else None
        self.public_key = checked_key(key, self._keys, own)
        self._client_key = client = key if isinstance(key, ClientKey) else None
        if client and (of := self.public_key.identity) and len(of.members) != len(client._cores):
            raise ParameterError(
                f"the session has {len(of.members)} authorities, and the key is shared with "
                f"{len(client._cores)}: make it by requests(), of which each authority gets one"
            )
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
        update : float32 or float64 vector, contiguous: NumPy or CPU torch; or a list of such vectors, of one
            dtype, that are the update one after the other. ArrayTypeError otherwise.
        mask : which positions; None for all. ParameterError when its size is not that of the update.
        weight : scales the update and travels encrypted beside it, so that the mean is right whichever
            clients take part. Positive, in steps of ``weight_step``: divide by the largest that any client
            has. A small weight makes small values, for which the scale has to be fine enough: see
            ``Parameters.fit``.
        round : the round that the batch is good for.
        clip : saturate values that are out of range, and count them in ``clipped``, instead of refusing them.

        Raises RangeError that names the first position whose value is NaN, infinite or out of range. Values
        that round to zero are counted in ``underflowed``; a PrecisionWarning comes, once a round, when these
        are more than a tenth of those that are not zero.
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
        """Make the batch; warn the caller's caller of lost values."""
        frame, (nonzero, underflowed, clipped) = encrypted
        if underflowed > MOST_LOST * nonzero and self._warned_round != round:
            self._warned_round = round
            step = f"2^-{self.public_key.parameters.fraction_bits}"
            warnings.warn(
                f"{underflowed:,} of the {nonzero:,} values that are not zero round to zero: times the "
                f"weight, if any, they are below half of the step {step}, and the sum loses them. "
                f"{self._advice(_TO_KEEP)}",
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
    KeyMismatchError (another key or session), PolicyError (another round, purpose or part),
    DuplicateFrameError (also for a second frame of a client that enrolled), CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under, or that of their session. It says the scheme.
    threads : None for as many as the work is worth.
    round : the round whose batches are accepted.
    positions : the mask that the clients encrypt under; ``Mask.full(size)`` where they encrypt everything.
    weighted : whether an encrypted weight travels beside the values.
    purpose, part : as for ``Encryptor``.

    What is None of ``round``, ``positions`` and ``weighted``, the first batch decides. Give what was agreed
    on: one client that is first, and wrong, otherwise keeps all others out.
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

        Bytes are checked and added in one pass and without a copy; files are mapped. They must not change
        meanwhile. ``client`` is the number of who sent it, where that is known: where clients enrol,
        KeyMismatchError for another client's; elsewhere frames do not say whose they are. Raises OSError for
        a file that cannot be read.
        """
        number = None if client is None else as_unsigned(client, "client")
        if number is not None and not self._enrols:
            raise ParameterError(f"{_NAMELESS}: leave client out")
        more = (number,) if self._enrols else ()
        self._add(batch, self._core.add_parsed, self._core.add_bytes, *more)

    def add_total(self, total: SchemeTotal | FrameSource) -> None:
        """Add the total of another aggregator, which stands for all clients that it names.

        Take totals from aggregators alone, over a channel that tells who is who: a client that could pass one
        off would count as many. Raises as ``add`` does, DuplicateFrameError if any of its batches is in the
        sum.
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


POOLED = "-pooled"
"""End of the name of a calibration whose randomisers were made while the model trained."""

KeyBits = Literal[2048, 3072, 4096]
"""Sizes of keys in bits, if a scheme has a choice of them."""

DEFAULT_ENCRYPTION = "kahe"
"""Encryption of methods that ask for no particular one."""

DEFAULT_PUBLIC_KEY_ENCRYPTION = "ckks"
"""Encryption, beside updates under a public key, of values that have to be summed with encrypted weights."""

DEFAULT_KEY_BITS: KeyBits = 3072
"""Default size of keys in bits: 128 bits of security."""

Fact = bool | int | float | str
"""Type of what a frame may tell of itself."""


class Scheme:
    """An encryption scheme, asked for instead of its name: its module makes one object of a subclass."""

    long_answers: ClassVar[bool] = False
    """Whether answers are as long as totals, if clients enrol: authorities then keep those of fewer
    rounds."""
    encryptions: ClassVar[tuple[str, ...]]
    """Names by which settings choose the scheme and its packing."""
    key_sizes: ClassVar[tuple[int, ...]] = ()
    """Allowed values of ``key_bits``; empty for a scheme without that choice."""
    keys_last: ClassVar[bool] = True
    """Whether one key pair serves all rounds; otherwise each round has its own."""
    adds_clear_values: ClassVar[bool] = False
    """Whether plain numbers can be added to ciphertexts: clients then encrypt their mask, not the union."""
    integer_weights: ClassVar[bool] = False
    """Whether the aggregator multiplies by weights; otherwise weights travel encrypted beside the values."""
    is_slow: ClassVar[bool] = False
    """Whether encryptors make randomisers ahead: ``precompute``, ``wait`` and ``ciphertexts_for``.

    Calibration then measures a number of ciphertexts, since a whole update would take too long.
    """
    positions_part: ClassVar[str] = "union"
    """Name of the message part that says which positions are encrypted."""

    def __init__(self, public_key: type[SchemePublicKey], encryptor: Any, aggregator: Any) -> None:
        self.PublicKey: Any = public_key
        self.Encryptor, self.Aggregator = encryptor, aggregator
        self.name = public_key._scheme
        self.Parameters: Any = public_key._parameters_class
        self.Total: Any = public_key._total_class
        self.enrols = issubclass(public_key, EnrolledPublicKey)
        """Whether each client shares a key with the key authority, which then answers lists of clients."""
        self.ClientKey: Any = ClientKey if self.enrols else None
        self.has_sum_bits = "sum_bits" in self.Parameters._SETTINGS
        """Whether ``Parameters`` take ``sum_bits``: a sum may then have fewer bits than any sum could
        need."""

    @property
    def calibrations(self) -> tuple[str, ...]:
        """Names under which the scheme is calibrated.

        Those with ``-pooled`` count only the work that is left once randomisers are there.
        """
        variants = ("", POOLED) if self.is_slow else ("",)
        return tuple(name + variant for name in self.encryptions for variant in variants)

    def sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        """Return a sum key's unit, and the count of its numbers, as facts for readers."""
        raise NotImplementedError

    def opened_coefficients(self, total: SchemeTotal) -> int:
        return total.count + total.weighted

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return the parameters to measure an encryption with: those that take a client the least work."""
        return self.Parameters.plan(goal="speed")

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return parameters for such sums. Raises ParameterError for needs that it cannot meet.

        A scheme with rings takes the one that needs the fewest bytes, or the default one if the count is
        unknown.

        Clients divide their weights by the largest, which makes values smaller. While there is room, values
        get as many more bits behind the point as make up for that on average. Each of K clients is off by
        half a step at most, and the mean by half a step times K / sum(weights): with weights divided by the
        largest that is most_weight / mean_weight.
        """
        make, count = self.Parameters, self._planned_count(needs)
        settings: dict[str, Any] = {"max_clients": needs.clients}
        if count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = count + 1 if needs.most_weight > 1 else max(count, 1)
            make, settings = self.Parameters.plan, settings | {"goal": "size", "count": fields}
        if self.has_sum_bits:
            settings["sum_bits"] = needs.sum_bits
        ratio = 1.0 if needs.mean_weight is None else max(needs.most_weight / needs.mean_weight, 1.0)
        more = math.ceil(math.log2(ratio))
        while True:
            try:
                bits = {"value_bits": needs.value_bits + more, "fraction_bits": needs.fraction_bits + more}
                return make(**settings, **bits)
            except ParameterError:
                if more == 0:
                    raise
                more -= 1

    def _planned_count(self, needs: SumNeeds) -> int | None:
        """Return how many values the parameters are planned for; None for the default ones."""
        return needs.count

    def positions_of(self, masks: list[Mask], threads: int | None) -> Positions:
        """Return the positions that a sum over clients with these masks encrypts.

        Raises ParameterError for none.
        """
        union = masks[0]
        for mask in masks[1:]:
            union = union | mask
        return union

    def read_positions(self, frame: Buffer, size: int) -> Positions:
        """Read positions of an update of this size. Raises WireFormatError."""
        return Mask.from_bytes(frame, size)

    def encrypt(
        self,
        encryptor: Any,
        update: Vector,
        own: Mask,
        positions: Positions,
        weight: float | None,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt an update (N,) for a sum over these positions.

        Return the frame and which positions it covers.

        ``own`` are those that the client protects. Raises PolicyError or ParameterError where the sum leaves
        some of them out, RangeError.
        """
        if own != positions.mask and (own - positions.mask).count:
            raise PolicyError("the union leaves out positions that this client protects: nothing was sent")
        return encryptor.encrypt(update, positions.mask, weight, round_number).to_bytes(), positions.mask

    def encryptor(self, key: Any, threads: int | None, purpose: str) -> Any:
        """Return an encryptor for a client, under a public key or, if clients enrol, its ``ClientKey``.

        ``purpose`` is what is encrypted, such as ``"update"``; if clients enrol, it is bound to the
        ciphertexts.
        """
        return self.Encryptor(key, threads, **({"purpose": purpose} if self.enrols else {}))

    def aggregator(
        self,
        key: Any,
        threads: int | None,
        round_number: int,
        positions: Positions,
        *,
        weighted: bool,
        purpose: str,
    ) -> Any:
        """Return an aggregator of batches of these positions and, if clients enrol, this purpose alone.

        ``weighted`` says whether they have encrypted weights.
        """
        bound = {"purpose": purpose} if self.enrols else {}
        return self.Aggregator(
            key, threads, round=round_number, positions=positions.mask, weighted=weighted, **bound
        )

    def add(
        self, aggregator: Any, client: int, frame: Buffer, weight: int, clear: NDArray[np.float32] | None
    ) -> None:
        """Add the frame that this client sent.

        ``weight`` is the client's weight, ``clear`` what it sent in the clear, in the order of the positions;
        a scheme uses them as its facts say. If clients enrol, raises KeyMismatchError for another client's
        frame.
        """
        aggregator.add(frame, *((client,) if self.enrols else ()))


REGISTRY: dict[str, Scheme] = {}
"""Schemes by name. Importing the package imports each scheme's module, which adds its scheme."""


def scheme_of(one: Any) -> Scheme:
    """Return the scheme of parameters, a public or a client's key; ParameterError for what is neither."""
    own = one.public_key if isinstance(one, ClientKey) else one
    for scheme in reversed(REGISTRY.values()):  # one that is added may derive from another's classes
        if isinstance(own, (scheme.Parameters, scheme.PublicKey)):
            return scheme
    names = " or ".join(f"{name}.Parameters" for name in REGISTRY)
    raise ParameterError(f"params must be {names}, not {type(one).__name__}")


def scheme_named(encryption: str) -> Scheme:
    """Return the scheme that settings call by this name. Raises ParameterError for an unknown one."""
    for scheme in REGISTRY.values():
        if encryption in scheme.calibrations:
            return scheme
    raise ParameterError(f"encryption must be one of {', '.join(encryptions())}")


def encryptions() -> tuple[str, ...]:
    """Return the names by which settings choose a scheme and its packing."""
    return tuple(name for scheme in REGISTRY.values() for name in scheme.encryptions)


def weighing_encryptions() -> tuple[str, ...]:
    """Return those of :func:`encryptions` in which a weight travels encrypted beside the values."""
    return tuple(name for one in REGISTRY.values() if not one.integer_weights for name in one.encryptions)


def calibrations() -> tuple[str, ...]:
    """Return the names under which schemes are calibrated: those of settings, and those with a pool."""
    return tuple(name for scheme in REGISTRY.values() for name in scheme.calibrations)
