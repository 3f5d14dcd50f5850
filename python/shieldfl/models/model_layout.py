"""Where each array of a model lies in the vector that is encrypted, whole or in parts, and what does not."""

from __future__ import annotations

import hashlib
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_positive, as_unsigned
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError, WireFormatError
from shieldfl.masks import Mask, bits_of
from shieldfl.models.leaves import (
    as_it_lies,
    check_apart,
    check_contiguous,
    check_frozen_are_known,
    check_writable,
    contiguous_copy,
    copied,
    copy_into,
    dtype_of,
    is_float,
    is_frozen,
    is_module,
    memory_of,
    named_leaves,
    piece_of,
    put,
    same_values,
    scale_into,
)


@dataclass(frozen=True)
class ParameterLayout:
    """Where each parameter tensor ("layer") lies in the flat vector: a shared (tied) one appears once.

    Tensor i covers ``offsets[i]`` up to ``offsets[i + 1]``: there is one offset more than names and shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Self:
        names, sizes = zip(*pairs, strict=True) if (pairs := tuple(shapes)) else ((), ())
        return cls(names, sizes, tuple(accumulate(map(math.prod, sizes), initial=0)))

    @property
    def size(self) -> int:
        return self.offsets[-1]

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Yield ``(name, slice of the flat vector)`` for each tensor, in order."""
        for name, start, stop in zip(self.names, self.offsets, self.offsets[1:], strict=False):
            yield name, slice(start, stop)

    def name_of(self, position: int) -> str:
        """Return the name of the tensor that a position of the flat vector is in; ParameterError for none."""
        if not 0 <= position < self.size:
            raise ParameterError(f"position {position} is outside of the {self.size} parameters")
        return self.names[bisect_right(self.offsets, position) - 1]

    @contextmanager
    def naming_tensors(self) -> Iterator[None]:
        """Let a RangeError of an update of this layout name the tensor: encrypt inside of this block.

        An update may leave out the last tensors, as one without buffers does. Errors of other updates pass
        unchanged.
        """
        try:
            yield
        except RangeError as error:
            if error.position is None or error.size not in self.offsets[1:]:
                raise
            named = RangeError(f"{error} (the tensor {self.name_of(error.position)!r})")
            named.position, named.size = error.position, error.size
            raise named from None


Pattern = str | re.Pattern[str]
"""A name, a glob, or a regular expression that has to match a whole name."""


def _matching(names: Iterable[str], patterns: Pattern | Sequence[Pattern]) -> set[str]:
    """Return the names that one of the patterns matches. Raises ParameterError for one that matches none."""
    given = [patterns] if isinstance(patterns, str | re.Pattern) else patterns
    if not given:
        raise ParameterError("give at least one name, glob or regular expression")
    listed, found = list(names), set()
    for pattern in given:
        shown = getattr(pattern, "pattern", pattern)
        if not isinstance(shown, str):
            raise ParameterError("names, globs and regular expressions are texts, or a list of such")
        if isinstance(pattern, re.Pattern):
            matched = set(filter(pattern.fullmatch, listed))
        else:
            matched = {name for name in listed if name == pattern or fnmatchcase(name, pattern)}
        if not matched:
            some = ", ".join(listed[:3])
            raise ParameterError(f"no array of the model matches {shown!r}: its names are like {some}")
        found |= matched
    return found


_MOST_EXPONENT = 1_000


@dataclass(frozen=True)
class Place:
    """What a layout knows of an array."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["float32", "float64", "float16", "bfloat16"]
    exponent: int
    """Binary exponent: values are divided by 2**exponent before encryption, and multiplied afterwards."""
    aliases: tuple[str, ...]
    """Other names under which the model has the same memory."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    def among(self, arrays: Mapping[str, Any]) -> list[str]:
        return [name for name in self.names if name in arrays]


def _exponents_of(names: Iterable[str], ranges: Mapping[str, float], limit: float) -> dict[str, int]:
    """Return, by name, the least power of two that brings values of a range down to ``limit``."""
    if not isinstance(ranges, Mapping):
        raise ParameterError("ranges is a dict: for each glob the largest magnitude")
    most_part, most_power = math.frexp(as_positive(limit, "limit"))
    listed, found = list(names), dict[str, int]()
    for pattern, largest in ranges.items():
        # Logarithms would be rounded, and a value at the very end of its range be refused.
        part, power = math.frexp(as_positive(largest, f"the range of {pattern!r}"))
        exponent = max(0, power - most_power + (part > most_part))
        if exponent > _MOST_EXPONENT:
            raise ParameterError(f"the range of {pattern!r} is too large")
        found |= dict.fromkeys(_matching(listed, pattern), exponent)
    return found


BATCH_NORM_STATISTICS = ("*running_mean", "*running_var")
"""PyTorch's names of BatchNorm's statistics of the data: of raw pixels far larger than parameters."""

_MOST_POSITIONS = 2**31  # of a mask, and so of what is encrypted at a time
_LIMIT = 8.0 - 2.0**-20  # value_limit of every scheme's parameters, as they are by default


@dataclass(frozen=True)
class ModelLayout:
    """Names, shapes and dtypes of a model's float arrays, in a fixed order: that of their vector, (P,).

    ``layout = ModelLayout.of(model)`` once, then :meth:`encrypt` on every client, and :meth:`moved` or
    :meth:`replaced` with what was decrypted. All clients need the same layout: compare :attr:`digest`, or
    send :meth:`to_json`.

    Integers and truth values, such as BatchNorm's count of batches, and modules' extra state that is no array
    stay apart: they are neither encrypted nor changed. A tensor under several names is in it once.

    Example
    -------
    >>> import numpy as np
    >>> import shieldfl as sf
    >>> from shieldfl.models import ModelLayout
    >>> state = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    >>> layout = ModelLayout.of(state)
    >>> moved = layout.moved(state, np.ones(layout.size))  # by an opened mean, say
    >>> assert np.array_equal(moved["bias"], np.ones(2))
    """

    places: tuple[Place, ...]
    apart: tuple[str, ...]
    """Names of the model's entries that are not encrypted: no floats, frozen or left out."""

    @classmethod
    def of(
        cls,
        model: Any,
        *,
        include: Pattern | Sequence[Pattern] = "*",
        exclude: Pattern | Sequence[Pattern] = (),
        trainable_only: bool = False,
        ranges: Mapping[str, float] | None = None,
        limit: float = _LIMIT,
    ) -> ModelLayout:
        """Lay out a model.

        Parameters
        ----------
        model : a torch module; a state dict, named parameters, or a subset of them, such as an adapter's; any
            dict of NumPy arrays, torch tensors, or such dicts, whose names are joined by dots. Floats of 16,
            32 or 64 bits, bfloat16 too. Tensors may be on meta: a model can be laid out before it is loaded.
        include, exclude : names, globs (``"encoder.*"``) or compiled regular expressions, which have to match
            a whole name. What is not included, or is excluded, stays apart; of a tensor with several names,
            one decides.
        trainable_only : whether parameters that are frozen (``requires_grad`` is False) stay apart; of a
            tensor with several names, one under which it is trained decides. A state dict does not say what
            is frozen.
        ranges : by glob, the largest magnitude of values that are larger than ``limit``: they are scaled by a
            power of two, which loses nothing but that their step is larger by the same. It may be reached,
            and not exceeded.
        limit : the largest magnitude that the encryption takes: ``value_limit`` of its parameters. Without
            it, that of parameters with 24 bits, 20 of them behind the point: just below 8.

        Raises ParameterError for a model with nothing to encrypt, or more than 2**31 values, a pattern that
        matches nothing, and a name that comes twice; ArrayTypeError for what is no array, or no plain one, or
        is neither of such floats nor of integers or truth values, unless it is left out. Both name it.
        """
        leaves = named_leaves(model)
        included, excluded = _matching(leaves, include), _matching(leaves, exclude) if exclude else set()
        exponents = _exponents_of(leaves, ranges or {}, limit)
        if trainable_only and not is_module(model):
            check_frozen_are_known(leaves)
        names_of: dict[Any, list[str]] = {}
        for name, leaf in leaves.items():
            names_of.setdefault(memory_of(leaf) or name, []).append(name)
        places: list[Place] = []
        for name, *aliases in names_of.values():
            leaf, names = leaves[name], {name, *aliases}
            # One tensor is encrypted under all of its names, or apart under all.
            frozen = {is_frozen(leaves[one]) for one in names} if trainable_only else {False}
            chosen = names & included and not names & excluded and (False in frozen or True not in frozen)
            if chosen and is_float(name, leaf):
                exponent = max(exponents.get(one, 0) for one in names)
                shape, dtype = tuple(map(int, leaf.shape)), cast(Any, dtype_of(leaf))
                places.append(Place(name, shape, dtype, exponent, tuple(aliases)))
        placed = {name for place in places for name in place.names}
        layout = cls(tuple(places), tuple(name for name in leaves if name not in placed))
        layout.check_apart(leaves)
        return layout

    def __post_init__(self) -> None:
        if not self.size:
            raise ParameterError(
                "the model has no floats that are to be encrypted: convert arrays, or look at include and "
                "exclude"
            )
        if self.size > _MOST_POSITIONS:
            raise ParameterError(
                f"the model has {self.size:,} values, and 2**31 can be encrypted at a time: choose with "
                "include"
            )

    @cached_property
    def _by_name(self) -> dict[str, Place]:
        return {name: place for place in self.places for name in place.names}

    @property
    def size(self) -> int:
        return sum(place.size for place in self.places)

    @property
    def vector_dtype(self) -> type[np.float32] | type[np.float64]:
        return np.float64 if any(place.dtype == "float64" for place in self.places) else np.float32

    @property
    def parameters(self) -> ParameterLayout:
        return ParameterLayout.of((place.name, place.shape) for place in self.places)

    @property
    def digest(self) -> str:
        """SHA-256 of :meth:`to_json`, 64 hexadecimal digits.

        It depends on names, shapes, dtypes and scales, and on no values.
        """
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps({"version": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ModelLayout:
        import msgspec

        try:
            if str(msgspec.json.decode(text, type=dict[str, Any]).get("version")) != "1":
                raise ValueError("another version")
            layout = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise WireFormatError("this is no layout of a model that this version can read") from error
        names = [name for place in layout.places for name in place.names] + list(layout.apart)
        possible = (
            min(one.shape, default=0) >= 0 and 0 <= one.exponent <= _MOST_EXPONENT for one in layout.places
        )
        if len(names) != len(set(names)) or not all(possible):
            raise WireFormatError("this is no layout that a model has: names come twice, or no array is such")
        return layout

    def flatten(self, model: Any) -> NDArray[Any]:
        """Copy a model of this layout into one vector (P,): float32, or float64 where one of its arrays is.

        Arrays that stay apart may be missing, and floats be of other widths than the layout's. Raises
        ParameterError for other arrays, shapes or values under names of one tensor; ArrayTypeError for what
        are no floats, or have no values; RangeError for a float64 that float32 cannot hold. Each names it.
        """
        return np.concatenate(list(self._pieces(self.arrays_of(model), None, slice(0, self.size)).values()))

    def encrypt(
        self, encryptor: Any, model: Any, mask: Mask | None = None, *, since: Any = None, **options: Any
    ) -> Any:
        """Encrypt a model of this layout by any scheme's encryptor; return what that gives.

        Parameters
        ----------
        encryptor : such as ``sf.kahe.Encryptor(key)``.
        model : what :meth:`of` takes: trained arrays, or an update.
        mask : positions of the vector (P,), such as of :meth:`mask`; None for all.
        since : a model of this layout that is subtracted first, in float64 where one of both is: then what is
            encrypted is the update since then.
        options : of ``encryptor.encrypt``: ``round``, ``weight``, ``clip``.

        Raises what :meth:`flatten` and the encryptor do; a RangeError names the tensor, and an array instead
        of a mask is an ArrayTypeError.
        """
        if mask is not None:
            bits_of(mask)
        arrays, before = self.arrays_of(model), None if since is None else self.arrays_of(since)
        return self.encrypt_part(encryptor, arrays, before, slice(0, self.size), mask, **options)

    def encrypt_part(
        self,
        encryptor: Any,
        arrays: Mapping[str, Any],
        before: Mapping[str, Any] | None,
        part: slice,
        mask: Mask | None,
        **options: Any,
    ) -> Any:
        """Encrypt a part of the vector, of arrays of the layout; ``mask`` has the part's positions."""
        pieces = self._pieces(arrays, before, part)
        with ParameterLayout.of((name, piece.shape) for name, piece in pieces.items()).naming_tensors():
            return encryptor.encrypt(list(pieces.values()), mask, **options)

    def replaced(self, model: Any, values: NDArray[Any], mask: Mask | None = None) -> dict[str, Any]:
        """Return a model's arrays by name, with decrypted values instead of its own where the mask chose.

        ``values`` are (P,), or one for each position of the mask, divided already where they are to be a
        mean. What comes back is new, of the model's dtypes and devices, in its order, and shares no memory
        with it; what the mask did not choose stays bit for bit. Raises as :meth:`flatten`, and ParameterError
        for another number of values.
        """
        return self._changed(model, values, mask, adds=False)

    def moved(self, model: Any, update: NDArray[Any], mask: Mask | None = None) -> dict[str, Any]:
        """Return as :meth:`replaced` does, with the values added to the model's own."""
        return self._changed(model, update, mask, adds=True)

    def _changed(self, model: Any, values: NDArray[Any], mask: Mask | None, *, adds: bool) -> dict[str, Any]:
        leaves, placed = self.arrays_of(model), self._by_name
        where = None if mask is None else self.checked(mask).to_bool()
        made: dict[Any, Any] = {}
        changed = {}
        for name, leaf in leaves.items():
            # Names of one tensor get one; arrays of their own may be of other dtypes.
            memory = memory_of(leaf) or name
            if memory not in made:
                made[memory] = contiguous_copy(leaf) if name in placed else copied(leaf)
            changed[name] = made[memory]
        self.write(changed, slice(0, self.size), values, where, adds=adds)
        return changed

    def pieces(self, part: slice) -> Iterator[tuple[Place, slice, slice]]:
        """Yield each array that a part of the vector overlaps, and where: in the array, and in the part."""
        for place, (_, whole) in zip(self.places, self.slices(), strict=True):
            start, stop = max(whole.start, part.start), min(whole.stop, part.stop)
            if start < stop:
                own, within = (slice(start - one.start, stop - one.start) for one in (whole, part))
                yield place, own, within

    def write(
        self,
        arrays: Mapping[str, Any],
        part: slice,
        values: NDArray[Any],
        where: NDArray[np.bool_] | None,
        *,
        adds: bool,
    ) -> None:
        """Write a part's decrypted values, of its positions that ``where`` has, into contiguous arrays.

        Raises ParameterError for another number of them, before anything changes.
        """
        expected = part.stop - part.start if where is None else int(np.count_nonzero(where))
        if not isinstance(values, np.ndarray) or values.shape != (expected,) or values.dtype.kind != "f":
            shape = getattr(values, "shape", type(values).__name__)
            raise ParameterError(f"expected {expected:,} decrypted floats in one vector, got {shape}")
        taken = 0
        for place, own, within in self.pieces(part):
            chosen = None if where is None else where[within]
            count = own.stop - own.start if chosen is None else int(np.count_nonzero(chosen))
            with np.errstate(over="ignore"):
                numbers = np.ldexp(values[taken : taken + count].astype(np.float64), place.exponent)
            taken += count
            for target in {memory_of(arrays[name]): arrays[name] for name in place.among(arrays)}.values():
                put(piece_of(target, own), numbers, chosen, adds)

    def checked(self, mask: Mask) -> Mask:
        """Return a mask of the vector (P,).

        Raises ParameterError for another size, ArrayTypeError for an array.
        """
        if bits_of(mask).size != self.size:
            raise ParameterError(f"the mask is one of {mask.size:,} positions, the model has {self.size:,}")
        return mask

    def load(self, model: Any, arrays: Mapping[str, Any]) -> None:
        """Copy arrays by name, such as from :meth:`replaced`, into a module or a dict's arrays, in place.

        All is checked before anything changes, and all names of a tensor are written. Raises as
        :meth:`flatten`, and ParameterError for an array that cannot be written, and for one in which two
        different ones would end up.
        """
        targets, sources = self.arrays_of(model, overwritten=True), self.arrays_of(arrays)
        self.check_apart(targets)
        copies: dict[Any, tuple[str, Any, Any]] = {}
        for place in self.places:
            for name in place.among(targets):
                check_writable(name, targets[name])
                source = sources[place.name]
                first, _, other = copies.setdefault(
                    memory_of(targets[name]) or name, (name, targets[name], source)
                )
                if source is not other and not same_values(source, other):
                    raise ParameterError(
                        f"{first!r} and {name!r} are one tensor where they are to be loaded, and two with "
                        "other values each in the arrays: pass copies"
                    )
        for _, target, source in copies.values():
            copy_into(target, source)

    def check_apart(self, arrays: Mapping[str, Any]) -> None:
        check_apart((name, array) for name, array in arrays.items() if name in self._by_name)

    def mask(self, *patterns: Pattern) -> Mask:
        """Choose all positions of the arrays that names, globs or compiled regular expressions match.

        Masks by position mix with it: ``layout.mask("head.*") | sf.Mask.from_bool(...)``. Raises
        ParameterError.
        """
        chosen = {self._by_name[name] for name in _matching(self._by_name, patterns)}
        return Mask.from_bool(np.concatenate([np.full(place.size, place in chosen) for place in self.places]))

    def slices(self) -> Iterator[tuple[str, slice]]:
        return self.parameters.slices()

    def _pieces(
        self, leaves: Mapping[str, Any], since: Mapping[str, Any] | None, part: slice
    ) -> dict[str, NDArray[Any]]:
        """Return what a part of the vector has of each array, in order, uncopied where that serves."""
        pieces, dtype = {}, self.vector_dtype
        for place, own, _ in self.pieces(part):
            name, leaf = place.name, piece_of(leaves[place.name], own)
            piece = None if since is not None or place.exponent else as_it_lies(leaf, dtype)
            if piece is None:
                piece = np.empty(own.stop - own.start, dtype)
                scale_into(piece, name, leaf, since and piece_of(since[name], own), place.exponent)
            pieces[name] = piece
        return pieces

    def arrays_of(self, model: Any, *, overwritten: bool = False) -> dict[str, Any]:
        """Return a model's arrays by name, once they are those of the layout. Raises as :meth:`flatten`."""
        leaves = named_leaves(model)
        if unknown := leaves.keys() - self._by_name.keys() - set(self.apart):
            raise ParameterError(f"{_WRONG} {min(unknown)!r} is not in the layout")
        for place in self.places:
            if place.name not in leaves:
                raise ParameterError(f"{_WRONG} {place.name!r} is missing")
            _check_place(place, leaves, overwritten=overwritten)
        return leaves


_WRONG = "this is not a model of the layout:"


def _check_place(place: Place, leaves: Mapping[str, Any], *, overwritten: bool) -> None:
    first = leaves[place.name]
    for name in place.among(leaves):
        leaf = leaves[name]
        if not is_float(name, leaf):
            is_of = f"{name!r} is of {dtype_of(leaf)}, and in the layout of {place.dtype}"
            raise ArrayTypeError(f"{_WRONG} {is_of}")
        if tuple(leaf.shape) != place.shape:
            has = f"{name!r} has the shape {tuple(leaf.shape)}, and in the layout {place.shape}"
            raise ParameterError(f"{_WRONG} {has}")
        if not isinstance(leaf, np.ndarray) and leaf.is_meta:
            raise ArrayTypeError(
                f"{name!r} is a tensor on the device meta, without values: load the model first"
            )
        alike = overwritten or leaf is first or memory_of(leaf) == memory_of(first)
        if not alike and not same_values(leaf, first):
            raise ParameterError(
                f"{name!r} has other values than {place.name!r}, and in the layout they are one tensor: make "
                "it of a model where they are two, or pass one of both"
            )


class ModelParts:
    """Parts 0, 1, ... of a layout's vector (P,), of ``most_values`` each, the last one shorter.

    A round is one for all parts: each is summed, answered for and opened under its number. The result is a
    model only if all of them are of the same clients. Schemes whose clients enrol know parts:
    ``sf.kahe.Encryptor(key, part=number)``.

    Parameters
    ----------
    layout : the model's.
    most_values : number of values of a part; 2**24 are 64 MiB of float32, and the memory of a few such
        vectors for each role.

    Raises ParameterError for less than one value.
    """

    def __init__(self, layout: ModelLayout, most_values: int = 2**24) -> None:
        self.layout = layout
        self.most_values = as_count(most_values, "most_values")

    def __len__(self) -> int:
        return math.ceil(self.layout.size / self.most_values)

    def size(self, number: int) -> int:
        part = as_unsigned(number, "a part's number")
        if part >= len(self):
            raise ParameterError(f"there is no part {part} of {len(self)}")
        return min(self.most_values, self.layout.size - part * self.most_values)

    def positions_of_each(self, mask: Mask | None = None) -> Iterator[tuple[int, Mask]]:
        """Yield each part that has something to encrypt, ascending, with its positions to encrypt.

        These are all, or those of a mask of the whole vector (P,).
        """
        for number, where in self._parts(mask):
            yield number, Mask.full(self.size(number)) if where is None else Mask.from_bool(where)

    def _parts(self, mask: Mask | None) -> Iterator[tuple[int, NDArray[np.bool_] | None]]:
        chosen = None if mask is None else self.layout.checked(mask).to_bool()
        for number in range(len(self)):
            where = None if chosen is None else chosen[self._slice(number)]
            if where is None or where.any():
                yield number, where

    def encrypt(
        self,
        encryptor_of: Callable[[int], Any],
        model: Any,
        mask: Mask | None = None,
        *,
        since: Any = None,
        **options: Any,
    ) -> Iterator[tuple[int, Any]]:
        """Encrypt a model part by part: yield each part's number, and what the encryptor gives for it.

        Parameters
        ----------
        encryptor_of : returns the encryptor of a part: ``lambda part: sf.kahe.Encryptor(key, part=part)``.
        model : of the layout; arrays may be mapped from files, and are read part by part.
        mask : positions of the whole vector (P,); None for all. Parts without any are left out.
        since : a model that is subtracted first.
        options : of ``encryptor.encrypt``: ``round``, ``weight``, ``clip``.

        Raises as :meth:`ModelLayout.encrypt`; where a part is refused, those before it have been encrypted:
        none of them must be used, nor another model be encrypted in this round.
        """
        arrays = self.layout.arrays_of(model)
        before = None if since is None else self.layout.arrays_of(since)
        for number, where in self._parts(mask):
            positions, part = None if where is None else Mask.from_bool(where), self._slice(number)
            encryptor = encryptor_of(number)
            yield number, self.layout.encrypt_part(encryptor, arrays, before, part, positions, **options)

    def load(
        self, model: Any, opened: Iterable[tuple[int, NDArray[Any]]], mask: Mask | None = None, *, adds: bool
    ) -> None:
        """Write opened parts into a model's arrays, in place, each as it comes.

        Parameters
        ----------
        model : of the layout, its arrays contiguous and writable; files that are mapped for writing serve.
        opened : numbers and values of all parts, in any order, each once: floats, one for each position,
            divided already where they are to be a mean.
        mask : the one that they were encrypted under.
        adds : whether they are added to what is there, as updates are, or replace it.

        Raises ParameterError for a part that does not exist, comes twice, or has another number of values;
        and at the end if parts are missing: those before are then in the model, which is none of any round.
        """
        targets, left = self.layout.arrays_of(model, overwritten=True), dict(self._parts(mask))
        self.layout.check_apart(targets)
        for name in (name for place in self.layout.places for name in place.among(targets)):
            check_writable(name, targets[name])
            check_contiguous(name, targets[name])
        for number, values in opened:
            if number not in left:
                raise ParameterError(f"part {number!r} came twice, or there is none such")
            self.layout.write(targets, self._slice(number), values, left.pop(number), adds=adds)
        if left:
            raise ParameterError(
                f"part {min(left)} is missing, of {len(left)}: the model now mixes several rounds, load "
                "the whole model again"
            )

    def _slice(self, number: int) -> slice:
        start = number * self.most_values
        return slice(start, start + self.size(number))
