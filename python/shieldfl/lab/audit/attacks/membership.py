"""Was this sample trained on? LiRA: asked of the model that a federation ends with, beside shadow models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest, norm, rankdata
from sklearn.metrics import roc_curve
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attack import UNDEFENDED, Cell, FederationAttack
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.trial import model_kind, recorded_run
from shieldfl.lab.audit.views.view import Party, View
from shieldfl.lab.simulation.data import Dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.sgd import outputs_of
from shieldfl.methods.settings import MethodSettings

Scores = NDArray[np.float64]

TrainShadow = Callable[[torch.Tensor, int], nn.Module]
"""Takes the positions of candidates to train on, int64 (k,), and a seed; returns a model trained as the target was."""

_FEWEST_FOR_OWN_DEVIATION = 32
"""Shadow models with, or without, a sample from which a deviation of its own is better than one for all samples."""
_LEAST_DEVIATION = 1e-6
_CONFIDENCE = 0.95


def confidence_scores(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> Scores:
    """Return log(p / (1 - p)) of the probability p that a classifier gives to each sample's label, (N,).

    Source: Carlini et al. 2022, section IV-A. It is worked out from logits in float64, so that no p rounds to 1.
    """
    logits = outputs_of(model, features).double()
    own = logits.gather(1, labels.cpu()[:, None])
    others = logits.scatter(1, labels.cpu()[:, None], -torch.inf).logsumexp(dim=1, keepdim=True)
    scores: Scores = (own - others)[:, 0].numpy()
    return scores


@dataclass(frozen=True)
class Shadows:
    """What models say of candidates of which they were trained on some.

    Source: Carlini, Chien, Nasr, Song, Terzis, Tramèr 2022, "Membership inference attacks from first principles",
    algorithm 1 and section VI-A for a deviation that samples share where there are few models. Every candidate is in 2
    models or more, and out for as many.
    """

    scores: Scores
    """Of each model on each candidate, (models, m)."""
    included: NDArray[np.bool_]
    """Which candidates each model was trained on, (models, m)."""

    def online(self, target: Scores) -> Scores:
        """Return log-likelihood ratios (m,) of a target's scores (m,): trained on the candidate, against not."""
        ratios: Scores = norm.logpdf(target, *self.fit(self.included)) - norm.logpdf(
            target, *self.fit(~self.included)
        )
        return ratios

    def fit(self, chosen: NDArray[np.bool_]) -> tuple[Scores, Scores]:
        counts = chosen.sum(axis=0)
        means = np.where(chosen, self.scores, 0.0).sum(axis=0) / counts
        squares = np.where(chosen, (self.scores - means) ** 2, 0.0)
        if counts.min() < _FEWEST_FOR_OWN_DEVIATION:
            variances = np.full(means.shape, squares.sum() / max(1, (counts - 1).sum()))
        else:
            variances = squares.sum(axis=0) / (counts - 1)
        return means, np.maximum(np.sqrt(variances), _LEAST_DEVIATION)

    def without(self, model: int) -> Shadows:
        return Shadows(np.delete(self.scores, model, axis=0), np.delete(self.included, model, axis=0))


def train_shadows(
    train: TrainShadow,
    features: torch.Tensor,
    labels: torch.Tensor,
    models: int,
    seed: int,
    on_trained: Callable[[int], None] = lambda model: None,
) -> Shadows:
    """Train an even number of models, 4 or more, model i with ``seed + i``; each candidate is in half."""
    ranks = np.random.default_rng(seed).random((models, len(features))).argsort(axis=0)
    included = ranks < models // 2
    scores = np.empty(included.shape)
    for number, chosen in enumerate(included):
        model = train(torch.from_numpy(np.flatnonzero(chosen)), seed + number)
        scores[number] = confidence_scores(model, features, labels)
        on_trained(number)
    return Shadows(scores, included)


@dataclass(frozen=True)
class Rate:
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MembershipFigures:
    """What a membership attack achieved on samples of which it is known whether they were members.

    Intervals take samples as independent; samples that one target scored are nearly so, the same samples scored by
    several targets less.
    """

    members: int
    others: int
    area: Rate
    """Under the curve of true over false positives: 0.5 is chance. Interval by DeLong's variance (1988)."""
    true_positives_at: dict[float, Rate]
    """At a share of false positives, which is what chance achieves: interval by Clopper and Pearson, at the threshold
    as it was found. Shares for which there are too few others to find one are left out."""
    advantage: Rate
    """The largest difference of the two shares: 0 is chance, but what is found is a maximum, above 0 by chance too. The
    interval, by Dvoretzky, Kiefer, Wolfowitz and Massart, holds for all thresholds at once."""


def membership_figures(scores: NDArray[np.float64], members: NDArray[np.bool_]) -> MembershipFigures:
    """Measure scores (n,), higher for likelier members, beside the truth (n,), of 2 members and 2 others or more."""
    inside, outside = int(members.sum()), int((~members).sum())
    false_rates, true_rates, _ = roc_curve(members, scores, drop_intermediate=False)
    at = {
        share: _share(round(float(true_rates[false_rates <= share].max()) * inside), inside)
        for share in (0.01, 0.001)
        if share * outside >= 1
    }
    difference = float((true_rates - false_rates).max())
    off = sum(math.sqrt(math.log(4 / (1 - _CONFIDENCE)) / (2 * count)) for count in (inside, outside))
    advantage = Rate(difference, max(0.0, difference - off), min(1.0, difference + off))
    return MembershipFigures(inside, outside, _area(scores, members), at, advantage)


def _share(count: int, total: int) -> Rate:
    interval = binomtest(count, total).proportion_ci(_CONFIDENCE, method="exact")
    return Rate(count / total, float(interval.low), float(interval.high))


def _area(scores: NDArray[np.float64], members: NDArray[np.bool_]) -> Rate:
    """Return Mann and Whitney's statistic; its variance is that of each sample's share of the other kind it beats."""
    ranks = rankdata(scores)
    inside, outside = scores[members], scores[~members]
    beaten = (ranks[members] - rankdata(inside)) / len(outside)
    beating = 1 - (ranks[~members] - rankdata(outside)) / len(inside)
    area = float(beaten.mean())
    deviation = math.sqrt(beaten.var(ddof=1) / len(inside) + beating.var(ddof=1) / len(outside))
    off = float(norm.ppf((1 + _CONFIDENCE) / 2)) * deviation
    return Rate(area, max(0.0, area - off), min(1.0, area + off))


_FALSE_POSITIVES = 0.01
_CANDIDATES = 400
"""Samples of which each is in a federation or not, by a coin: enough for the share of false positives of 1 %."""
_ALIKE = 1e-3
"""How far parameters of two models may be apart that count as one: rounding of encrypted sums, trained on."""


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
        self._plain: nn.Module | None = None
        """The undefended method's model of the first half."""

    def cells(self, method: str, on_federation: Callable[[str, int], None]) -> list[Cell]:
        """Return a cell for each party: what membership inference got of a method's last model.

        A method that ends with plain averaging's model, as its first federation is compared with that one's on the same
        samples, has that one's figures: it would be attacked twice. Raises ParameterError for one that has several.
        """
        order = np.random.default_rng([self._config.seed, 12]).permutation(_CANDIDATES)
        chosen = torch.from_numpy(np.sort(order[: _CANDIDATES // 2]))
        first, having = self._train(method, chosen, self._config.seed)
        same = ""
        if method == UNDEFENDED:
            self._plain = first
        else:
            self._plain = self._plain or self._train(UNDEFENDED, chosen, self._config.seed)[0]
            apart = _apart(first, self._plain)
            if apart is not None and apart < _ALIKE:
                same = f"the model is that of {UNDEFENDED}: parameters differ by {apart:.1e} at most"
        shadows = self._shadows(UNDEFENDED if same else method, on_federation)
        scores = np.concatenate(
            [shadows.without(one).online(shadows.scores[one]) for one in range(self.models)]
        )
        figures = membership_figures(scores, shadows.included.ravel())
        rate = figures.true_positives_at[_FALSE_POSITIVES]
        got = Cell(
            *(method, self.name, "", "attacked"),
            measured_by=self.measured_by,
            figure=rate.value,
            low=rate.low,
            high=rate.high,
            chance=_FALSE_POSITIVES,
            tries=len(scores),
            form=f"the last model, {self.models - 1} shadow models" + (f"; {same}" if same else ""),
            others={"AUC": figures.area.value, "advantage": figures.advantage.value},
        )
        why = "it is on the model of a round's end, which this party never has"
        none = Cell(method, self.name, "", "does not apply", why)
        return [replace(got if one.name in having else none, party=one.name) for one in self._parties]

    def _shadows(self, method: str, on_federation: Callable[[str, int], None]) -> Shadows:
        if method not in self._known:
            features = self._dataset.train_features[self._candidates]
            labels = self._dataset.train_labels[self._candidates]
            self._known[method] = train_shadows(
                lambda positions, seed: self._train(method, positions, seed)[0],
                features,
                labels,
                self.models,
                self._config.seed,
                lambda number: on_federation(method, number),
            )
        return self._known[method]

    def _train(self, name: str, positions: torch.Tensor, seed: int) -> tuple[nn.Module, set[str]]:
        """Return the last model, and which parties have it."""
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
        return model, knowing


def _apart(model: nn.Module, other: nn.Module) -> float | None:
    pairs = [[parameter.detach() for parameter in one.parameters()] for one in (model, other)]
    if [one.shape for one in pairs[0]] != [one.shape for one in pairs[1]]:
        return None
    return max(float((one - two).abs().max()) for one, two in zip(*pairs, strict=True))
