"""Where each array of a model lies in the vector that is encrypted, and what does not."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ArrayTypeError, ParameterError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.parameter_layout import ParameterLayout
from shieldfl.torch.leaves import (
    array_of,
    as_like,
    dtype_of,
    is_float,
    is_frozen,
    memory_of,
    named_leaves,
)

__all__ = ["BATCH_NORM_STATISTICS", "ModelLayout"]

BATCH_NORM_STATISTICS = ("*running_mean", "*running_var")
"""PyTorch's names for what BatchNorm keeps of the data: of raw pixels they are far larger than parameters."""

Pattern = str | re.Pattern[str]
_VERSION = 1
_MOST_EXPONENT = 1_000


@dataclass(frozen=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    dtype: str
    exponent: int
    """Its values are divided by two to this before they are encrypted, and multiplied afterwards."""
    aliases: tuple[str, ...]
    """Other names of the same memory."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class ModelLayout:
    """Names, shapes and dtypes of a model's float arrays, in a fixed order: that of the vector, (P,), they make.

    ``layout = ModelLayout.of(model)`` once, then :meth:`encrypt` on every client, and :meth:`moved` or :meth:`replaced`
    with what was decrypted. All clients need the same layout: compare :attr:`digest`, or send :meth:`to_json`.

    Integers and truth values, such as BatchNorm's count of batches, stay apart: they are neither encrypted nor changed.
    A tensor under several names is in it once.
    """

    places: tuple[_Place, ...]
    apart: tuple[str, ...]
    """Names of arrays that are not encrypted: not floats, frozen or left out."""

    @classmethod
    def of(
        cls,
        model: Any,
        *,
        include: Pattern | Sequence[Pattern] = "*",
        exclude: Pattern | Sequence[Pattern] = (),
        trainable_only: bool = False,
        ranges: Mapping[str, float] | None = None,
        limit: float = 8.0,
    ) -> ModelLayout:
        """Lay out a model.

        Parameters
        ----------
        model : a torch module; a state dict, named parameters, or a subset of them, such as an adapter's; any dict of
            NumPy arrays, torch tensors, or such dicts, whose names are joined by dots. Floats of 16, 32 or 64 bits,
            bfloat16 too.
        include, exclude : names, globs (``"encoder.*"``) or compiled regular expressions, which have to match a whole
            name. What is not included, or is excluded, stays apart; of a tensor with several names, one decides.
        trainable_only : whether parameters that are frozen (``requires_grad`` is False) stay apart.
        ranges : by glob, the largest magnitude of values that are larger than ``limit``: they are scaled by a power of
            two, which loses nothing but that their step is larger by the same.
        limit : the largest magnitude that the encryption is set up for.

        Raises ParameterError for a model with nothing to encrypt, a pattern that matches nothing, and a name that comes
        twice; ArrayTypeError for what is no array, or is of other floats: both name it.
        """
        leaves = named_leaves(model)
        included, excluded = _matching(leaves, include), _matching(leaves, exclude) if exclude else set()
        exponents = _exponents(leaves, ranges or {}, limit)
        names_of: dict[Any, list[str]] = {}
        for name, leaf in leaves.items():
            names_of.setdefault(memory_of(leaf) or name, []).append(name)
        places: list[_Place] = []
        for name, *aliases in names_of.values():
            leaf, names = leaves[name], {name, *aliases}
            # One tensor is encrypted under all of its names, or apart under all.
            chosen = names & included and not names & excluded
            if chosen and is_float(name, leaf) and not (trainable_only and is_frozen(leaf)):
                shape = tuple(int(size) for size in leaf.shape)
                exponent = max(exponents.get(one, 0) for one in names)
                places.append(_Place(name, shape, dtype_of(leaf), exponent, tuple(aliases)))
        placed = {name for place in places for name in (place.name, *place.aliases)}
        layout = cls(tuple(places), tuple(name for name in leaves if name not in placed))
        if not layout.size:
            raise ParameterError(
                "the model has no floats that are to be encrypted: look at include and exclude"
            )
        return layout

    @property
    def size(self) -> int:
        """How many values P are encrypted."""
        return sum(place.size for place in self.places)

    @property
    def parameters(self) -> ParameterLayout:
        """Names, shapes and offsets alone."""
        return ParameterLayout(
            tuple(place.name for place in self.places),
            tuple(place.shape for place in self.places),
            tuple(accumulate((place.size for place in self.places), initial=0)),
        )

    @property
    def digest(self) -> str:
        """What two layouts have in common where one's vectors are the other's, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Encode."""
        places = [asdict(place) for place in self.places]
        return json.dumps({"version": _VERSION, "places": places, "apart": self.apart}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ModelLayout:
        """Read what :meth:`to_json` wrote. Raises WireFormatError."""
        try:
            read = json.loads(text)
            if read["version"] != _VERSION:
                raise WireFormatError(
                    "the layout is of another version of shieldfl: install the same one everywhere"
                )
            places = tuple(
                _Place(
                    str(one["name"]),
                    tuple(_natural(size) for size in one["shape"]),
                    str(one["dtype"]),
                    _natural(one["exponent"], _MOST_EXPONENT),
                    tuple(str(name) for name in one["aliases"]),
                )
                for one in read["places"]
            )
            layout = cls(places, tuple(str(name) for name in read["apart"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise WireFormatError("this is no layout of a model that this version can read") from error
        names = [name for place in places for name in (place.name, *place.aliases)] + list(layout.apart)
        if len(names) != len(set(names)) or not layout.size:
            raise WireFormatError("this is no layout that a model has: names come twice, or there are none")
        return layout

    def flatten(self, model: Any) -> NDArray[Any]:
        """Copy a model of this layout into one vector (P,): float32, or float64 where one of its arrays is.

        Arrays that stay apart may be missing, and floats be of other widths than the layout's. Raises ParameterError
        for arrays that are missing, unknown or of another shape, ArrayTypeError for what are no floats; each names it.
        """
        leaves = self._checked(model)
        wide = any(place.dtype == "float64" for place in self.places)
        vector = np.empty(self.size, np.float64 if wide else np.float32)
        for place, (_, part) in zip(self.places, self.slices(), strict=True):
            numbers = array_of(leaves[place.name]).reshape(-1)
            if place.exponent:
                np.multiply(numbers, 2.0**-place.exponent, out=vector[part], casting="same_kind")
            else:
                np.copyto(vector[part], numbers, casting="same_kind")
        return vector

    def encrypt(
        self, encryptor: Any, model: Any, mask: Mask | None = None, *, since: Any = None, **options: Any
    ) -> Any:
        """Encrypt a model of this layout by any scheme's encryptor; return what that gives.

        Parameters
        ----------
        encryptor : such as ``sf.kahe.Encryptor(key)``.
        model : what :meth:`of` takes: trained arrays, or an update.
        mask : positions of the vector (P,), such as of :meth:`mask`; None for all.
        since : a model of this layout that is subtracted first: then what is encrypted is the update since then.
        options : of ``encryptor.encrypt``: ``round``, ``weight``, ``clip``.

        Raises what :meth:`flatten` and the encryptor do; a RangeError names the tensor.
        """
        vector = self.flatten(model)
        if since is not None:
            vector -= self.flatten(since)
        with self.parameters.naming_tensors():
            return encryptor.encrypt(vector, mask, **options)

    def replaced(self, model: Any, values: NDArray[Any], mask: Mask | None = None) -> dict[str, Any]:
        """Return a model's arrays by name, with decrypted values in the place of its own where the mask chose.

        Parameters
        ----------
        model : of this layout: where it is not encrypted, or not chosen, its values stay.
        values : (P,), or one for each position of the mask, as decryption gives them; divided already where they are to
            be a mean.
        mask : that the values were encrypted under.

        Returns new arrays, or tensors, of the model's dtypes and devices, in its order; those that stay apart are the
        model's own. ``module.load_state_dict`` takes them. Raises ParameterError for another number of values.
        """
        return self._changed(model, values, mask, adds=False)

    def moved(self, model: Any, update: NDArray[Any], mask: Mask | None = None) -> dict[str, Any]:
        """Return as :meth:`replaced` does, with the values added to the model's own."""
        return self._changed(model, update, mask, adds=True)

    def _changed(self, model: Any, values: NDArray[Any], mask: Mask | None, *, adds: bool) -> dict[str, Any]:
        leaves = self._checked(model)
        if mask is not None and mask.size != self.size:
            raise ParameterError(f"the mask is one of {mask.size:,} positions, the model has {self.size:,}")
        expected = self.size if mask is None else mask.count
        if not isinstance(values, np.ndarray) or values.shape != (expected,) or values.dtype.kind != "f":
            shape = getattr(values, "shape", type(values).__name__)
            raise ParameterError(f"expected {expected:,} decrypted floats in one vector, got {shape}")
        vector = self.flatten(leaves).astype(np.float64)
        given = np.ascontiguousarray(values, np.float64)
        if mask is None:
            vector = vector + given if adds else given
        elif adds:
            mask.scatter_add(given, vector)
        else:
            mask.scatter(given, vector)
        found = dict(leaves)
        for place, (_, part) in zip(self.places, self.slices(), strict=True):
            made = as_like(leaves[place.name], vector[part] * 2.0**place.exponent)
            found |= {name: made for name in (place.name, *place.aliases) if name in leaves}
        return found

    def load(self, model: Any, arrays: Mapping[str, Any]) -> None:
        """Copy arrays by name, such as :meth:`replaced` returned, into a module or into a dict's arrays, in place.

        All is checked before anything changes. Raises as :meth:`flatten`.
        """
        targets, sources = self._checked(model), self._checked(arrays)
        for place in self.places:
            target, numbers = targets[place.name], sources[place.name]
            if isinstance(target, np.ndarray):
                target[...] = array_of(numbers)
            else:
                target.data.copy_(as_like(target, array_of(numbers)))

    def mask(self, *patterns: Pattern) -> Mask:
        """Choose all positions of the arrays that are called so: names, globs or compiled regular expressions.

        Masks by position mix with it: ``layout.mask("head.*") | sf.Mask.from_bool(...)``. Raises ParameterError for
        a pattern that no encrypted array's name matches, and where there is none.
        """
        names = {name: place for place in self.places for name in (place.name, *place.aliases)}
        chosen = {names[name] for name in _matching(names, patterns)}
        return Mask.from_bool(np.concatenate([np.full(place.size, place in chosen) for place in self.places]))

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Yield the name of each array and its slice of the vector, in order."""
        return self.parameters.slices()

    def _checked(self, model: Any) -> dict[str, Any]:
        """Return a model's arrays by name, once they are those of the layout."""
        leaves = named_leaves(model)
        aliases = {name for place in self.places for name in place.aliases}
        known = {place.name for place in self.places} | aliases | set(self.apart)
        missing = [place.name for place in self.places if place.name not in leaves]
        unknown = [name for name in leaves if name not in known]
        if missing or unknown:
            which = f"{missing[0]!r} is missing" if missing else f"{unknown[0]!r} is not in the layout"
            raise ParameterError(f"this is not a model of the layout: {which}")
        for place in self.places:
            leaf = leaves[place.name]
            if tuple(leaf.shape) != place.shape:
                raise ParameterError(
                    f"{place.name!r} has the shape {tuple(leaf.shape)}, and in the layout {place.shape}"
                )
            if not is_float(place.name, leaf):
                raise ArrayTypeError(
                    f"{place.name!r} is of {dtype_of(leaf)}, and in the layout of {place.dtype}"
                )
        return leaves


def _natural(value: Any, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no whole number, or one that nothing has")
    return value


def _matching(names: Iterable[str], patterns: Pattern | Sequence[Pattern]) -> set[str]:
    given = [patterns] if isinstance(patterns, str | re.Pattern) else list(patterns)
    if not given:
        raise ParameterError("give at least one name, glob or regular expression")
    listed, found = list(names), set()
    for pattern in given:
        if isinstance(pattern, re.Pattern):
            matched = {name for name in listed if pattern.fullmatch(name)}
        else:
            matched = {name for name in listed if name == pattern or fnmatchcase(name, pattern)}
        if not matched:
            shown = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
            some = ", ".join(listed[:3])
            raise ParameterError(f"no array of the model matches {shown!r}: its names are like {some}")
        found |= matched
    return found


def _exponents(names: Iterable[str], ranges: Mapping[str, float], limit: float) -> dict[str, int]:
    if not (math.isfinite(limit) and limit > 0):
        raise ParameterError("limit must be a number above 0")
    found: dict[str, int] = {}
    listed = list(names)
    for pattern, largest in ranges.items():
        if not (math.isfinite(largest) and largest > 0):
            raise ParameterError(f"the range of {pattern!r} must be a number above 0")
        exponent = max(0, math.ceil(math.log2(largest) - math.log2(limit)))
        if exponent > _MOST_EXPONENT:
            raise ParameterError(f"the range of {pattern!r} is too large")
        found |= dict.fromkeys(_matching(listed, pattern), exponent)
    return found
