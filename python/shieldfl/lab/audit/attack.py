"""What an attack is: on one update, or on a method by federations of its own; and what it hands back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.result import Cell
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.audit.views.view import Party
from shieldfl.lab.simulation.data import Dataset
from shieldfl.methods.settings import MethodSettings

__all__ = ["FederationAttack", "ModelPlantingAttack", "Recovered", "UpdateAttack"]


@dataclass(frozen=True)
class Recovered:
    """What an attack believes that a client trained on."""

    label_counts: NDArray[np.int64] | None = None
    """How many samples of each class, (classes,); None where the attack says nothing of labels."""
    images: torch.Tensor | None = None
    """Samples, float32 (m, *sample_shape), in any order; m may be 0. None where the attack says nothing of samples."""
    remark: str = ""
    """What a reader of its figure must know, such as why there are no samples."""


class UpdateAttack(ABC):
    """An attack on one client's update of one round.

    An attack is stateless: the same update and seed give the same result.
    """

    name: ClassVar[str]
    """As in tables and on the command line."""
    recovers: ClassVar[Literal["labels", "images"]]
    source: ClassVar[str]
    """The paper, with its equation or algorithm."""

    @abstractmethod
    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Say in one sentence why this attack cannot be tried on such an update; None where it can."""

    @abstractmethod
    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Attack an update. Values that are not ``known`` are guesses that others have filled in."""


class ModelPlantingAttack(UpdateAttack):
    """An attack of a server that chooses the model which clients train from."""

    rows: int = 0
    """Of the planted layer; 0 where there is no saying."""

    def with_rows(self, rows: int) -> ModelPlantingAttack:
        """Return the attack with a layer of so many rows, at least 2: of methods under which each parameter takes long.

        By default it is this attack itself.
        """
        return self

    @abstractmethod
    def planted(
        self, model: nn.Module, sample_shape: tuple[int, ...], public: torch.Tensor, seed: int
    ) -> nn.Module:
        """Return a model with the trap in it, to be sent in the place of ``model``.

        ``public`` are samples that the server has of its own, float32 (n, *sample_shape), of a like distribution.
        """

    def lasting(self) -> ModelPlantingAttack:
        """Return the attack with a layer that outlives rounds of training, for it to be read off in a later one.

        Where clients' first rounds are not on their own data. By default it is this attack itself.
        """
        return self


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
