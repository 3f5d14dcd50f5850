"""What is clear beside an update, and what it tells of a client's labels: masks, votes, sizes, and the last layer.

The attacker plays clients with data of its own, of known label distributions, records what it would see of each, and
fits a ridge regression from that to the distribution. What it then predicts of others is compared with the guess that
needs no view: the mean of the distributions that it played.

Source of the method: Ateniese et al. 2015, "Hacking smart machines with smarter ones", section 3; the views are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import bootstrap
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from shieldfl.authority.message import Part
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.lab.audit.attack import Cell, FederationAttack
from shieldfl.lab.audit.views.trial import Trial
from shieldfl.lab.audit.views.view import PARTS_OF_VALUES, Delivery, View
from shieldfl.lab.simulation.data import Dataset
from shieldfl.masks import Mask
from shieldfl.models.parameter_layout import ParameterLayout

Floats = NDArray[np.float64]

_PENALTIES = tuple(10.0**power for power in range(-2, 6))
"""Of which the best is taken, by leave-one-out."""


def mask_view(
    chosen: NDArray[np.bool_] | NDArray[np.float64], layout: ParameterLayout, classes: int
) -> Floats:
    """Return the mean of positions (P,), votes, or sizes in each tensor, and in each class's last weights."""
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
) -> tuple[NDArray[np.int64], Floats]:
    """Draw clients with shares of the classes from Dir(alpha, ..., alpha), of the same data with others.

    Returns the samples' positions (clients, samples), and their label distributions (clients, classes). Raises
    ParameterError for a class without a sample.
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
    """Fit views (n, d) of clients, at least 3, with such distributions (n, classes); predict those of others (m, d)."""
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
    """Correlate distributions (n, classes) with the true ones, both without a guess (classes,); 0 is chance.

    With it an interval, by bootstrap: of clients that depend on each other, so many in a row, it draws all or none.
    """

    def correlation(chosen: NDArray[np.int64]) -> float:
        ours, true = (predicted - guess)[chosen].ravel(), (truth - guess)[chosen].ravel()
        lengths = np.linalg.norm(ours) * np.linalg.norm(true)
        return float(ours @ true / lengths) if lengths > 0 else 0.0

    clients = np.arange(len(truth)).reshape(-1, drawn_together)
    interval = bootstrap(
        (np.arange(len(clients)),),
        lambda drawn: correlation(clients[drawn].ravel()),
        n_resamples=1000,
        vectorized=False,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return correlation(clients.ravel()), float(interval.low), float(interval.high)


_ALPHA = 0.5
_SAMPLES = 32
_FIRST = 5
"""Federations after which methods are left that show nobody anything that differs: a round may take seconds."""
_LARGEST = 1e6
"""Above which a part of 8 or 16 bytes is taken for no numbers."""
_OF_MODELS = ("parameters", "buffers", "sums", "total")
"""Parts of messages to clients that hold a model, or a sum of updates."""
_MOST_COUNT = 2**16
"""Above which a whole number for each parameter is taken for no count of clients."""
_FEWEST_POSITIONS = 5
"""Of a list, so that no other part passes for one."""


def clear_facts(view: View, layout: ParameterLayout, classes: int) -> dict[str, float]:
    """Return, by name, numbers about messages that are not values of updates or models.

    They are about the victim's messages; and about what clients are sent, which is made of all clients' messages, with
    what those of the party have sent themselves beside it: means over the clients of the party.

    Of every part its length in bytes, and the number or two that it is where it is so short; of a mask of the
    parameters, a list of positions, or a number for each parameter also its share of each tensor, and of each class's
    weights in the last layer.
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
    """Return the whole number, or the two others, that a part is; none of a longer one."""
    kinds = {8: np.int64, 16: np.float64}
    if len(part) not in kinds:
        return []
    numbers = np.frombuffer(part, kinds[len(part)]).astype(np.float64)
    return numbers.tolist() if (np.abs(numbers) < _LARGEST).all() else []


def _spread(part: Part, size: int) -> NDArray[np.float64] | None:
    """Return how much of a part is of each parameter (P,): 0 or 1, a count, or 1 on average; None for other parts."""
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
    if positions.max() >= size or len(np.unique(positions)) < positions.size:
        return None
    chosen = np.zeros(size)
    chosen[positions] = 1.0
    return chosen


class LabelDistributionAudit(FederationAttack):
    """Plays clients of test samples, and attacks others; the audit's samples and rounds are not used."""

    name: ClassVar[str] = "label-distribution"
    source: ClassVar[str] = (
        "Ateniese et al., Hacking smart machines with smarter ones, 2015, section 3; the views are ours"
    )
    measured_by: ClassVar[str] = "correlation"
    played, attacked = 25, 15
    """Federations of the attacker's own, and of those that are attacked."""

    def cells(self, method: str, on_federation: Callable[[str, int], None]) -> list[Cell]:
        dataset = self._dataset
        public = replace(dataset, train_features=dataset.test_features, train_labels=dataset.test_labels)
        own = self._facts(method, public, self.played, 0, on_federation)
        # Where the attacker's own clients show nobody anything that differs, no others are attacked.
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
        on_federation: Callable[[str, int], None],
    ) -> tuple[dict[str, list[dict[str, float]]], NDArray[np.float64]]:
        """Return by party what it sees of each client, and the clients' true distributions (n, classes)."""
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
        own_truth: NDArray[np.float64],
        others: Sequence[dict[str, float]],
        truth: NDArray[np.float64],
    ) -> Cell:
        names = sorted({fact for facts in own for fact in facts})
        if not names:
            why = "it looks at what clients send and are sent, and none of that comes to this party"
            return Cell(name, self.name, party, "does not apply", why)
        views, attacked = (
            np.array([[facts.get(fact, 0.0) for fact in names] for facts in both]) for both in (own, others)
        )
        if not (views != views[0]).any():
            why = "beside values of updates, nothing that this party gets of clients differs from one to another"
            return Cell(name, self.name, party, "nothing received", f"{why}, of {len(own)}")
        predicted, guess = predicted_distributions(views, own_truth, attacked), own_truth.mean(axis=0)
        # Clients of one federation share a model, and what all are sent.
        federation = self._config.clients
        value, low, high = correlation_with_truth(predicted, truth, guess, self._config.seed, federation)
        return Cell(
            *(name, self.name, party, "attacked"),
            measured_by=self.measured_by,
            figure=value,
            low=low,
            high=high,
            chance=0.0,
            tries=len(truth) // federation,
            form=f"{len(names)} numbers about the first round's messages, {len(own)} clients of the attacker's own, "
            f"{len(truth)} attacked",
            others={
                "error of a share": float(np.abs(predicted - truth).mean(axis=1).mean()),
                "error without a view": float(np.abs(guess - truth).mean(axis=1).mean()),
            },
        )
