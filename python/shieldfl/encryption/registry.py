"""What a scheme is to the rest of the package, and all that there are: nothing else asks which one it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer
from shieldfl.encryption.encryption import Positions, SchemeTotal, UnionMask, Vector
from shieldfl.encryption.enrolment import ClientKey, EnrolledPublicKey
from shieldfl.encryption.parameters import SchemePublicKey, SumNeeds
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask

POOLED = "-pooled"
"""Behind the name of a calibration with randomisers that were made while the model trained."""

KeyBits = Literal[2048, 3072, 4096]
"""Sizes of keys, where a scheme has a choice of them."""

DEFAULT_ENCRYPTION = "kahe"
"""Of methods that ask for none."""

DEFAULT_PUBLIC_KEY_ENCRYPTION = "ckks"
"""Beside updates under a public key, for what has to be summed with encrypted weights."""

DEFAULT_KEY_BITS: KeyBits = 3072
"""128 bits of security."""

Fact = bool | int | float | str
"""What a frame may tell of itself."""


class Scheme:
    """An encryption scheme: what others ask for instead of its name. Its module makes one object of a subclass."""

    long_answers: ClassVar[bool] = False
    """Where clients enrol, whether an answer is as long as its total. An authority then keeps those of fewer rounds."""
    encryptions: ClassVar[tuple[str, ...]]
    """The names by which settings choose the scheme and its packing."""
    key_sizes: ClassVar[tuple[int, ...]] = ()
    """What ``key_bits`` may be; empty for a scheme that has no such choice."""
    keys_last: ClassVar[bool] = True
    """Whether one pair serves all rounds; otherwise each round has its own."""
    adds_clear_values: ClassVar[bool] = False
    """Whether plain numbers are added to ciphertexts, so that each client encrypts its own mask and not the union."""
    integer_weights: ClassVar[bool] = False
    """Whether the aggregator multiplies by weights; otherwise they travel encrypted beside the values."""
    is_slow: ClassVar[bool] = False
    """Whether encryptors make randomisers ahead: ``precompute``, ``wait`` and ``ciphertexts_for``.

    Calibration then measures a number of ciphertexts, since a whole update would take too long.
    """
    positions_part: ClassVar[str] = "union"
    """The name of the message part that says which positions are encrypted."""

    def __init__(self, public_key: type[SchemePublicKey], encryptor: Any, aggregator: Any) -> None:
        self.PublicKey: Any = public_key
        self.Encryptor, self.Aggregator = encryptor, aggregator
        self.name = public_key._scheme
        self.Parameters: Any = public_key._parameters_class
        self.Total: Any = public_key._total_class
        self.enrols = issubclass(public_key, EnrolledPublicKey)
        """Whether each client shares a key of its own with the key authority, which then answers lists of clients."""
        self.ClientKey: Any = ClientKey if self.enrols else None
        self.has_sum_bits = "sum_bits" in self.Parameters._SETTINGS
        """Whether ``Parameters`` take ``sum_bits``, so that a sum may have fewer than any sum takes."""

    @property
    def calibrations(self) -> tuple[str, ...]:
        """The names under which it is calibrated; ``-pooled`` counts only what is left once randomisers are there."""
        variants = ("", POOLED) if self.is_slow else ("",)
        return tuple(name + variant for name in self.encryptions for variant in variants)

    def sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        """Return what a sum key's unit, and the count of its numbers, are to whoever reads them."""
        raise NotImplementedError

    def opened_coefficients(self, total: SchemeTotal) -> int:
        return total.count + total.weighted

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return the parameters that an encryption is measured with: those that take a client the least work."""
        return self.Parameters.plan(goal="speed")

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return parameters for such sums. Raises ParameterError for needs that it cannot meet.

        Where there are rings, the one that needs the fewest bytes; the default one where the count is not known.

        Clients divide their weights by the largest, and values become smaller by that: while there is room, they get as
        many bits more, behind the point, as make up for it on average. Each of K clients is off by half a step at most,
        and the mean by half a step times K / sum(weights): with weights divided by the largest that is most_weight /
        mean_weight.
        """
        make: Callable[..., Any] = partial(self.Parameters, max_clients=needs.clients)
        count = self._planned_count(needs)
        if count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = count + 1 if needs.most_weight > 1 else max(count, 1)
            make = partial(self.Parameters.plan, goal="size", count=fields, max_clients=needs.clients)
        if self.has_sum_bits:
            make = partial(make, sum_bits=needs.sum_bits)
        ratio = 1.0 if needs.mean_weight is None else max(needs.most_weight / needs.mean_weight, 1.0)
        more = math.ceil(math.log2(ratio))
        while True:
            try:
                return make(value_bits=needs.value_bits + more, fraction_bits=needs.fraction_bits + more)
            except ParameterError:
                if more == 0:
                    raise
                more -= 1

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
        return UnionMask(Mask.from_bytes(frame, size))

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


REGISTRY: dict[str, Scheme] = {}
"""By name. Importing the package imports each scheme's module, which adds itself."""


def scheme_of(one: Any) -> Scheme:
    """Return the scheme of parameters, a public key or a client's key. Raises ParameterError for what is neither."""
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
    schemes = [scheme for scheme in REGISTRY.values() if not scheme.integer_weights]
    return tuple(name for scheme in schemes for name in scheme.encryptions)


def calibrations() -> tuple[str, ...]:
    """Return the names under which schemes are calibrated: those of settings, and those with a pool."""
    return tuple(name for scheme in REGISTRY.values() for name in scheme.calibrations)
