"""What an encryption scheme is to the rest of the package: names, facts and verbs, stated once in its own folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_unsigned
from shieldfl.encryption.encryption import Aggregator, CoreCiphertext, Encryptor, Positions, UnionMask, Vector
from shieldfl.encryption.keys import ClientKey, EnrolledPublicKey, SchemePublicKey
from shieldfl.encryption.parameters import SchemeParameters, SumNeeds, weighted_parameters
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask

POOLED = "-pooled"
"""Behind the name of a calibration with randomisers that were made while the model trained."""

KeyBits = Literal[2048, 3072, 4096]
"""Sizes of keys, where a scheme has a choice of them."""

Fact = bool | int | float | str


@dataclass(frozen=True)
class FrameBody:
    """What the body of a frame states of itself, by name: never a value, a position or a key."""

    counts: dict[str, Fact] = field(default_factory=dict)
    """Round, values, clients and the like."""
    parameters: dict[str, Fact] = field(default_factory=dict)
    """The encryption parameters; empty where the kind has none."""
    description: str = ""
    """The parameters and what follows from them, in words."""


class Scheme:
    """An encryption scheme: what others ask for instead of its name.

    A scheme is added by a folder with a subclass of this one, and a line in :mod:`shieldfl.encryption.registry`.
    """

    Encryptor: ClassVar[Any] = Encryptor
    Aggregator: ClassVar[Any] = Aggregator
    opening: ClassVar[str] = "shieldfl.encryption.sum_keys"
    """The module that the key authority alone imports: ``Decryptor``, ``KeyPair`` (the core's public key) and
    ``opened_coefficients(total)``, what a total counts for in the budget of the key; ``sum_key`` where clients
    enrol."""

    rounds_answers_are_kept: ClassVar[int] = 2
    """For how many of the newest rounds a key authority keeps what it answered, where clients enrol."""

    encryptions: ClassVar[tuple[str, ...]]
    """The names by which settings choose the scheme and its packing."""
    key_sizes: ClassVar[tuple[int, ...]] = ()
    """What ``key_bits`` may be; empty for a scheme that has no such choice."""
    keys_last: ClassVar[bool]
    """Whether one pair serves all rounds; otherwise each round has its own."""
    adds_clear_values: ClassVar[bool] = False
    """Whether plain numbers are added to ciphertexts, so that each client encrypts its own mask and not the union."""
    integer_weights: ClassVar[bool] = False
    """Whether the aggregator multiplies by weights; otherwise they travel encrypted beside the values."""
    has_pool: ClassVar[bool] = False
    """Whether encryptors make randomisers ahead: ``precompute``, ``wait`` and ``ciphertexts_for``."""
    is_slow: ClassVar[bool] = False
    """Whether a number of ciphertexts is measured in calibration, since a whole update would take too long."""
    positions_part: ClassVar[str] = "union"
    """The name of the message part that says which positions are encrypted."""

    def __init__(self, public_key: type[SchemePublicKey]) -> None:
        """Make the scheme of these keys, which say what else it has."""
        self.PublicKey: Any = public_key
        self.name = public_key._scheme
        """Of its folder, and in the kinds of its frames."""
        self.Parameters: Any = public_key._parameters_class
        self.Total: Any = public_key._total_class
        self.enrols = issubclass(public_key, EnrolledPublicKey)
        """Whether each client shares a key of its own with the key authority, which then answers lists of clients."""
        self.ClientKey: Any = ClientKey if self.enrols else None

    @property
    def calibrations(self) -> tuple[str, ...]:
        """The names under which it is calibrated; ``-pooled`` counts only what is left once randomisers are there."""
        variants = ("", POOLED) if self.has_pool else ("",)
        return tuple(name + variant for name in self.encryptions for variant in variants)

    @property
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """What reads each kind of its frames, by the names that the core gives them: of answers, the head alone."""
        ciphertext = self.PublicKey._core_ciphertext
        readers = {
            "public key": self._key_body,
            "batch": lambda frame: self._ciphertext_body(ciphertext.batch(frame)),
            "total": lambda frame: self._ciphertext_body(ciphertext.total(frame)),
        }
        if self.enrols:
            readers |= {"sum request": self._request_body, "sum key": self._sum_key_body}
        return {f"{self.name} {kind}": reader for kind, reader in readers.items()}

    def _key_body(self, frame: bytes) -> FrameBody:
        key = self.PublicKey.from_bytes(frame)
        counts: dict[str, Fact] = {}
        if self.enrols:
            core = key._core
            ids = {"authority": core.authority.hex(), "manifest digest": core.manifest.hex()}
            counts = {"epoch": core.epoch, **ids}
        parameters: SchemeParameters[Any, Any] = key.parameters
        return FrameBody(counts, self._named(parameters._facts), parameters.describe())

    def _ciphertext_body(self, ciphertext: CoreCiphertext, **more: Fact) -> FrameBody:
        counts: dict[str, Fact] = {
            "round": ciphertext.round,
            "clients": ciphertext.clients,
            "values": ciphertext.count,
            "weighted": ciphertext.weighted,
            "ciphertexts": ciphertext.ciphertexts,
            "positions id": ciphertext.mask_id.hex(),
        }
        if self.enrols:
            counts |= _addressed(ciphertext)
        facts, description = self._stated_parameters(ciphertext)
        counts |= {name.replace("_", " "): value for name, value in more.items()}
        return FrameBody(counts, self._named(facts), description)

    def _named(self, facts: Mapping[str, Any]) -> dict[str, Fact]:
        """Return parameters by names as people write them; lists as what they come to."""
        named = {name.replace("_", " "): value for name, value in facts.items() if name != "primes"}
        if "primes" in facts:
            named["modulus bits"] = sum(prime.bit_length() for prime in facts["primes"])
        return named

    def _stated_parameters(self, ciphertext: CoreCiphertext) -> tuple[dict[str, Any], str]:
        """Return facts and description, derived anew; "" where another version of shieldfl derived them differently."""
        facts = ciphertext.facts
        try:
            parameters = self.Parameters(**{name: facts[name] for name in self.Parameters._SETTINGS})
        except ParameterError:
            return facts, ""
        return facts, parameters.describe() if parameters.id == ciphertext.parameter_id else ""

    def _request_body(self, frame: bytes) -> FrameBody:
        request = self.PublicKey.read_request(frame)
        asked: dict[str, Fact] = {
            "round": request.round,
            "clients": len(request.participants),
            "values": request.count,
            "weighted": request.weighted,
            "positions id": request.mask_id.hex(),
        }
        return FrameBody(asked | _addressed(request) | {"total digest": request.total_digest.hex()})

    def _sum_key_body(self, frame: bytes) -> FrameBody:
        """Read what stands before the numbers: they are secret, and whether each is in range shows when they are used.

        Raises WireFormatError.
        """
        head = self.PublicKey._core_request.head_of_sum_key(frame)
        stated = self._sum_key_facts(head["unit"], head["count"])
        return FrameBody(
            {"clients": head["clients"], **stated, "total digest": head["total_digest"].hex()},
            description="the sum of one-time secrets that opens one total: secret, and for whoever opens it alone",
        )

    def _sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        """Return what a sum key's unit, and the count of its numbers, are to whoever reads them."""
        raise NotImplementedError

    def check_key_bits(self, key_bits: int) -> None:
        """Raise ParameterError for a size that keys of this scheme cannot have."""
        if as_unsigned(key_bits, "key_bits") not in self.key_sizes and self.key_sizes:
            *sizes, last = map(str, self.key_sizes)
            raise ParameterError(f"key_bits must be {', '.join(sizes)} or {last}, not {key_bits}")

    @property
    def has_sum_bits(self) -> bool:
        """Whether ``Parameters`` take ``sum_bits``, so that a sum may have fewer than any sum takes."""
        return "sum_bits" in self.Parameters._SETTINGS

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return the parameters that an encryption is measured with: those that take a client the least work."""
        return self.Parameters.plan(goal="speed")

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return parameters for such sums, with bits for weights while there is room.

        Where there are rings, the one that needs the fewest bytes; the default one where the count is not known. Raises
        ParameterError for needs that it cannot meet.
        """
        make: Callable[..., Any] = self.Parameters
        count = self._planned_count(needs)
        if count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = count + 1 if needs.most_weight > 1 else max(count, 1)
            make = partial(self.Parameters.plan, goal="size", count=fields)
        return weighted_parameters(make, needs if self.has_sum_bits else replace(needs, sum_bits=None))

    def _planned_count(self, needs: SumNeeds) -> int | None:
        """Return how many values the parameters are planned for; None for the default ones."""
        return needs.count

    def positions_of(self, masks: list[Mask], threads: int | None) -> Positions:
        """Return where a sum over clients with these masks is encrypted. Raises ParameterError for none."""
        union = masks[0]
        for mask in masks[1:]:
            union = union | mask
        return UnionMask(union)

    def read_positions(self, frame: Buffer, size: int) -> Positions:
        """Read positions of an update of this size. Raises WireFormatError."""
        return UnionMask.from_bytes(frame, size)

    def encrypt(
        self,
        encryptor: Any,
        update: Vector,
        own: Mask,
        positions: Positions,
        weight: float | None,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt an update (N,) for a sum over these positions; return the frame and which positions it covers.

        ``own`` are those that the client protects. Raises PolicyError or ParameterError where the sum leaves some of
        them out, RangeError.
        """
        if (own - positions.mask).count:
            raise PolicyError("the union leaves out positions that this client protects: nothing was sent")
        return encryptor.encrypt(update, positions.mask, weight, round_number).to_bytes(), positions.mask

    def encryptor(self, key: Any, threads: int | None, purpose: str) -> Any:
        """Return what encrypts a client's values: under a public key, or, where clients enrol, its own ``ClientKey``.

        ``purpose`` is what is encrypted, such as ``"update"``; where clients enrol, it is bound to the ciphertexts.
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
        """Return an aggregator that takes batches of these positions, and this purpose where clients enrol, alone.

        ``weighted`` : with encrypted weights.
        """
        bound = {"purpose": purpose} if self.enrols else {}
        return self.Aggregator(
            key, threads, round=round_number, positions=positions.mask, weighted=weighted, **bound
        )

    def add(
        self, aggregator: Any, client: int, frame: Buffer, weight: int, clear: NDArray[np.float32] | None
    ) -> None:
        """Add the frame that this client sent.

        ``weight`` is what the client counts, ``clear`` what it sent in the clear, in the order of the positions; a
        scheme uses them as its facts say. Where clients enrol, raises KeyMismatchError for another client's frame.
        """
        aggregator.add(frame, *((client,) if self.enrols else ()))


def _addressed(frame: Any) -> dict[str, Fact]:
    return {"purpose id": frame.purpose.hex(), "part": frame.part}
