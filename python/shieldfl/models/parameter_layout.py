"""Where the tensors of a model lie in its flat vector."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from shieldfl.errors import ParameterError, RangeError


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
        """Return the name of the tensor that a position of the flat vector lies in; ParameterError for none."""
        if not 0 <= position < self.size:
            raise ParameterError(f"position {position} is outside of the {self.size} parameters")
        return self.names[bisect_right(self.offsets, position) - 1]

    @contextmanager
    def naming_tensors(self) -> Iterator[None]:
        """Let a RangeError of an update of this layout name the tensor: encrypt inside of this block.

        An update may leave out the last tensors, as one without buffers does. Errors of others pass as they are.
        """
        try:
            yield
        except RangeError as error:
            if error.position is None or error.size not in self.offsets[1:]:
                raise
            named = RangeError(f"{error} (the tensor {self.name_of(error.position)!r})")
            named.position, named.size = error.position, error.size
            raise named from None
