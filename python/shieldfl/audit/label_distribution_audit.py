"""What is clear beside an update, and what it tells of a client's labels: sizes of messages, and masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.audit.attacks.property_inference import (
    InferenceFigures,
    LabelInference,
    PlayedClients,
    mask_view,
)
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.federation_attack import FederationAttack
from shieldfl.audit.parties import Party
from shieldfl.audit.result import Cell
from shieldfl.audit.trial import Trial
from shieldfl.audit.views import View
from shieldfl.errors import WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.settings import MethodSettings
from shieldfl.parameter_layout import ParameterLayout
from shieldfl.simulation.data import Dataset

__all__ = ["LabelDistributionAudit", "clear_facts"]

_MEASURED_BY = "correlation"
_ALPHA = 0.5
"""Dirichlet concentration of the clients' labels."""
_SAMPLES = 32
_OF_VALUES = ("values", "update")
"""Parts that are the update itself, which other attacks look at."""


def clear_facts(view: View, layout: ParameterLayout, classes: int) -> dict[str, float]:
    """Return, by name, numbers about the victim's messages that are not values of its update.

    Of every part its length in bytes; of a part that is a mask of the parameters also its share of each tensor, and of
    each class's weights in the last layer.
    """
    facts: dict[str, float] = {}
    for number, one in enumerate(
        one for one in view.deliveries if _is_of(one.step, one.details, view.victim)
    ):
        for name, part in one.message.items():
            if name in _OF_VALUES:
                continue
            facts[f"{number} {name} bytes"] = float(len(part))
            try:
                mask = Mask.from_bytes(part, expected_size=layout.size)
            except WireFormatError:
                continue
            shares = mask_view(mask.to_bool(), layout, classes)
            facts |= {f"{number} {name} {place}": float(share) for place, share in enumerate(shares)}
    return facts


def _is_of(step: str, details: tuple[int | str, ...], victim: int) -> bool:
    return (step == "receive" and victim in details[1:]) or (step == "enrol" and victim in details[:1])


class LabelDistributionAudit(FederationAttack):
    """Runs federations of clients of public data, learns what their labels show in, and predicts those of others.

    The attacker's clients have test samples, those that are attacked training samples. The audit's samples and rounds
    are not used.
    """

    name: ClassVar[str] = "label-distribution"
    source: ClassVar[str] = (
        "Ateniese et al., Hacking smart machines with smarter ones, 2015, section 3; the views are ours"
    )

    def __init__(
        self, config: AuditConfig, settings: MethodSettings, dataset: Dataset, parties: Sequence[Party]
    ) -> None:
        super().__init__(replace(config, samples=_SAMPLES, rounds=1), settings, dataset, parties)
        self.played, self.attacked = 25, 15
        """Federations of the attacker's own, and of those that are attacked."""

    def cells(self, method: str, on_federation: Callable[[str, int], None]) -> list[Cell]:
        """Return a cell for each party: how what it sees of a method's clients goes together with their labels."""
        dataset = self._dataset
        public = replace(dataset, train_features=dataset.test_features, train_labels=dataset.test_labels)
        own, own_truth = self._facts(method, public, self.played, 0, on_federation)
        others, truth = self._facts(method, dataset, self.attacked, self.played, on_federation)
        return [
            self._cell(method, party, own[party.name], own_truth, others[party.name], truth)
            for party in self._parties
        ]

    def _facts(
        self,
        name: str,
        dataset: Dataset,
        federations: int,
        first: int,
        on_federation: Callable[[str, int], None],
    ) -> tuple[dict[str, list[dict[str, float]]], NDArray[np.float64]]:
        """Return by party what it sees of each client, and the clients' true distributions (n, classes)."""
        count = self._config.clients
        seed = self._config.seed + first
        drawn = PlayedClients.drawn(
            dataset.train_labels, dataset.classes, federations * count, _SAMPLES, _ALPHA, seed
        )
        seen: dict[str, list[dict[str, float]]] = {party.name: [] for party in self._parties}
        for number in range(federations):
            on_federation(name, first + number)
            batches = list(drawn.positions[number * count : (number + 1) * count])
            trial = Trial(name, self._settings, self._config, dataset, first + number, batches=batches)
            for party in self._parties:
                for victim in range(count):
                    view = View(trial.record, trial.method, party, victim)
                    seen[party.name].append(clear_facts(view, trial.layout, dataset.classes))
        return seen, drawn.distributions

    def _cell(
        self,
        name: str,
        party: Party,
        own: Sequence[dict[str, float]],
        own_truth: NDArray[np.float64],
        others: Sequence[dict[str, float]],
        truth: NDArray[np.float64],
    ) -> Cell:
        names = sorted({fact for facts in own for fact in facts})
        views, attacked = (
            np.array([[facts.get(fact, 0.0) for fact in names] for facts in both]) for both in (own, others)
        )
        if not names or not (views != views[0]).any():
            why = "beside values of updates, nothing that this party gets of clients differs from one to another"
            return Cell(name, self.name, party.name, "nothing received", why)
        attacker = LabelInference.fitted(views, own_truth)
        predicted = attacker.predicted(attacked)
        figures = InferenceFigures.of(predicted, truth, attacker.guess, self._config.seed)
        value, low, high = figures.correlation
        return Cell(
            name,
            self.name,
            party.name,
            "attacked",
            measured_by=_MEASURED_BY,
            figure=value,
            low=low,
            high=high,
            chance=0.0,
            tries=figures.clients,
            form=f"{len(names)} numbers about the first round's messages, {len(own)} clients of the attacker's own",
            others={"error of a share": figures.error, "error without a view": figures.error_of_guess},
        )
