"""How a method's epsilon is to be read: declared on the method's class, never assumed."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl.errors import ParameterError

__all__ = ["NO_NOISE", "PrivacyReading"]


@dataclass(frozen=True)
class PrivacyReading:
    """What one method's figures say.

    Raises ParameterError unless unit, adversary and neighbours are all given, or none is.
    """

    unit: str | None
    """``"client"``: with all that it sends; ``"sample"``: of one client; None for a method without noise."""
    adversary: str | None
    """Against whom a finite epsilon holds."""
    neighbours: str | None
    """Which two runs cannot be told apart: the relation that is proved."""
    meaning: str
    """A sentence for the reader."""

    def __post_init__(self) -> None:
        stated = (self.adversary, self.neighbours)
        if self.unit not in ("client", "sample", None) or any(
            (one is None) != (self.unit is None) for one in stated
        ):
            raise ParameterError(
                "a privacy reading states unit (client or sample), adversary and neighbours, or none of them"
            )
        if not self.meaning:
            raise ParameterError("a privacy reading says in a sentence what its figures mean")


NO_NOISE = PrivacyReading(
    None,
    None,
    None,
    "adds no noise, so there is no ε: ∞ where something that depends on the data is readable, – where nothing is; what "
    "opened sums, and with them the global model, tell is not bounded",
)
"""For methods that encrypt, or protect nothing."""
