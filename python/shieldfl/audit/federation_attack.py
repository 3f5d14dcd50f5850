"""What an attack is that has federations of its own: it takes more than one update to attack, or clients of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.result import Cell
from shieldfl.audit.views.parties import Party
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset

__all__ = ["FederationAttack"]


class FederationAttack(ABC):
    """An attack on a method, which runs the federations that it takes.

    Parameters
    ----------
    config : of the audit.
    settings : of the methods.
    dataset : that clients' samples are drawn from.
    parties : that are asked about.
    """

    name: ClassVar[str]
    """As in tables and on the command line."""
    source: ClassVar[str]
    measured_by: ClassVar[str]
    """The name of its figure."""
    is_told: ClassVar[bool] = False
    """Whether the forms of its cells are noted for every reader: they say what the attack came to, in words."""

    def __init__(
        self, config: AuditConfig, settings: MethodSettings, dataset: Dataset, parties: Sequence[Party]
    ) -> None:
        self._config, self._settings = config, settings
        self._dataset, self._parties = dataset, tuple(parties)

    @abstractmethod
    def cells(self, method: str, on_federation: Callable[[str, int], None]) -> list[Cell]:
        """Attack a method, and return a cell for each party; ``on_federation`` is told of each federation.

        Raises ParameterError where the attack does not apply to the method, and what the method refuses.
        """
