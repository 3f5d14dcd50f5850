"""Sets of positions in a flat parameter vector: their negotiation, and which of them to encrypt.

Source of the negotiation: SelectiveShield, eqs. 15 to 18.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

import shieldfl._core as _core
from shieldfl.array_view import as_frame, as_real, as_threads, as_unsigned, as_vector
from shieldfl.errors import ArrayTypeError, ParameterError, WireFormatError

__all__ = [
    "LayerCount",
    "Mask",
    "Selection",
    "SelectionLimits",
    "Votes",
    "Zones",
    "mutual_information",
    "negotiate",
    "negotiate_zones",
    "positions_in_budget",
    "select",
    "sense_crypt_budgets",
    "split_zones",
    "top_k",
]


class LayerCount(NamedTuple):
    """How many positions of one array a mask has."""

    name: str
    chosen: int
    size: int


@lru_cache(maxsize=4)
def _empty(size: int) -> _core.Bitset:
    """Return a bitset that many masks can have, as of clients before their first round."""
    return _core.Bitset.empty(size)


class Mask:
    """An immutable set of positions out of ``size``, one bit each.

    Masks support ``&``, ``|``, ``-`` (difference), ``~`` and ``==``; the operands must have equal sizes
    (ParameterError otherwise).

    Example
    -------
    >>> import numpy as np
    >>> import shieldfl as sf
    >>> mask = sf.Mask.from_indices([1, 4], 6) | sf.Mask.from_bool(np.arange(6) < 1)
    >>> assert mask.to_indices().tolist() == [0, 1, 4]
    """

    __slots__ = ("bits",)

    def __init__(self, bits: _core.Bitset) -> None:
        self.bits = bits
        """The core's bit set, for other thin modules of the package."""

    @classmethod
    def from_bool(cls, chosen: Any) -> Mask:
        """Make a mask from a contiguous bool vector: NumPy or CPU torch. Raises ArrayTypeError for others."""
        return cls(_core.Bitset.from_bools(as_vector(chosen, (np.bool_,), "the mask")))

    @classmethod
    def from_indices(cls, indices: Any, size: int) -> Mask:
        """Make a mask of ``size`` positions from a vector of distinct int64 positions, in any order.

        Raises ParameterError for a position that is out of range or given twice.
        """
        vector = np.asarray(indices) if isinstance(indices, (list, tuple)) else indices
        if isinstance(vector, np.ndarray) and vector.size == 0:
            vector = vector.astype(np.int64)
        return cls(
            _core.Bitset.from_indices(as_vector(vector, (np.int64,), "indices"), as_unsigned(size, "size"))
        )

    @classmethod
    def full(cls, size: int) -> Mask:
        """Make a mask of ``size`` positions, all chosen."""
        return cls(_core.Bitset.full(as_unsigned(size, "size")))

    @classmethod
    def empty(cls, size: int) -> Mask:
        """Make a mask of ``size`` positions, none chosen."""
        return cls(_empty(as_unsigned(size, "size")))

    @classmethod
    def from_bytes(
        cls,
        frame: bytes | bytearray | memoryview,
        expected_size: int | None = None,
        *,
        most_positions: int | None = None,
    ) -> Mask:
        """Read a mask frame.

        Give ``expected_size`` for bytes that come from outside, or ``most_positions`` where several sizes are
        right: a frame of a few bytes can state a mask of 2**31 positions, which takes 256 MiB. Raises
        WireFormatError.
        """
        size = None if expected_size is None else as_unsigned(expected_size, "expected_size")
        data = as_frame(frame)
        if most_positions is not None:
            stated: int = _core.inspect_mask(data)["size"]
            if stated > as_unsigned(most_positions, "most_positions"):
                raise WireFormatError(
                    f"the mask states {stated} positions: at most {most_positions} are right here"
                )
        return cls(_core.decode_mask(data, size))

    def to_bytes(self) -> bytes:
        """Encode as a frame: the bitmap, or compressed gaps where these are shorter."""
        return _core.encode_mask(self.bits)

    def to_bool(self) -> NDArray[np.bool_]:
        """Return a bool vector of ``size`` entries."""
        return self.bits.to_bools()

    def to_indices(self) -> NDArray[np.int64]:
        """Return the chosen positions, ascending."""
        return self.bits.to_indices()

    @property
    def mask(self) -> Mask:
        """The mask itself, for :class:`Positions`."""
        return self

    @property
    def id(self) -> bytes:
        """16 bytes that identify size and positions in every frame."""
        return _core.mask_id(self.bits)

    @property
    def size(self) -> int:
        """The number of positions."""
        return self.bits.size

    @property
    def count(self) -> int:
        """The number of chosen positions."""
        return self.bits.count

    def gather(self, dense: Any, threads: int | None = None) -> NDArray[Any]:
        """Copy the values at the chosen positions: float32 or float64, (size,) to (count,)."""
        vector = as_vector(dense, (np.float32, np.float64), "the dense vector")
        return _core.gather(vector, self.bits, as_threads(threads))

    def scatter(self, compact: Any, dense: Any = None, threads: int | None = None) -> NDArray[Any]:
        """Write (count,) values to the chosen positions of ``dense`` (size,), in place; equal float dtypes.

        None stands for zeros. Returns ``dense``, or the values themselves where they are all that there are.
        """
        source = as_vector(compact, (np.float32, np.float64), "the compact vector")
        if dense is None and self.count == self.size == source.size:
            return source
        target: NDArray[Any] = np.zeros(self.size, source.dtype) if dense is None else dense
        self._write(_core.scatter, source, target, threads)
        return target

    def scatter_add(self, compact: Any, dense: Any, threads: int | None = None) -> None:
        """Add (count,) values to the chosen positions of ``dense`` (size,), in place; equal float dtypes."""
        self._write(_core.scatter_add, compact, dense, threads)

    def _write(self, write: Callable[..., None], compact: Any, dense: Any, threads: int | None) -> None:
        source = as_vector(compact, (np.float32, np.float64), "the compact vector")
        target = as_vector(dense, (source.dtype.type,), "the dense vector")
        write(source, self.bits, target, as_threads(threads))

    def resized(self, size: int, *, chosen: bool = False) -> Mask:
        """Return the set cut or extended to ``size`` positions: all of the added ones are chosen, or none."""
        number = as_unsigned(size, "size")
        # Itself where nothing changes: what the core has worked out of it stays known.
        return self if number == self.size else Mask(self.bits.resized(number, chosen))

    def describe(self, layout: Any) -> list[LayerCount]:
        """Return how many positions of each array it has, in a layout's order.

        ``layout`` is a ``shieldfl.models.ModelLayout``, or a ``ParameterLayout``. Raises ParameterError for
        one of another size.
        """
        if layout.size != self.size:
            raise ParameterError(f"the mask is one of {self.size:,} positions, the layout of {layout.size:,}")
        chosen = self.to_bool()
        return [
            LayerCount(name, int(np.count_nonzero(chosen[part])), part.stop - part.start)
            for name, part in layout.slices()
        ]

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.bits & other.bits) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.bits | other.bits) if isinstance(other, Mask) else NotImplemented

    def __sub__(self, other: Mask) -> Mask:
        return Mask(self.bits - other.bits) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> Mask:
        return Mask(~self.bits)

    def __eq__(self, other: object) -> bool:
        return self is other or (self.bits == other.bits if isinstance(other, Mask) else NotImplemented)

    def __hash__(self) -> int:
        return hash((self.size, self.count))

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return Mask.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"Mask({self.count:,} of {self.size:,} positions)"


def bits_of(mask: Any) -> _core.Bitset:
    """Return the core's object of a Mask. Raises ArrayTypeError for anything else, such as a bool array."""
    if not isinstance(mask, Mask):
        raise ArrayTypeError(f"expected a Mask, got {type(mask).__name__}: make one with Mask.from_bool(...)")
    return mask.bits


class Positions(Protocol):
    """Which of an update's ``size`` values are encrypted in a sum, and in which order.

    The positions of a :class:`Mask` are in ascending order.
    """

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
    def gather(self, dense: Any, /) -> NDArray[Any]: ...
    def scatter(self, sums: Any, /) -> NDArray[Any]:
        """Return a vector of ``size`` values with ``count`` sums where they belong, zero elsewhere."""


class Zones(NamedTuple):
    """A client's three zones: disjoint, and together every position (SelectiveShield, eqs. 16 to 18)."""

    encrypted: Mask
    personalised: Mask
    noise: Mask


def split_zones(local: Mask, encrypted: Mask) -> Zones:
    """Split all positions: encrypted as negotiated, personalised = local minus encrypted, noise = the rest.

    Raises ParameterError where the sizes differ.
    """
    return Zones(*(Mask(bits) for bits in _core.split_zones(bits_of(local), bits_of(encrypted))))


class Votes:
    """Counts, for masks that arrive one by one, how many chose each position.

    Memory is a few bits a position: the length of the number of voters. Safe to use from several threads.
    """

    def __init__(self, size: int) -> None:
        self._votes = _core.Votes(as_unsigned(size, "size"))
        # The core counts without the interpreter lock, so the counters need one of their own.
        self._lock = threading.Lock()

    @property
    def voters(self) -> int:
        """How many masks were added."""
        with self._lock:
            return self._votes.voters

    def add(self, mask: Mask, threads: int | None = None) -> None:
        """Count one mask. Raises ParameterError for a mask of another size; the counts stay as they were."""
        with self._lock:
            self._votes.add(bits_of(mask), as_threads(threads))

    def consensus(self, rho: float, threads: int | None = None) -> Mask:
        """Return the positions that at least a share ``rho`` of the voters chose, 0 < rho <= 1 (eq. 16).

        Raises ParameterError for another rho, and where nobody has voted.
        """
        with self._lock:
            return Mask(self._votes.consensus(as_real(rho, "rho"), as_threads(threads)))

    def counts(self, threads: int | None = None) -> NDArray[np.uint32]:
        """Return the votes of every position."""
        with self._lock:
            return self._votes.counts(as_threads(threads))


def negotiate(masks: Sequence[Mask], consensus: float = 0.5, threads: int | None = None) -> Mask:
    """Return the positions that at least a share ``consensus`` of the masks chose.

    That is ``ceil(consensus * len(masks))`` masks, the product taken exactly: 7 of 25 are a share of 0.28,
    though ``math.ceil(0.28 * 25)`` is 8 in floating point. 0 < consensus <= 1; 1 is the intersection
    (SelectiveShield, eqs. 15 and 16). Raises ParameterError for no masks, masks of different sizes, and
    another consensus.
    """
    return Mask(_core.negotiate(_ballots(masks), as_real(consensus, "consensus"), as_threads(threads)))


def negotiate_zones(
    masks: Sequence[Mask], consensus: float = 0.5, threads: int | None = None
) -> tuple[Mask, list[Zones]]:
    """Negotiate, and split every mask's positions into zones by the outcome: one pass over all masks.

    Returns the encrypted zone and, in the order of the masks, each client's zones, which share it
    (SelectiveShield, eqs. 15 to 18): the same as ``negotiate`` and then ``split_zones`` for every mask. The
    zones of n clients take 2n + 1 bits a position. Raises what ``negotiate`` raises.
    """
    encrypted_bits, clients = _core.negotiate_zones(
        _ballots(masks), as_real(consensus, "consensus"), as_threads(threads)
    )
    encrypted = Mask(encrypted_bits)
    return encrypted, [Zones(encrypted, Mask(own), Mask(noise)) for own, noise in clients]


def _ballots(masks: Sequence[Mask]) -> list[_core.Bitset]:
    if len(masks) == 0:
        raise ParameterError("there are no masks to negotiate: pass at least one")
    return [bits_of(mask) for mask in masks]


DEFAULT_BINS = 256


@dataclass(frozen=True, kw_only=True)
class SelectionLimits:
    """What a client's selection has to keep to, and how it weighs cost against gain."""

    budget: float
    """Largest share of all positions that the client may choose, alpha of eq. 6: in (0, 1]."""
    exposed_share: float = 0.7
    """C of eq. 7, above 0. The chosen positions have at least a share of
    ``1 - exposed_share * exp(-exposure_decay * budget)`` of the scores' sum. That must be in [0, 1]."""
    exposure_decay: float = 1.3
    """B of eq. 7, above 0."""
    information_bits: float = 2.0
    """Most mutual information that may be left, in bits, eta_MI of eq. 8: from 0; ``math.inf`` for no
    bound."""
    bins: int = DEFAULT_BINS
    """Number of bins of its estimate, from 1 to 65,536: see :func:`mutual_information`."""
    cost_weight: float = 1.0
    """Weight of the cost, beta_1 of the scalarised problem, above 0."""
    gain_weight: float = 1.0
    """Weight of the gain, beta_2 of the scalarised problem, above 0."""
    normalised: bool = True
    """Whether the two objectives are normalised, as the paper writes them with bars.

    Otherwise the problem minimises their difference as the paper prints it, without bars:
    ``cost_weight * k - gain_weight * (sum of the chosen scores)``. With equal weights and scores below 1 that
    is least if nothing is chosen beyond what the other limits require.
    """


@dataclass(frozen=True)
class Selection:
    """The chosen positions, what led to their number, and what they reach."""

    mask: Mask
    """The chosen positions: those with the highest scores, and of equal scores the lower positions."""
    limits: SelectionLimits
    best_count: int
    """Number of positions that the scalarised problem chooses without limits."""
    security_count: int
    """Smallest number of positions that eq. 7 allows."""
    information_count: int
    """Smallest number of positions that eq. 8 allows."""
    budget_count: int
    """Largest number of positions that eq. 6 allows: the largest k with ``k / P <= budget``."""
    required_share: float
    """Share of the scores' sum that eq. 7 requires."""
    share: float
    """Share of the scores' sum that is chosen; 1 if all scores are 0, which leaves nothing to protect."""
    information_bits: float
    """I(W; masked W) in bits, with the chosen positions masked."""

    @property
    def count(self) -> int:
        """How many positions are chosen."""
        return self.mask.count

    @property
    def meets_security(self) -> bool:
        """Whether eq. 7 holds; where it does not, the budget is too small for it."""
        return self.count >= self.security_count

    @property
    def meets_information(self) -> bool:
        """Whether eq. 8 holds; where it does not, the budget is too small for it."""
        return self.count >= self.information_count

    @property
    def share_shortfall(self) -> float:
        """How much of the scores' sum is missing for eq. 7, as a share of it; 0 where it holds."""
        return 0.0 if self.meets_security else max(0.0, self.required_share - self.share)

    @property
    def information_excess_bits(self) -> float:
        """How many bits are above the limit of eq. 8; 0 where it holds."""
        missed = max(0.0, self.information_bits - self.limits.information_bits)
        return 0.0 if self.meets_information else missed


def select(scores: Any, weights: Any, limits: SelectionLimits, threads: int | None = None) -> Selection:
    """Choose the positions that one client encrypts (SenseCrypt, eqs. 4 to 9).

    Minimises ``cost_weight * k / P - gain_weight * share``, or its form that is not normalised, under budget
    and security: ``k`` of the ``P`` positions are chosen, and ``share`` is their part of the scores' sum. The
    minimum is exact, as for every ``k`` the highest scores are the best choice; sums are compared without
    rounding. No order of the positions is best for the bound on the mutual information: as many of the
    highest scores are taken as it needs. If the limits contradict each other, the budget wins, and the result
    tells what falls short.

    Where all scores are 0, security holds for the empty mask, and only the mutual information chooses
    positions: the first ones.

    ``scores`` is (P,) float32 or float64, finite and at least 0, 1 <= P <= 2**31; ``weights`` (P,) of their
    dtype, finite. Raises ArrayTypeError for another dtype or rank, ParameterError for lengths that differ or
    are 0, or a limit outside of its range, RangeError, which says where, for a value that is NaN, infinite or
    negative.
    """
    score_vector = as_vector(scores, (np.float32, np.float64), "the scores")
    weight_vector = as_vector(weights, (score_vector.dtype.type,), "the weights")
    cost, gain = as_real(limits.cost_weight, "cost_weight"), as_real(limits.gain_weight, "gain_weight")
    if not limits.normalised and cost > 0.0 and gain > 0.0:
        total = float(score_vector.sum(dtype=np.float64))
        # Where all scores are 0, or one is no number, which the core refuses, the weight of the gain does not
        # matter.
        cost, gain = cost * score_vector.size, gain * (total if 0.0 < total < np.inf else 1.0)
    names = ("budget", "exposed_share", "exposure_decay", "information_bits")
    core_limits = _core.SelectionLimits(
        **{name: as_real(getattr(limits, name), name) for name in names},
        bins=as_unsigned(limits.bins, "bins"),
        cost_weight=cost,
        gain_weight=gain,
    )
    found = _core.select(score_vector, weight_vector, core_limits, as_threads(threads))
    facts = {fact.name: getattr(found, fact.name) for fact in fields(Selection)[2:]}
    return Selection(Mask(found.mask), limits, **facts)


def positions_in_budget(budget: float, size: int) -> int:
    """Return the largest k with ``k / size <= budget`` in float64.

    Of 100 positions a budget of 0.29 allows 29, though the product of the two is below 29 in float64. Raises
    ParameterError for a budget that is not in [0, 1], or a size that is negative.
    """
    share, count = as_real(budget, "budget"), as_unsigned(size, "size")
    return _core.positions_in_budget(share, count) if share else 0


def top_k(scores: Any, k: int, threads: int | None = None) -> Mask:
    """Choose the ``k`` positions with the highest scores; of equal scores the lower positions.

    ``scores`` is (P,) float32 or float64, finite and at least 0. Raises ArrayTypeError for another dtype or
    rank, ParameterError for k above P, RangeError, which says where, for a score that is NaN, infinite or
    negative.
    """
    vector = as_vector(scores, (np.float32, np.float64), "the scores")
    return Mask(_core.top_k(vector, as_unsigned(k, "k"), as_threads(threads)))


def mutual_information(
    weights: Any, mask: Mask, bins: int = DEFAULT_BINS, threads: int | None = None
) -> float:
    """Estimate how much the weights outside of ``mask`` tell of all weights: I(W; masked W), in bits (eq. 3).

    A histogram estimate with ``bins`` equal-width bins over the smallest range that holds every weight and 0,
    the same for both vectors; the masked vector has 0 where ``mask`` chooses. It is at least 0, exactly 0
    where all positions are masked, and does not rise when more of them are.

    ``weights`` is (P,) float32 or float64, finite, P >= 1; ``bins`` from 1 to 65,536. Raises ArrayTypeError
    for another dtype or rank, ParameterError for other bins, no weights or a mask of another size,
    RangeError, which says where, for a weight that is NaN or infinite.
    """
    vector = as_vector(weights, (np.float32, np.float64), "the weights")
    return _core.mutual_information(vector, bits_of(mask), as_unsigned(bins, "bins"), as_threads(threads))


def sense_crypt_budgets(
    bytes_per_second: ArrayLike, compute_speed: ArrayLike, clusters: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return alpha of each client (SenseCrypt, section 3.2): float64 of shape (K,), in (0, 1].

    Within a cluster, bandwidth and computing speed are each divided by the largest of them; the smaller of
    the two quotients is divided by the cluster's largest. The fastest client of each cluster gets 1, and so
    does a client that is alone. ``bytes_per_second`` and ``compute_speed`` have shape (K,), any unit, and
    finite values above zero; ``clusters`` has each client's cluster, from 0, or is None for a single one.
    Raises ParameterError, with the position of a wrong value.
    """
    rates = _positive(bytes_per_second, "bytes_per_second")
    speeds = _positive(compute_speed, "compute_speed")
    groups = np.zeros(rates.size, dtype=np.int64) if clusters is None else np.asarray(clusters)
    if not rates.size == speeds.size == groups.size:
        raise ParameterError(
            f"budgets need one bandwidth, speed and cluster for each client, got {rates.size}, {speeds.size} "
            f"and {groups.size}"
        )
    if groups.ndim != 1 or not np.issubdtype(groups.dtype, np.integer) or groups.min() < 0:
        raise ParameterError("clusters must be a vector of whole numbers from 0")
    slower = np.minimum(_scaled(rates, groups), _scaled(speeds, groups))
    return _scaled(slower, groups)


def _positive(values: ArrayLike, what: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{what} must be a vector with an entry for each client")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0.0)))
    if wrong.size:
        raise ParameterError(f"{what} must be finite and above zero, client {wrong[0]} is not")
    return array


def _scaled(values: NDArray[np.float64], clusters: NDArray[np.int64]) -> NDArray[np.float64]:
    largest = np.zeros(int(clusters.max()) + 1)
    np.maximum.at(largest, clusters, values)
    # A quotient that is too small for a double is still a budget above zero.
    scaled: NDArray[np.float64] = np.maximum(values / largest[clusters], np.finfo(np.float64).tiny)
    return scaled
