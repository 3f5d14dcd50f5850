"""Whether the model that a federation ends with tells who was in it: LiRA, for every party that gets the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from shieldfl.audit.attack import FederationAttack
from shieldfl.audit.attacks.membership import Shadows, train_shadows
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.result import UNDEFENDED, Cell
from shieldfl.audit.scores.membership_scores import membership_figures
from shieldfl.audit.views.parties import Party
from shieldfl.audit.views.trial import model_kind, recorded_run
from shieldfl.audit.views.view import View
from shieldfl.errors import ParameterError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset
from shieldfl.training.models import build_model

__all__ = ["MembershipAudit"]

_FALSE_POSITIVES = 0.01
_CANDIDATES = 400
"""Samples of which each is in a federation or not, by a coin: enough for the share of false positives of 1 %."""
_ALIKE = 1e-3
"""How far parameters of two models may be apart that count as one: rounding of encrypted sums, trained on."""


@dataclass(frozen=True)
class _Trained:
    """What one federation came to."""

    model: nn.Module
    parties: frozenset[str]
    """That have the model."""


class MembershipAudit(FederationAttack):
    """Trains federations on random halves of candidates; each is attacked in turn, with the others as shadow models.

    So shadow models are trained as the target was, under the same method. Clients train long on few samples: it is a
    test of what is possible, not of what is usual, and the settings are ours; the audit's rounds, samples and rate are
    not used. Samples of all clients count, also of clients that are of the party.

    Raises ParameterError for a data set of fewer samples than candidates.
    """

    name: ClassVar[str] = "membership"
    source: ClassVar[str] = (
        "Carlini et al., Membership inference attacks from first principles, 2022, algorithm 1"
    )
    measured_by: ClassVar[str] = "TPR at 1 % FPR"

    def __init__(
        self, config: AuditConfig, settings: MethodSettings, dataset: Dataset, parties: Sequence[Party]
    ) -> None:
        super().__init__(config, settings, dataset, parties)
        self.models = 16
        """Federations of a method, even and at least 6."""
        if len(dataset.train_labels) < _CANDIDATES:
            raise ParameterError(
                f"membership takes {_CANDIDATES} samples that may be in or out, and {dataset.name} has "
                f"{len(dataset.train_labels):,}"
            )
        drawn = np.random.default_rng([config.seed, 11]).permutation(len(dataset.train_labels))
        self._candidates = torch.from_numpy(drawn[:_CANDIDATES])
        self._run_config = replace(
            config.run_config(0),
            model=model_kind(config),
            rounds=4,
            local_epochs=25,
            batch_size=10,
            momentum=0.9,
            learning_rate=0.05,
        )
        self._known: dict[str, Shadows] = {}
        self._plain: _Trained | None = None
        """The undefended method's federation on the first half."""

    def cells(self, method: str, on_federation: Callable[[str, int], None]) -> list[Cell]:
        """Return a cell for each party: what membership inference got of a method's last model.

        A method that ends with plain averaging's model, as its first federation is compared with that one's on the same
        samples, has that one's figures: it would be attacked twice. Raises ParameterError for one that has several.
        """
        chosen = self._first_half()
        first = self._train(method, chosen, self._config.seed)
        same = ""
        if method == UNDEFENDED:
            self._plain = first
        else:
            self._plain = self._plain or self._train(UNDEFENDED, chosen, self._config.seed)
            apart = _apart(first.model, self._plain.model)
            if apart is not None and apart < _ALIKE:
                same = f"the model is that of {UNDEFENDED}: parameters differ by {apart:.1e} at most"
        shadows = self._shadows(UNDEFENDED if same else method, on_federation)
        scores = np.concatenate(
            [shadows.without(one).online(shadows.scores[one]) for one in range(self.models)]
        )
        figures = membership_figures(scores, shadows.included.ravel())
        rate = figures.true_positives_at[_FALSE_POSITIVES]
        return [
            Cell(
                method,
                self.name,
                party.name,
                "attacked",
                measured_by=self.measured_by,
                figure=rate.value,
                low=rate.low,
                high=rate.high,
                chance=_FALSE_POSITIVES,
                tries=len(scores),
                form=f"the last model, {self.models - 1} shadow models" + (f"; {same}" if same else ""),
                others={"AUC": figures.area.value, "advantage": figures.advantage.value},
            )
            if party.name in first.parties
            else Cell(
                method,
                self.name,
                party.name,
                "does not apply",
                "it is on the model of a round's end, which this party never has",
            )
            for party in self._parties
        ]

    def _first_half(self) -> torch.Tensor:
        order = np.random.default_rng([self._config.seed, 12]).permutation(_CANDIDATES)
        return torch.from_numpy(np.sort(order[: _CANDIDATES // 2]))

    def _shadows(self, method: str, on_federation: Callable[[str, int], None]) -> Shadows:
        if method not in self._known:
            features = self._dataset.train_features[self._candidates]
            labels = self._dataset.train_labels[self._candidates]
            self._known[method] = train_shadows(
                lambda positions, seed: self._train(method, positions, seed).model,
                features,
                labels,
                self.models,
                self._config.seed,
                lambda number: on_federation(method, number),
            )
        return self._known[method]

    def _train(self, name: str, positions: torch.Tensor, seed: int) -> _Trained:
        """Run a method on some of the candidates, dealt out to the clients, and return its last model."""
        config = replace(self._run_config, seed=seed)
        dataset = self._dataset
        plain = build_model(str(config.model), dataset.feature_shape, dataset.classes, self._config.seed)
        parts = np.array_split(self._candidates[positions].numpy(), config.clients)
        run, method, model, record = recorded_run(name, self._settings, config, dataset, plain, parts)
        models = run.last_models()
        if models.of_all is None:
            raise ParameterError(f"{name} has no one model at its end: each client, or cluster, has its own")
        model.load_state_dict(models.state())
        knowing = {
            party.name
            for party in self._parties
            if View(record, method, party, victim=0).model(config.rounds + 1) is not None
        }
        return _Trained(model, frozenset(knowing))


def _apart(model: nn.Module, other: nn.Module) -> float | None:
    """Return by how much two models' parameters differ at most; None where they are of different layouts."""
    pairs = [[parameter.detach() for parameter in one.parameters()] for one in (model, other)]
    if [one.shape for one in pairs[0]] != [one.shape for one in pairs[1]]:
        return None
    return max(float((one - two).abs().max()) for one, two in zip(*pairs, strict=True))
