"""Members of small training sets told from others, the figures of that, and the audit of a method's last model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from torch import nn

from attack_references.membership import offline
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attacks.membership import (
    MembershipAudit,
    confidence_scores,
    likelihood_ratios,
    membership_figures,
    train_shadows,
)
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.view import PARTIES
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.learning.local_trainer import train_locally
from shieldfl.learning.networks import build_model
from shieldfl.methods.registry import MethodSettings
from shieldfl.settings import TrainingSettings

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def samples():
    """120 digits, a third of them under a wrong label: what is learnt of these is learnt by heart."""
    dataset = load_dataset("digits")
    labels = dataset.train_labels[:120].clone()
    labels[::3] = (labels[::3] + 1) % 10
    return dataset.train_features[:120], labels


@pytest.fixture(scope="module")
def shadows(samples):
    features, labels = samples
    settings = TrainingSettings(local_epochs=40, batch_size=30, learning_rate=0.05)

    def train(chosen: torch.Tensor, seed: int) -> nn.Module:
        model = build_model("mlp", SHAPE, 10, seed)
        train_locally(model, features[chosen], labels[chosen], settings, seed)
        return model

    return train_shadows(train, features, labels, models=20, seed=0)


def as_targets(shadows: tuple[np.ndarray, np.ndarray], score) -> tuple[np.ndarray, np.ndarray]:
    """Each model in turn as the target of all others."""
    of_all, included = shadows
    scores = [
        score(*(np.delete(one, target, axis=0) for one in shadows), of_all[target])
        for target in range(len(of_all))
    ]
    return np.concatenate(scores), included.ravel()


@pytest.mark.parametrize("score", [likelihood_ratios, offline])
def test_members_of_a_small_training_set_are_told_from_others_and_of_a_coin_nothing(samples, shadows, score):
    area, advantage, at = membership_figures(*as_targets(shadows, score))
    assert at[0.01][1] > 0.05
    assert area[1] > 0.6
    assert advantage[1] > 0.1
    # Half of the candidates are called members by a coin, of which a target that saw none of them knows nothing.
    members = np.random.default_rng(0).random(120) < 0.5
    scores = score(*shadows, confidence_scores(build_model("mlp", SHAPE, 10, 99), *samples))
    (_, low, high), advantage, _ = membership_figures(scores, members)
    assert low < 0.5 < high
    assert advantage[1] == 0.0


def test_every_candidate_is_in_half_of_the_models(shadows):
    _, included = shadows
    assert (included.sum(axis=0) == 10).all()
    assert included.sum(axis=1).min() > 40


@pytest.mark.parametrize("models", [10, 80])
def test_gaussians_are_fitted_as_the_paper_says(models):
    """With few models deviations are one for all candidates, with many each has its own; a loop says the same."""
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(models, 3)) * [1.0, 2.0, 3.0]
    included = np.arange(models)[:, None] % 2 == [[0, 1, 0]]
    target = np.array([0.3, -1.0, 2.0])
    ins = [scores[included[:, i], i] for i in range(3)]
    outs = [scores[~included[:, i], i] for i in range(3)]

    def deviations(groups) -> list[float]:
        own = [group.std(ddof=1) for group in groups]
        return own if models == 80 else [np.sqrt(np.mean(np.square(own)))] * 3

    expected = [
        norm.logpdf(target[i], ins[i].mean(), deviations(ins)[i])
        - norm.logpdf(target[i], outs[i].mean(), deviations(outs)[i])
        for i in range(3)
    ]
    assert likelihood_ratios(scores, included, target) == pytest.approx(expected)
    expected = [-norm.logsf(target[i], outs[i].mean(), deviations(outs)[i]) for i in range(3)]
    assert offline(scores, included, target) == pytest.approx(expected)


def test_confidences_do_not_round_to_certainty():
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[100.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
        model.bias.zero_()
    scores = confidence_scores(model, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 2]))
    assert scores == pytest.approx([100 - np.log(2), 1 - np.log(2)])


def shifted(generator: np.random.Generator, by: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    members = np.arange(2 * count) < count
    return generator.normal(size=2 * count) + by * members, members


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Of two Gaussians a deviation apart the area is Phi(1/sqrt 2) and the advantage 2 Phi(1/2) - 1."""
    generator = np.random.default_rng(0)
    truths = norm.cdf(1 / np.sqrt(2)), 2 * norm.cdf(0.5) - 1
    figures = [membership_figures(*shifted(generator, 1.0))[:2] for _ in range(200)]
    area, advantage = (
        sum(low <= truth <= high for _, low, high in each)
        for truth, each in zip(truths, zip(*figures, strict=True), strict=True)
    )
    assert 177 <= area <= 199
    assert advantage >= 190


def test_without_a_difference_everything_is_chance():
    generator = np.random.default_rng(1)
    figures = [membership_figures(*shifted(generator, 0.0)) for _ in range(50)]
    assert np.mean([area[0] for area, _, _ in figures]) == pytest.approx(0.5, abs=0.01)
    assert np.mean([at[0.01][0] for _, _, at in figures]) == pytest.approx(0.01, abs=0.005)
    assert all(advantage[1] == 0.0 for _, advantage, _ in figures)


def test_ties_count_half_and_false_positives_are_never_more_than_stated():
    generator = np.random.default_rng(2)
    scores, members = shifted(generator, 1.0)
    coarse = np.round(scores)
    area, _, at = membership_figures(coarse, members)
    assert area[0] == pytest.approx(roc_auc_score(members, coarse))
    thresholds = [t for t in np.unique(coarse) if (coarse[~members] >= t).mean() <= 0.01]
    expected = max(((coarse[members] >= t).mean() for t in thresholds), default=0.0)
    assert at[0.01][0] == pytest.approx(expected)
    few, labels = shifted(np.random.default_rng(3), 1.0, count=100)
    assert set(membership_figures(few, labels)[2]) == {0.01}  # no sample stands for a share of 0.1 %


def test_perfect_scores_are_perfect():
    members = np.arange(2000) < 1000
    area, advantage, at = membership_figures(members.astype(float), members)
    assert area[0] == advantage[0] == at[0.001][0] == 1.0
    assert at[0.001][1] > 0.99


@pytest.fixture(scope="module")
def audit(digits: Dataset) -> MembershipAudit:
    found = MembershipAudit(AuditConfig(model="linear", threads=1), MethodSettings(), digits, PARTIES)
    found.models = 6
    found._run_config = replace(found._run_config, rounds=1, local_epochs=1)
    return found


def test_parties_that_have_the_model_get_the_figure_and_others_nothing(audit):
    told: list[tuple[str, int]] = []
    cells = {one.party: one for one in audit.cells("full-he", lambda *told_of: told.append(told_of))}
    assert {name for name, one in cells.items() if one.status == "attacked"} == {
        "client",
        "other-clients",
        "aggregator-and-client",
        "outsider",
    }
    assert cells["aggregator"].status == cells["network"].status == "does not apply"
    assert "the model is that of fedavg" in cells["client"].form
    assert cells["client"].tries == 6 * 400
    assert cells["client"].chance == 0.01
    assert told == [("fedavg", number) for number in range(6)]
    # The same models, so nothing is trained again.
    plain = {one.party: one for one in audit.cells("fedavg", lambda *told_of: told.append(told_of))}
    assert plain["aggregator"].figure == cells["client"].figure
    assert len(told) == 6


def test_a_method_with_a_model_of_its_own_is_attacked_itself(audit):
    told: list[tuple[str, int]] = []
    (first, *_) = audit.cells("dp-fedavg", lambda *told_of: told.append(told_of))
    assert told == [("dp-fedavg", number) for number in range(6)]
    assert "fedavg" not in first.form


def test_several_models_and_too_few_samples_are_refused(audit, digits, monkeypatch):
    monkeypatch.setattr(
        "shieldfl.lab.simulation.method_run.MethodRun.last_models", lambda run: SimpleNamespace(of_all=None)
    )
    with pytest.raises(ParameterError, match="no one model at its end"):
        audit.cells("full-he", lambda *told_of: None)
    few = replace(digits, train_labels=digits.train_labels[:300])
    with pytest.raises(ParameterError, match="takes 400 samples"):
        MembershipAudit(AuditConfig(), MethodSettings(), few, PARTIES)


@pytest.mark.slow
def test_an_overfitted_plain_model_tells_its_members_and_a_noised_one_does_not(digits):
    audit = MembershipAudit(AuditConfig(threads=1), MethodSettings(), digits, PARTIES)
    plain, noised = (audit.cells(name, lambda *told_of: None)[1] for name in ("fedavg", "dp-fedavg"))
    assert plain.low > 5 * plain.chance
    assert noised.low <= noised.chance
