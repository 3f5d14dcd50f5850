"""Settings of DictPFL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.methods.dict_pfl.consistent_pruning import PruningSettings

__all__ = ["DictPflSettings", "check_factorisation"]


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
        check_factorisation(self.rank, self.train_fully)
        for name in ("value_bits", "fraction_bits"):
            as_unsigned(getattr(self, name), name)


def check_factorisation(rank: int, train_fully: Sequence[str]) -> int:
    """Return the rank as an int. Raises ParameterError for what no model, whatever its layers, is factorised with."""
    number = as_unsigned(rank, "rank")
    if number < 1:
        raise ParameterError(f"rank must be at least 1, got {number}")
    is_sequence = isinstance(train_fully, Sequence) and not isinstance(train_fully, str)
    if not is_sequence or not all(isinstance(name, str) for name in train_fully):
        raise ParameterError("train_fully must be a tuple of modules' names")
    return number
