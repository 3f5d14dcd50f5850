"""Large models: encrypted, added and opened in parts, so that nobody holds more of them at a time than one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask, bits_of
from shieldfl.models.leaves import (
    check_contiguous,
    check_writable,
    copy_into,
    memory_of,
    piece_of,
    scale_into,
    unscaled,
    with_values,
)
from shieldfl.models.model_layout import ModelLayout, Place
from shieldfl.models.parameter_layout import ParameterLayout


class ModelParts:
    """Parts 0, 1, ... of a layout's vector (P,), of ``most_values`` each, the last one shorter.

    A round is one for all parts: each is summed, answered for and opened under its number, and the model that comes of
    them is one only where all of them are of the same clients. Schemes whose clients enrol know parts:
    ``sf.kahe.Encryptor(key, part=number)``.

    Parameters
    ----------
    layout : of the model.
    most_values : of a part; 2**24 values are 64 MiB of float32, and the memory of a few such vectors for each role.

    Raises ParameterError for less than one value.
    """

    def __init__(self, layout: ModelLayout, most_values: int = 2**24) -> None:
        self.layout = layout
        self.most_values = as_count(most_values, "most_values")

    def __len__(self) -> int:
        return (self.layout.size + self.most_values - 1) // self.most_values

    def size(self, number: int) -> int:
        part = as_unsigned(number, "a part's number")
        if part >= len(self):
            raise ParameterError(f"there is no part {part} of {len(self)}")
        return min(self.most_values, self.layout.size - part * self.most_values)

    def positions(self, number: int, mask: Mask | None = None) -> Mask:
        """Return which of a part's values are encrypted: all, or those of a mask of the whole vector (P,)."""
        chosen = self._chosen(mask)
        return Mask.full(self.size(number)) if chosen is None else Mask.from_bool(chosen[self._slice(number)])

    def positions_of_each(self, mask: Mask | None = None) -> Iterator[tuple[int, Mask]]:
        """Yield each part that has something to encrypt, ascending, with its :meth:`positions`."""
        chosen = self._chosen(mask)
        for number in self._numbers(chosen):
            yield (
                number,
                self.positions(number) if chosen is None else Mask.from_bool(chosen[self._slice(number)]),
            )

    def numbers(self, mask: Mask | None = None) -> list[int]:
        return self._numbers(self._chosen(mask))

    def _numbers(self, chosen: NDArray[np.bool_] | None) -> list[int]:
        every = range(len(self))
        return [number for number in every if chosen is None or chosen[self._slice(number)].any()]

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

        Raises as :meth:`ModelLayout.encrypt`; where a part is refused, those before it have been encrypted: none of
        them must be used, nor another model be encrypted in this round.
        """
        arrays = self.layout.arrays_of(model)
        before = None if since is None else self.layout.arrays_of(since)
        chosen = self._chosen(mask)
        for number in self._numbers(chosen):
            vector = self._vector(number, arrays, before)
            positions = None if chosen is None else Mask.from_bool(chosen[self._slice(number)])
            pieces = ((place.name, (own.stop - own.start,)) for place, own, _ in self._pieces(number))
            with ParameterLayout.of(pieces).naming_tensors():
                batch = encryptor_of(number).encrypt(vector, positions, **options)
            yield number, batch

    def load(
        self, model: Any, opened: Iterable[tuple[int, NDArray[Any]]], mask: Mask | None = None, *, adds: bool
    ) -> None:
        """Write opened parts into a model's arrays, in place, each as it comes.

        Parameters
        ----------
        model : of the layout, its arrays contiguous and writable; files that are mapped for writing serve.
        opened : numbers and values of all parts, in any order, each once: floats, one for each position, divided
            already where they are to be a mean.
        mask : that they were encrypted under.
        adds : whether they are added to what is there, as updates are, or take its place.

        Raises ParameterError for a part that there is not, comes twice, or has another number of values; and at the
        end where parts are missing: what came before is then in the model, which is none of any round.
        """
        targets, chosen = self._writable(model), self._chosen(mask)
        left = set(self._numbers(chosen))
        for number, values in opened:
            if number not in left:
                raise ParameterError(f"part {number!r} came twice, or there is none such")
            left.discard(number)
            where = None if chosen is None else chosen[self._slice(number)]
            expected = self.size(number) if where is None else int(np.count_nonzero(where))
            if not isinstance(values, np.ndarray) or values.shape != (expected,) or values.dtype.kind != "f":
                raise ParameterError(f"part {number} needs {expected:,} opened floats in one vector")
            self._write(number, targets, values, where, adds=adds)
        if left:
            raise ParameterError(
                f"part {min(left)} is missing, of {len(left)}: the model is of several rounds now, load the whole one "
                "again"
            )

    def _write(
        self,
        number: int,
        targets: Mapping[str, list[Any]],
        values: NDArray[Any],
        where: NDArray[np.bool_] | None,
        *,
        adds: bool,
    ) -> None:
        taken = 0
        for place, own, within in self._pieces(number):
            chosen = None if where is None else where[within]
            count = own.stop - own.start if chosen is None else int(np.count_nonzero(chosen))
            numbers = unscaled(values[taken : taken + count], place.exponent)
            taken += count
            for target in targets[place.name]:
                there = piece_of(target, own)
                copy_into(there, with_values(there, numbers, chosen, adds))

    def _writable(self, model: Any) -> dict[str, list[Any]]:
        """Return, by the first name of each array, all of its arrays in the model, each memory once."""
        arrays = self.layout.arrays_of(model, overwritten=True)
        self.layout.check_apart(arrays)
        found: dict[str, list[Any]] = {}
        for place in self.layout.places:
            own = {}
            for name in (name for name in place.names if name in arrays):
                check_writable(name, arrays[name])
                check_contiguous(name, arrays[name])
                own[memory_of(arrays[name])] = arrays[name]
            found[place.name] = list(own.values())
        return found

    def _slice(self, number: int) -> slice:
        start = number * self.most_values
        return slice(start, start + self.size(number))

    def _pieces(self, number: int) -> Iterator[tuple[Place, slice, slice]]:
        """Yield each array of which a part has something, with where that lies in the array and in the part."""
        part = self._slice(number)
        for place, (_, whole) in zip(self.layout.places, self.layout.slices(), strict=True):
            start, stop = max(whole.start, part.start), min(whole.stop, part.stop)
            if start < stop:
                own, within = (slice(start - one.start, stop - one.start) for one in (whole, part))
                yield place, own, within

    def _vector(
        self, number: int, arrays: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> NDArray[Any]:
        vector = np.empty(self.size(number), self.layout.vector_dtype)
        for place, own, within in self._pieces(number):
            since = None if before is None else piece_of(before[place.name], own)
            scale_into(vector[within], place.name, piece_of(arrays[place.name], own), since, place.exponent)
        return vector

    def _chosen(self, mask: Mask | None) -> NDArray[np.bool_] | None:
        if mask is None:
            return None
        if bits_of(mask).size != self.layout.size:
            raise ParameterError(
                f"the mask is one of {mask.size:,} positions, the model has {self.layout.size:,}"
            )
        return mask.to_bool()
