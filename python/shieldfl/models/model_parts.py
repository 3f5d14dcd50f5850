"""Large models: encrypted, added and opened in parts, so that nobody holds more of them at a time than one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.models.leaves import (
    check_contiguous,
    check_writable,
)
from shieldfl.models.model_layout import ModelLayout


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
        return math.ceil(self.layout.size / self.most_values)

    def size(self, number: int) -> int:
        part = as_unsigned(number, "a part's number")
        if part >= len(self):
            raise ParameterError(f"there is no part {part} of {len(self)}")
        return min(self.most_values, self.layout.size - part * self.most_values)

    def positions_of_each(self, mask: Mask | None = None) -> Iterator[tuple[int, Mask]]:
        """Yield each part that has something to encrypt, ascending, with which of its values are.

        All are, or those of a mask of the whole vector (P,).
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

        Raises as :meth:`ModelLayout.encrypt`; where a part is refused, those before it have been encrypted: none of
        them must be used, nor another model be encrypted in this round.
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
        opened : numbers and values of all parts, in any order, each once: floats, one for each position, divided
            already where they are to be a mean.
        mask : that they were encrypted under.
        adds : whether they are added to what is there, as updates are, or take its place.

        Raises ParameterError for a part that there is not, comes twice, or has another number of values; and at the
        end where parts are missing: what came before is then in the model, which is none of any round.
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
                f"part {min(left)} is missing, of {len(left)}: the model is of several rounds now, load the whole one "
                "again"
            )

    def _slice(self, number: int) -> slice:
        start = number * self.most_values
        return slice(start, start + self.size(number))
