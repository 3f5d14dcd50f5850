"""Opens totals: what of it does not depend on where the secrets are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_frame, as_real, as_threads, as_unsigned
from shieldfl.authority.message import piece_of_each
from shieldfl.encryption.enrolment import open_total, read_answer
from shieldfl.encryption.parameters import SchemeParameters, SchemePublicKey
from shieldfl.encryption.registry import SchemeBatch, SchemeTotal, scheme_of
from shieldfl.errors import ParameterError, PolicyError, RangeError
from shieldfl.stateful import Uncopied

if TYPE_CHECKING:
    # Type checkers know it without an installation; its TypeVar, unlike that of Python 3.11, can have a default.
    from typing_extensions import TypeVar

    Key = TypeVar("Key", bound=SchemePublicKey, default=Any)
else:
    from typing import TypeVar

    Key = TypeVar("Key")

Total = SchemeTotal

LEAST_THAT_HIDES = 3
"""Of two clients each learns the other's update, by taking its own from the sum."""

WEIGHT_BOUNDS = (2.0**-6, 1.0)
"""Of encrypted weights, where nothing else is said."""

_MISSTATED = (
    "the weights in the total do not sum to what the clients stated in the clear: one of them is forged, so no mean is "
    "given. Start a new round"
)


def checked_weight_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    smallest, largest = as_real(low, "a bound of weights"), as_real(high, "a bound of weights")
    if not 0.0 < smallest <= largest < math.inf:
        raise ParameterError("weight_bounds must be two finite numbers above 0, the smaller one first")
    return smallest, largest


def checked_min_clients(params: SchemeParameters[Any], min_clients: int) -> int:
    number = as_unsigned(min_clients, "min_clients")
    if not 1 <= number <= params.max_clients:
        raise ParameterError(
            f"min_clients is {number}, but must be between 1 and max_clients = {params.max_clients}. Of two "
            "clients each learns the other's update from the sum: pass min_clients where that is meant"
        )
    return number


Answer = tuple[NDArray[np.float64], float | None]
"""What an opening gave: the sums, float64 (count,), and the sum of encrypted weights, if there are any."""


class TotalOpener(Uncopied, Generic[Key]):
    """Opens totals of one scheme and key, of enough clients, and divides them; ``_answer`` is for those who can.

    ``purpose`` is what the totals are of, None for whatever they are of; the others are as for ``KeyAuthority``.
    """

    def __init__(
        self,
        public_key: Key,
        min_clients: int,
        weight_bounds: tuple[float, float],
        threads: int | None,
        purpose: str | None = None,
    ) -> None:
        self._scheme = scheme_of(public_key)
        self._threads = as_threads(threads)
        self.public_key = public_key
        """What others get: the PublicKey of the parameters' scheme."""
        self._purpose = purpose
        self.min_clients = min_clients
        self.weight_bounds = checked_weight_bounds(weight_bounds)

    def open(self, total: Total | bytes) -> NDArray[np.float64]:
        """Open a total: the weighted sums, float64 (count,), in the order of ascending positions.

        A total of batches that were encrypted in a union is in the order of that ``paillier.UnionOrder``.

        Raises PolicyError for what may not be opened, KeyMismatchError, ParameterError, WireFormatError.
        """
        return self._answer(self._checked(total))[0]

    def open_mean(self, total: Total | bytes, *, stated_weight: float | None = None) -> NDArray[np.float64]:
        """Open a total and divide by the sum of weights: encrypted ones, or else those that the aggregator gave.

        Where there are neither, that is the number of clients.

        Parameters
        ----------
        stated_weight : what the weights sum to by what the clients stated in the clear, where they did.

        Raises RangeError, beside what :meth:`open` raises, where encrypted weights sum to what none within
        ``weight_bounds`` do, or to something else than was stated, but for their rounding: half a step for each.
        """
        checked = self._checked(total)
        sums, weight_sum = self._answer(checked)
        if weight_sum is None:
            if stated_weight is not None and stated_weight != checked.total_weight:
                raise RangeError(_MISSTATED)
            return sums / checked.total_weight
        clients, step = checked.clients, self.public_key.parameters.weight_step
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
        return sums / weight_sum

    def _checked(self, total: Total | bytes) -> Total:
        if isinstance(total, SchemeBatch):
            raise PolicyError(
                "only totals are opened, never a single client's batch: add it to an Aggregator"
            )
        own, threads = self._scheme.Total, self._threads or None  # 0 is the core's number for all cores
        if isinstance(total, SchemeTotal) and not isinstance(total, own):
            raise ParameterError(
                f"the total is of another encryption scheme: {self._scheme.name} totals are opened here"
            )
        checked: Total = total if isinstance(total, own) else own.from_bytes(total, threads)
        checked.parse(threads)
        if self._purpose is not None and not checked.is_for(self._purpose):
            raise PolicyError(f"the total is not for {self._purpose!r}: nothing was opened")
        if checked.clients < self.min_clients:
            raise PolicyError(
                f"the total holds {checked.clients} clients, fewer than min_clients = {self.min_clients}: "
                "wait for more clients before closing the round"
            )
        return checked

    def has_opened(self, total: Total) -> bool:
        """Say whether this total was opened, or, where each round has one alone, that of its round."""
        raise NotImplementedError

    def _answer(self, total: Total) -> Answer:
        """Open a total that was checked; the sums are the receiver's own."""
        raise NotImplementedError


class AnswerOpener(TotalOpener[Any]):
    """Opens those totals that the authority has answered for, and no others; holds no client's key.

    ``public_key`` has the authority's identity; ``opening_key`` is what was granted, 32 bytes for each authority,
    secret. The others are as for :class:`TotalOpener`.
    """

    _why_uncopied = "holds what opens answers and is neither copied nor pickled"

    def __init__(
        self,
        public_key: Any,
        opening_key: bytes,
        min_clients: int,
        weight_bounds: tuple[float, float],
        threads: int | None = None,
        *,
        purpose: str | None = None,
    ) -> None:
        super().__init__(public_key, min_clients, weight_bounds, threads, purpose)
        self._opening_key = opening_key
        self._given: Buffer | None = None
        self._beside = b""
        self.request = b""
        """What the total that was opened last was asked for with."""
        self._opened: set[bytes] = set()

    def take(self, answer: Buffer, beside: bytes = b"") -> None:
        """Take the answer to the total that is opened next, of several authorities one after the other.

        ``beside`` is what its request was made with.
        """
        self._given, self._beside = answer, beside

    def has_opened(self, total: Any) -> bool:
        return total.digest() in self._opened

    def sum_keys(self, total: Any) -> tuple[list[bytes], bytes]:
        """Return what opens a total, and what it was asked for with.

        Raises KeyMismatchError unless the answer is the one to it.
        """
        if self._given is None:
            raise PolicyError("there is no answer to this total: ask the key authority with total.request()")
        key = self.public_key
        request = total.request(self._beside)
        members = key.identity.members
        opening_keys = piece_of_each(self._opening_key, len(members))
        answers = piece_of_each(bytes(as_frame(self._given)), len(members))
        sum_keys = [
            read_answer(member.verifying_key, bytes(opening_key), key.id, request, answer)
            for member, opening_key, answer in zip(members, opening_keys, answers, strict=True)
        ]
        return sum_keys, request

    def _answer(self, total: Any) -> Answer:
        key = self.public_key
        sum_keys, request = self.sum_keys(total)
        answer = open_total(key, total, sum_keys, beside=self._beside, threads=self._threads or None)
        self._opened.add(total.digest())
        self.request = request
        return answer
