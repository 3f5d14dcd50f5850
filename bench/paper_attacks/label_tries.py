"""Labels counted from what an aggregator got of one client, with every guess for what is hidden."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn

from attack_references.label_floors import label_floors
from shieldfl.lab.audit.attack import LabelScores, bootstrap_interval, label_scores
from shieldfl.lab.audit.attacks.labels import Ilrg, guesses
from shieldfl.lab.audit.views.view import Trial, party_named
from shieldfl.learning.networks import build_model

__all__ = ["AS_IN_PAPERS", "Figure", "LabelTries", "first_model", "label_tries"]

AS_IN_PAPERS = "zeros, equations as published"
"""What papers attack with: zeros where a position is hidden, and iLRG without our addition to it."""
_ALL_SHOWN = "nothing hidden"
_GUESSES = ("zeros", "class sums", "own expectation and class sums")


@dataclass(frozen=True)
class Figure:
    """A mean over tries, and its 95 % interval by bootstrap."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Figure:
        """Summarise values, of which there has to be one at least."""
        return cls(float(np.mean(values)), *bootstrap_interval(values, seed=0))

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass
class LabelTries:
    """The scores of attacks by guess, and of the two guesses that look at nothing."""

    scores: defaultdict[str, list[LabelScores]] = field(default_factory=lambda: defaultdict(list))
    floors: defaultdict[str, list[LabelScores]] = field(default_factory=lambda: defaultdict(list))

    def add(self, found: dict[str, LabelScores], floors: dict[str, LabelScores]) -> None:
        """Add one client's. Of a client of whom nothing came, the better floor is all that there is."""
        for name, scores in floors.items():
            self.floors[name].append(scores)
        blind = max(floors.values(), key=lambda one: one[1])
        for name in (AS_IN_PAPERS, *_GUESSES):
            self.scores[name].append(found.get(name, blind))

    @property
    def strongest(self) -> str:
        """The guess with the highest mean LnAcc: a maximum, which lies above chance by chance as well."""
        return max(self.scores, key=lambda name: np.mean([number for _, number in self.scores[name]]))

    def figures(self, name: str) -> dict[str, Figure]:
        """Return LeAcc and LnAcc of a guess, or of a floor."""
        found = self.scores.get(name) or self.floors[name]
        return {
            "LeAcc": Figure.of([existence for existence, _ in found]),
            "LnAcc": Figure.of([number for _, number in found]),
        }


def label_tries(
    trial: Trial, victim: int, model: nn.Module | None
) -> tuple[dict[str, LabelScores], dict[str, LabelScores]]:
    """Attack the aggregator's view of one client's first message: scores by guess, and both floors.

    ``model`` is the one that the client trained from, for an aggregator that has it; None for the view as it is.
    """
    dataset, seed = trial.dataset, trial.config.seed
    true = np.bincount(trial.truth((victim,))[1].numpy(), minlength=dataset.classes)
    public = dataset.test_features, dataset.test_labels
    found: dict[str, LabelScores] = {}
    for known in trial.changes(party_named("aggregator"), victim):
        if known.source != "message" or known.round != 1:
            continue
        observed = trial.as_update(known)
        attacked = observed if model is None else replace(observed, model=model)
        for name, guess in guesses(attacked, None, public, seed):
            forms = {name: Ilrg()}
            if name in (_ALL_SHOWN, "zeros"):
                forms[AS_IN_PAPERS] = Ilrg(longest=None)
            for form, attack in forms.items():
                counts = attack.recover(guess, seed).label_counts
                assert counts is not None
                found[form] = label_scores(counts, true)
    if _ALL_SHOWN in found:
        found |= dict.fromkeys(_GUESSES, found.pop(_ALL_SHOWN))
    return found, label_floors(true)


def first_model(trial: Trial) -> nn.Module:
    """Return the model that a trial's clients began with, as an aggregator that is sent it would have it."""
    config = trial.config
    assert config.model is not None
    return build_model(config.model, trial.dataset.feature_shape, trial.dataset.classes, config.seed)
