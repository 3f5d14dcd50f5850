"""Settings of DictPFL."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.methods.consistent_pruning import PruningSettings

__all__ = ["DictPflSettings"]


@dataclass(frozen=True)
class DictPflSettings(PruningSettings):
    """How layers are factorised, positions pruned and values encrypted. Raises ParameterError for values out of range.

    What prunes is described at ``PruningSettings``.
    """

    rank: int = 4
    """r, at least 1 and at most the smaller side of every weight matrix that is factorised."""
    train_fully: tuple[str, ...] = ()
    """Modules, by their names in the model, whose weights are trained themselves and not factorised."""
    value_bits: int = 24
    """Of an encrypted value."""
    fraction_bits: int = 20
    """Of an encrypted value, behind the binary point."""

    def __post_init__(self) -> None:
        """Check what does not need the model."""
        super().__post_init__()
        if as_unsigned(self.rank, "rank") < 1:
            raise ParameterError(f"rank must be at least 1, got {self.rank}")
        if not isinstance(self.train_fully, tuple | list) or not all(
            isinstance(name, str) for name in self.train_fully
        ):
            raise ParameterError("train_fully must be a tuple of modules' names")
        for name in ("value_bits", "fraction_bits"):
            as_unsigned(getattr(self, name), name)
