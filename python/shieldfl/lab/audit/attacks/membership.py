"""Attacks that run federations of their own: LiRA on members, and on labels by what is clear beside updates.

LiRA compares the last model of a federation with shadow models, to tell whether it was trained on a sample.
For labels, the attacker plays clients with its own data and known label distributions. It records what it
would see of each, and fits a ridge regression from that to the distribution. Its predictions for other
clients are compared with a guess that needs no view: the mean of the distributions that it played. Source of
that method: Ateniese et al. 2015, "Hacking smart machines with smarter ones", section 3; the views are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest, norm, rankdata
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Part
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.lab.audit.attack import UNDEFENDED, Cell, FederationAttack, OnFederation, bootstrap_interval
from shieldfl.lab.audit.views.observed_update import Counts, Flags, Floats
from shieldfl.lab.audit.views.view import (
    PARTS_OF_VALUES,
    Delivery,
    Trial,
    View,
    first_model,
    recorded_run,
)
from shieldfl.lab.simulation.data import Dataset
from shieldfl.learning.local_trainer import outputs_of
from shieldfl.masks import Mask
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.models.torch_bridge import flatten

TrainShadow = Callable[[Tensor, int], nn.Module]
"""Function of the positions of candidates to train on, int64 (k,), and a seed.

It returns a model that was trained as the target was.
"""

_FEWEST_FOR_OWN_DEVIATION = 32
"""Fewest scores of every candidate to fit a standard deviation to each; with fewer, all share one."""
_LEAST_DEVIATION = 1e-6
_CONFIDENCE = 0.95


def confidence_scores(model: nn.Module, features: Tensor, labels: Tensor) -> Floats:
    """Return log(p / (1 - p)) of the probability p that a classifier gives to each sample's label, (N,).

    Source: Carlini et al. 2022, section IV-A. Scores are computed from logits in float64, so that no p rounds
    to 1.
    """
    logits = outputs_of(model, features).double()
    own = logits.gather(1, labels.cpu()[:, None])
    others = logits.scatter(1, labels.cpu()[:, None], -torch.inf).logsumexp(dim=1, keepdim=True)
    scores: Floats = (own - others)[:, 0].numpy()
    return scores


def likelihood_ratios(scores: Floats, included: Flags, target: Floats) -> Floats:
    """Return log-likelihood ratios (m,) of a target's scores (m,): trained on the candidate, against not.

    ``scores`` are the shadow models' scores of each candidate, (models, m). ``included`` tells which
    candidates each model was trained on: each candidate is in 2 models or more, and not in 2 or more.

    Source: Carlini, Chien, Nasr, Song, Terzis, Tramèr 2022, "Membership inference attacks from first
    principles", algorithm 1 and section VI-A for a deviation that samples share where there are few models.
    """
    inside, outside = (norm.logpdf(target, *fitted(scores, one)) for one in (included, ~included))
    ratios: Floats = inside - outside
    return ratios


def fitted(scores: Floats, chosen: Flags) -> tuple[Floats, Floats]:
    """Return mean and standard deviation, (m,) each, of each candidate's chosen scores (models, m)."""
    counts = chosen.sum(axis=0)
    means = np.where(chosen, scores, 0.0).sum(axis=0) / counts
    squares = np.where(chosen, (scores - means) ** 2, 0.0)
    if counts.min() < _FEWEST_FOR_OWN_DEVIATION:
        variances = np.full(means.shape, squares.sum() / max(1, (counts - 1).sum()))
    else:
        variances = squares.sum(axis=0) / (counts - 1)
    return means, np.maximum(np.sqrt(variances), _LEAST_DEVIATION)


def train_shadows(
    train: TrainShadow,
    features: Tensor,
    labels: Tensor,
    models: int,
    seed: int,
    on_trained: Callable[[int], None] = lambda model: None,
) -> tuple[Floats, Flags]:
    """Train an even number of models, 4 or more, model i with ``seed + i``; each candidate is in half.

    Returns their scores, and which candidates each was trained on, (models, m).
    """
    ranks = np.random.default_rng(seed).random((models, len(features))).argsort(axis=0)
    included = ranks < models // 2
    scores = np.empty(included.shape)
    for number, chosen in enumerate(included):
        model = train(torch.from_numpy(np.flatnonzero(chosen)), seed + number)
        scores[number] = confidence_scores(model, features, labels)
        on_trained(number)
    return scores, included


Rate = tuple[float, float, float]
"""A figure, and the two ends of its 95 % confidence interval."""


def membership_figures(scores: Floats, members: Flags) -> tuple[Rate, Rate, dict[float, Rate]]:
    """Measure scores (n,), higher for likelier members, by the truth (n,) of 2 members and 2 others or more.

    The first figure is the area under the curve of true over false positives, 0.5 by chance: Mann and
    Whitney's statistic, with an interval by DeLong's variance (1988). The second is the advantage, the
    largest difference of the two rates. Chance is 0, but the advantage is a maximum and so above 0 by chance
    too. Its interval, by Dvoretzky, Kiefer, Wolfowitz and Massart, holds for all thresholds at once. Last are
    true positive rates by false positive rate, which is also what chance achieves. Their intervals are
    Clopper and Pearson's at the threshold that was found; a rate for which there are too few others is left
    out.

    Intervals take samples as independent. Samples that one target scored are nearly so, the same samples
    scored by several targets less.
    """
    inside, outside = int(members.sum()), int((~members).sum())
    ranks = rankdata(scores)
    # The variance is that of each sample's share of the other kind that it beats.
    beaten = (ranks[members] - rankdata(scores[members])) / outside
    beating = 1 - (ranks[~members] - rankdata(scores[~members])) / inside
    area = float(beaten.mean())
    deviation = math.sqrt(beaten.var(ddof=1) / inside + beating.var(ddof=1) / outside)
    around = float(norm.ppf((1 + _CONFIDENCE) / 2)) * deviation
    false_rates, true_rates, _ = roc_curve(members, scores, drop_intermediate=False)
    difference = float((true_rates - false_rates).max())
    off = sum(math.sqrt(math.log(4 / (1 - _CONFIDENCE)) / (2 * count)) for count in (inside, outside))
    at: dict[float, Rate] = {}
    for share in (0.01, 0.001):
        if share * outside >= 1:
            found = round(float(true_rates[false_rates <= share].max()) * inside)
            interval = binomtest(found, inside).proportion_ci(_CONFIDENCE, method="exact")
            at[share] = found / inside, float(interval.low), float(interval.high)
    return (
        (area, max(0.0, area - around), min(1.0, area + around)),
        (difference, max(0.0, difference - off), min(1.0, difference + off)),
        at,
    )


_FALSE_POSITIVES = 0.01
_CANDIDATES = 400
"""Number of candidates; each federation has a random half. Enough for a false positive rate of 1 %."""
_ALIKE = 1e-3
"""Largest difference of parameters of models that count as equal, apart from rounding in encrypted sums."""


class MembershipAudit(FederationAttack):
    """Trains federations on random halves of candidates.

    Each federation is attacked in turn, with the others as shadow models. So shadow models are trained as the
    target was, under the same method. Clients train long on few samples: this tests what is possible, not
    what is usual. The settings are ours; the audit's rounds, samples and rate are not used. Samples of all
    clients count, also of the party's own clients.

    Raises ParameterError for a data set of fewer samples than candidates.
    """

    name = "membership"
    source = "Carlini et al., Membership inference attacks from first principles, 2022, algorithm 1"
    measured_by = "TPR at 1 % FPR"

    models = 16
    """Federations of each method: an even number, at least 6."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        samples = len(self._dataset.train_labels)
        if samples < _CANDIDATES:
            raise ParameterError(
                f"membership takes {_CANDIDATES} samples that may be in or out, and {self._dataset.name} has "
                f"{samples:,}"
            )
        drawn = np.random.default_rng([self._config.seed, 11]).permutation(samples)
        self._candidates = torch.from_numpy(drawn[:_CANDIDATES])
        self._run_config = replace(
            self._config.run_config(0),
            rounds=4,
            local_epochs=25,
            batch_size=10,
            momentum=0.9,
            learning_rate=0.05,
        )
        self._known: dict[str, tuple[Floats, Flags]] = {}
        self._plain: FloatVector | None = None
        """Parameters (P,) of plain averaging's last model on the first half; None until it is trained."""

    def cells(self, method: str, on_federation: OnFederation) -> list[Cell]:
        """Return a cell for each party: what membership inference recovered from a method's last model.

        The method's first federation is compared with plain averaging on the same samples. If both end with
        the same model, the method has plain averaging's figures and is not attacked again. Raises
        ParameterError for a method that has several last models.
        """
        order = np.random.default_rng([self._config.seed, 12]).permutation(_CANDIDATES)
        chosen = torch.from_numpy(np.sort(order[: _CANDIDATES // 2]))
        first, having = self._train(method, chosen, self._config.seed)
        own = flatten(first)
        if self._plain is None:
            plain = first if method == UNDEFENDED else self._train(UNDEFENDED, chosen, self._config.seed)[0]
            self._plain = flatten(plain)
        apart = np.abs(own - self._plain).max() if own.shape == self._plain.shape else math.inf
        source, same = method, ""
        if method != UNDEFENDED and apart < _ALIKE:
            source = UNDEFENDED
            same = f"; the model is that of {UNDEFENDED}: parameters differ by {apart:.1e} at most"
        shadows, included = self._shadows(source, on_federation)
        scores = np.concatenate(
            [
                likelihood_ratios(
                    np.delete(shadows, one, axis=0), np.delete(included, one, axis=0), shadows[one]
                )
                for one in range(self.models)
            ]
        )
        area, advantage, at = membership_figures(scores, included.ravel())
        figure, low, high = at[_FALSE_POSITIVES]
        got = Cell(
            method,
            self.name,
            "",
            "attacked",
            measured_by=self.measured_by,
            figure=figure,
            low=low,
            high=high,
            chance=_FALSE_POSITIVES,
            tries=len(scores),
            form=f"the last model, {self.models - 1} shadow models{same}",
            others={"AUC": area[0], "advantage": advantage[0]},
        )
        why = "it is on the model of a round's end, which this party never has"
        none = Cell(method, self.name, "", "does not apply", why)
        return [replace(got if one.name in having else none, party=one.name) for one in self._parties]

    def _shadows(self, method: str, on_federation: OnFederation) -> tuple[Floats, Flags]:
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

    def _train(self, name: str, positions: Tensor, seed: int) -> tuple[nn.Module, set[str]]:
        """Return the last model, and which parties have it."""
        config = replace(self._run_config, seed=seed)
        dataset = self._dataset
        plain = first_model(self._run_config, dataset)
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


_PENALTIES = tuple(10.0**power for power in range(-2, 6))
"""Penalties of the ridge regression to choose from, by leave-one-out cross-validation."""


def mask_view(chosen: Flags | Floats, layout: ParameterLayout, classes: int) -> Floats:
    """Return means of flags, votes or sizes (P,) over each tensor, and over each class's last weights."""
    shares = np.asarray([chosen[where].mean() for _, where in layout.slices()])
    weights = last_weights(layout, classes)
    if weights is None:
        return shares
    return np.concatenate([shares, chosen[weights].reshape(classes, -1).mean(axis=1)])


def last_weights(layout: ParameterLayout, classes: int) -> slice | None:
    places = [
        where
        for (_, where), shape in zip(layout.slices(), layout.shapes, strict=True)
        if len(shape) == 2 and shape[0] == classes
    ]
    return places[-1] if places else None


def played_clients(
    labels: torch.Tensor, classes: int, clients: int, samples: int, alpha: float, seed: int
) -> tuple[Counts, Floats]:
    """Draw clients with class shares from Dir(alpha, ..., alpha); several clients may have the same sample.

    Returns the samples' positions (clients, samples), and their label distributions (clients, classes).
    Raises ParameterError for a class without a sample.
    """
    own = labels.cpu().numpy()
    pools = [np.flatnonzero(own == label) for label in range(classes)]
    if not all(len(pool) for pool in pools):
        raise ParameterError("there is a class without a sample: no client of it can be played")
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(samples, generator.dirichlet(np.full(classes, alpha), size=clients))
    positions = [
        np.concatenate([generator.choice(pool, count) for pool, count in zip(pools, row, strict=True)])
        for row in counts
    ]
    return np.stack(positions).astype(np.int64), counts / samples


def predicted_distributions(views: Floats, distributions: Floats, others: Floats) -> Floats:
    """Fit views (n, d) of at least 3 clients to their label distributions (n, classes).

    Returns the predicted distributions for the views (m, d) of others.
    """
    regression = make_pipeline(StandardScaler(), RidgeCV(alphas=_PENALTIES)).fit(views, distributions)
    shares = np.maximum(regression.predict(others), 0.0)
    totals = shares.sum(axis=1, keepdims=True)
    predicted: Floats = np.where(
        totals > 0, shares / np.where(totals > 0, totals, 1.0), distributions.mean(axis=0)
    )
    return predicted


def correlation_with_truth(
    predicted: Floats, truth: Floats, guess: Floats, seed: int, drawn_together: int = 1
) -> tuple[float, float, float]:
    """Correlate distributions (n, classes) with the true ones, both less a guess (classes,); 0 is chance.

    Returns the correlation and its bootstrap interval. ``drawn_together`` clients in a row depend on each
    other, so the bootstrap draws all of them or none.
    """

    def correlation(chosen: Counts) -> float:
        ours, true = (predicted - guess)[chosen].ravel(), (truth - guess)[chosen].ravel()
        lengths = np.linalg.norm(ours) * np.linalg.norm(true)
        return float(ours @ true / lengths) if lengths > 0 else 0.0

    clients = np.arange(len(truth)).reshape(-1, drawn_together)
    drawn_from = range(len(clients))
    interval = bootstrap_interval(
        drawn_from, seed, lambda drawn: correlation(clients[drawn.astype(np.int64)].ravel()), resamples=1000
    )
    return correlation(clients.ravel()), *interval


_ALPHA = 0.5
_SAMPLES = 32
_FIRST = 5
"""Federations after which the attack stops if no party sees a difference between clients."""
_LARGEST = 1e6
"""Bound of the numbers in a part of 8 or 16 bytes; with larger ones the part is not read as numbers."""
_OF_MODELS = ("parameters", "buffers", "sums", "total")
"""Names of message parts that hold a model or a sum of updates; only their lengths are used."""
_MOST_COUNT = 2**16
"""Largest count in a part with one number for each parameter; parts with larger ones hold no counts."""
_FEWEST_POSITIONS = 5
"""Fewest positions of a part that is read as a list of positions, so that no other part is."""


def clear_facts(view: View, layout: ParameterLayout, classes: int) -> dict[str, float]:
    """Return, by name, numbers about messages that are not values of updates or models.

    Some numbers are about the victim's messages. Others are about what the party's clients are sent, which
    depends on all clients' messages, and about what they send: means over the party's clients.

    Each part gives its length in bytes, and its number or two numbers if it is that short. A mask of the
    parameters, a list of positions, or a number for each parameter also gives its share of each tensor, and
    of each class's weights in the last layer.
    """
    facts = _facts_of(view.of_victim(), layout, classes, "")
    exchanges = [
        _facts_of(sent, layout, classes, "sent ") | _facts_of(own, layout, classes, "own ")
        for sent, own in view.own_exchanges()
    ]
    for name in {name: None for one in exchanges for name in one}:
        facts[name] = float(np.mean([one[name] for one in exchanges if name in one]))
    return facts


def _facts_of(
    deliveries: Iterable[Delivery], layout: ParameterLayout, classes: int, whose: str
) -> dict[str, float]:
    facts: dict[str, float] = {}
    for number, one in enumerate(deliveries):
        for name, part in one.message.items():
            if name in PARTS_OF_VALUES:
                continue
            said = [float(len(part))]
            if name not in _OF_MODELS:
                said += _few_numbers(part)
                spread = _spread(part, layout.size)
                if spread is not None:
                    said += mask_view(spread, layout, classes).tolist()
            facts |= {f"{whose}{number} {name} {place}": value for place, value in enumerate(said)}
    return facts


def _few_numbers(part: Part) -> list[float]:
    """Return the int64 of a part of 8 bytes, or the two float64 of a part of 16; none for other parts."""
    kinds = {8: np.int64, 16: np.float64}
    if len(part) not in kinds:
        return []
    numbers = np.frombuffer(part, kinds[len(part)]).astype(np.float64)
    return numbers.tolist() if (np.abs(numbers) < _LARGEST).all() else []


def _spread(part: Part, size: int) -> Floats | None:
    """Return a part's flag, count or size, of mean 1, for each parameter, (P,); None if it has none."""
    try:
        return Mask.from_bytes(part, expected_size=size).to_bool().astype(np.float64)
    except WireFormatError:
        pass
    kind = {size: np.uint8, 2 * size: np.uint16, 4 * size: np.uint32}.get(len(part))
    if kind is not None and (counts := np.frombuffer(part, kind)).max() <= _MOST_COUNT:
        return counts.astype(np.float64)
    if len(part) == 4 * size:
        sizes = np.abs(np.frombuffer(part, np.float32).astype(np.float64))
        return sizes / sizes.mean() if np.isfinite(sizes).all() and sizes.any() else None
    if len(part) % 4 or not _FEWEST_POSITIONS <= len(part) // 4 <= size:
        return None
    positions = np.frombuffer(part, np.uint32)
    if len(np.unique(positions[positions < size])) < positions.size:
        return None
    chosen = np.zeros(size)
    chosen[positions] = 1.0
    return chosen


class LabelDistributionAudit(FederationAttack):
    """Plays clients with test samples, then attacks others; the audit's samples and rounds are not used."""

    name = "label-distribution"
    source = "Ateniese et al., Hacking smart machines with smarter ones, 2015, section 3; the views are ours"
    measured_by = "correlation"
    played, attacked = 25, 15
    """Number of federations with the attacker's own clients, and of federations under attack."""

    def cells(self, method: str, on_federation: OnFederation) -> list[Cell]:
        dataset = self._dataset
        public = replace(dataset, train_features=dataset.test_features, train_labels=dataset.test_labels)
        own = self._facts(method, public, self.played, 0, on_federation)
        # If no party sees a difference between the attacker's own clients, no others are attacked.
        ended = len(own[1]) < self.played * self._config.clients
        others = own if ended else self._facts(method, dataset, self.attacked, self.played, on_federation)
        return [
            self._cell(method, party.name, own[0][party.name], own[1], others[0][party.name], others[1])
            for party in self._parties
        ]

    def _facts(
        self,
        name: str,
        dataset: Dataset,
        federations: int,
        first: int,
        on_federation: OnFederation,
    ) -> tuple[dict[str, list[dict[str, float]]], Floats]:
        """Return what each party sees of each client, and the clients' true distributions (n, classes)."""
        config = replace(self._config, samples=_SAMPLES, rounds=1)
        count, seed = config.clients, config.seed + first
        positions, distributions = played_clients(
            dataset.train_labels, dataset.classes, federations * count, _SAMPLES, _ALPHA, seed
        )
        seen: dict[str, list[dict[str, float]]] = {party.name: [] for party in self._parties}
        for number in range(federations):
            on_federation(name, first + number)
            batches = list(positions[number * count : (number + 1) * count])
            trial = Trial(name, self._settings, config, dataset, first + number, batches=batches)
            for party in self._parties:
                for victim in range(count):
                    view = View(trial.record, trial.method, party, victim)
                    seen[party.name].append(clear_facts(view, trial.layout, dataset.classes))
            if number + 1 == _FIRST and all(one == every[0] for every in seen.values() for one in every):
                return seen, distributions[: _FIRST * count]
        return seen, distributions

    def _cell(
        self,
        name: str,
        party: str,
        own: Sequence[dict[str, float]],
        own_truth: Floats,
        others: Sequence[dict[str, float]],
        truth: Floats,
    ) -> Cell:
        names = sorted({fact for facts in own for fact in facts})
        if not names:
            why = "it uses what clients send and receive, and this party sees none of that"
            return Cell(name, self.name, party, "does not apply", why)
        views, attacked = (
            np.array([[facts.get(fact, 0.0) for fact in names] for facts in both]) for both in (own, others)
        )
        if not (views != views[0]).any():
            why = (
                "beside values of updates, nothing that this party gets of clients differs from one to "
                "another"
            )
            return Cell(name, self.name, party, "nothing received", f"{why}, of {len(own)}")
        predicted, guess = predicted_distributions(views, own_truth, attacked), own_truth.mean(axis=0)
        # Clients of one federation share a model, and what all are sent.
        federation = self._config.clients
        value, low, high = correlation_with_truth(predicted, truth, guess, self._config.seed, federation)
        return Cell(
            name,
            self.name,
            party,
            "attacked",
            measured_by=self.measured_by,
            figure=value,
            low=low,
            high=high,
            chance=0.0,
            tries=len(truth) // federation,
            form=f"{len(names)} numbers about the first round's messages, {len(own)} clients of the "
            f"attacker's own, {len(truth)} attacked",
            others={
                "error of a share": float(np.abs(predicted - truth).mean(axis=1).mean()),
                "error without a view": float(np.abs(guess - truth).mean(axis=1).mean()),
            },
        )
