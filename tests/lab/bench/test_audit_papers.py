"""bench/audit_papers.py and bench/attack_references: cells, rates, agreement, and attacks on what tells nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from torch import nn

import audit_papers
from attack_references.label_floors import label_floors
from attack_references.label_views import infer_labels, update_view
from attack_references.mechanism_canaries import DiracCanaries, audit_sum, audit_uploads
from attack_references.membership import update_alignment
from attack_references.structural_similarity import ssim
from lab.audit.updates import observed_step, positions_of
from paper_attacks import success_matrix as matrix
from paper_attacks import victims
from paper_attacks.agreement import agreement, shows_near_zero
from paper_attacks.label_tries import Figure
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attacks.membership import (
    correlation_with_truth,
    last_weights,
    mask_view,
    membership_figures,
    played_clients,
    predicted_distributions,
)
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.masks import top_k
from shieldfl.models.torch_bridge import parameter_layout
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.privacy.events import Noise
from shieldfl.privacy.noise import clip_and_noise, gaussian_noise
from shieldfl.settings import TrainingSettings


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.mark.parametrize(
    ("successes", "tried", "shown"),
    [(0, 599, False), (0, 600, True), (1, 600, False), (1, 1000, True), (2, 1000, False), (0, 0, False)],
)
def test_six_hundred_tries_show_a_rate_near_zero(successes, tried, shown):
    assert shows_near_zero(successes, tried) is shown


@pytest.mark.parametrize(
    ("paper", "ours", "said"),
    [
        ([0.4, 0.9], [0.5, 0.8], "values"),
        ([0.4, 0.9], [0.0, 0.01], "order"),
        ([0.4, 0.4, 0.9], [0.7, 0.6, 0.71], "order"),
        ([0.4, 0.9], [0.7, 0.7], "no"),
        ([0.4, 0.4], [0.7, 0.8], "no"),
    ],
)
def test_figures_agree_by_value_or_else_by_order(paper, ours, said):
    assert agreement(paper, ours) == said


def test_a_coarse_matrix_is_a_cross_and_the_full_one_a_grid():
    assert len(matrix.full_grid()) == len(matrix.SIGMAS) * len(matrix.ETAS) == 56
    cells = matrix.cross()
    assert len(set(cells)) == len(cells) == len(matrix.SIGMAS) + len(matrix.ETAS) - 1
    assert all(0.0 in (cell.sigma, cell.eta) for cell in cells)


def fails_from(sigma: float, eta: float):
    """An attack that succeeds below both."""
    return lambda number, cells: ((cell.sigma < sigma and cell.eta < eta, 20.0) for cell in cells)


def counts_of(sigma: float, eta: float, most: int = 600, *, stops_early: bool = True):
    tried = matrix.Matrix(matrix.cross(), most, stops_early=stops_early)
    tried.run(fails_from(sigma, eta), lambda: 1.0)
    return tried.counts


def test_a_coarse_matrix_tries_often_where_it_is_in_doubt():
    counts = counts_of(0.005, 0.6)
    often = {(cell.sigma, cell.eta) for cell, found in counts.items() if found.tried > 20}
    assert often == {(0.005, 0.0), (0.0, 0.6)}
    assert all(found.tried == 600 for found in counts.values() if found.tried > 20)
    assert matrix.least(counts, "sigma") == (0.005, 0.005)
    assert matrix.least(counts, "eta") == (0.6, 0.6)


def test_where_all_is_encrypted_nothing_is_tried():
    counts = counts_of(math.inf, math.inf, most=3, stops_early=False)
    assert all(cell.eta < 1 and found.tried == 3 for cell, found in counts.items())
    assert matrix.least(counts, "eta") == (1.0, 1.0)
    assert matrix.least(counts, "sigma") == (None, None)


@pytest.fixture(scope="module")
def victim(digits):
    """Four samples, of a model whose gradients are longer than the norm that they are clipped to."""
    model = build_model("linear", digits.feature_shape, 10, 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(30)
    batch = victims.Batch(10 * digits.train_features[:4], digits.train_labels[:4])
    return victims.Victim(model, batch, victims.Encrypted(model, [batch]), 0, (0.0, 1.0))


def test_noise_is_on_the_sum_of_clipped_gradients(victim):
    clipped = victim.observed(1e-9, 0.0).gradient
    plain = victim.observed(0.0, 0.0).gradient
    assert np.linalg.norm(plain) > victims.CLIP_NORM >= np.linalg.norm(clipped)
    noised = victim.observed(1.0, 0.0)
    assert noised.noise_deviation == pytest.approx(4.7 / 4)
    assert np.std(noised.gradient - clipped) == pytest.approx(4.7 / 4, rel=0.1)


def test_the_largest_magnitudes_are_hidden(victim):
    magnitudes, known = np.abs(victim.observed(0.0, 0.0).gradient), victim.observed(0.0, 0.25).known
    assert (~known).sum() == round(0.25 * known.size)
    assert magnitudes[~known].min() >= magnitudes[known].max()
    assert victim.observed(0.0, 1.0) is None


def test_hidden_values_can_be_matched_as_random_ones(victim):
    observed = victim.observed(0.0, 0.25)
    matched = victims.random_where_hidden(observed, 0)
    assert matched.known.all()
    np.testing.assert_array_equal(matched.change[observed.known], observed.change[observed.known])
    assert np.abs(matched.change[~observed.known] - observed.change[~observed.known]).min() > 0


def test_what_is_kept_is_json():
    kept = audit_papers.plain({1: [Figure.of([0.5]), (math.nan, True)]})
    assert json.loads(json.dumps(kept, allow_nan=False)) == {
        "1": [{"mean": 0.5, "low": None, "high": None}, [None, True]]
    }


@pytest.mark.parametrize(("classes", "samples", "everything"), [(100, 200, 0.866), (10, 30, 0.958)])
def test_floors_of_uniform_labels(classes, samples, everything):
    rng = np.random.default_rng(0)
    floors = [
        label_floors(np.bincount(rng.integers(classes, size=samples), minlength=classes)) for _ in range(400)
    ]
    mean = {name: np.mean([floor[name][0] for floor in floors]) for name in floors[0]}
    assert mean["everything present"] == pytest.approx(everything, abs=0.005)
    assert mean["nothing present"] == pytest.approx(1 - everything, abs=0.005)


def test_the_even_guess_scores_numbers_too():
    assert label_floors(np.array([3, 3, 0, 2]))["everything present"][1] == 0.25
    assert label_floors(np.array([2, 2, 2, 6]))["everything present"][1] == 0.0
    assert label_floors(np.array([0, 0, 1]))["everything present"][1] == pytest.approx(1 / 3)


MODEL = build_model("mlp", (1, 8, 8), 10, 0)
LAYOUT = parameter_layout(MODEL)
SIZES = {"played": 80, "attacked": 40, "samples": 40}


@pytest.fixture(scope="module")
def halves():
    dataset = load_dataset("digits")
    return (
        (dataset.train_features[:700], dataset.train_labels[:700]),
        (dataset.train_features[700:], dataset.train_labels[700:]),
    )


def sensitive_positions(features: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    return top_k(taylor_sensitivity(MODEL, features, labels), LAYOUT.size // 10).to_bool()


def test_positions_chosen_by_sensitivity_tell_of_labels(halves):
    def view(features, labels, seed):
        return mask_view(sensitive_positions(features, labels), LAYOUT, 10)

    (_, low, _), error, without = infer_labels(view, *halves, 10, **SIZES)
    assert low > 0.3
    assert error < without


def test_random_positions_and_sizes_that_are_all_the_same_tell_nothing(halves):
    def at_random(features, labels, seed):
        return mask_view(np.random.default_rng(seed).random(LAYOUT.size) < 0.1, LAYOUT, 10)

    def size(features, labels, seed):
        return np.array([4096.0 + 32 * len(features)])

    for view in (at_random, size):
        (_, low, _), *_ = infer_labels(view, *halves, 10, **SIZES)
        assert low < 0.1


def test_the_last_layer_tells_most_and_nothing_where_it_is_hidden(halves):
    def seen(hidden: tuple[str, ...]):
        def view(features, labels, seed):
            observed = observed_step(MODEL, features, labels)
            return update_view(replace(observed, known=~positions_of(observed, *hidden)))

        return infer_labels(view, *halves, 10, **SIZES)

    assert seen(())[0][1] > 0.9
    assert seen(("5.bias",))[0][1] > 0.5
    correlation, error, without = seen(("5.weight", "5.bias"))
    assert correlation == (0.0, 0.0, 0.0)
    assert error == pytest.approx(without)


def test_figures_of_perfect_and_of_worse_than_useless_predictions():
    truth = np.random.default_rng(0).dirichlet(np.ones(4), size=30)
    guess = np.full(4, 0.25)
    assert correlation_with_truth(truth, truth, guess, seed=0)[0] == pytest.approx(1.0)
    assert correlation_with_truth(2 * guess - truth, truth, guess, seed=0)[2] < 0


def test_played_clients_have_the_labels_that_are_stated(halves):
    labels = halves[0][1]
    positions, distributions = played_clients(labels, 10, 20, 30, alpha=0.3, seed=0)
    assert positions.shape == (20, 30)
    counted = [np.bincount(labels[own], minlength=10) / 30 for own in positions]
    assert np.array_equal(counted, distributions)
    assert distributions.max() > 0.5


def test_predictions_are_distributions():
    generator = np.random.default_rng(0)
    views, distributions = generator.normal(size=(20, 3)), generator.dirichlet(np.ones(4), size=20)
    predicted = predicted_distributions(views, distributions, 1e3 * views)
    assert (predicted >= 0).all()
    assert np.allclose(predicted.sum(axis=1), 1)


def test_views_have_the_size_that_they_state():
    chosen = np.zeros(LAYOUT.size, dtype=bool)
    chosen[dict(LAYOUT.slices())["5.weight"]] = True
    view = mask_view(chosen, LAYOUT, 10)
    assert view.tolist() == [0, 0, 0, 0, 1, 0, *[1] * 10]
    bare = parameter_layout(nn.Conv2d(1, 1, 2, bias=False))
    assert mask_view(np.ones(4, dtype=bool), bare, 10).tolist() == [1]
    assert last_weights(bare, 10) is None


def test_what_cannot_be_played_is_refused(halves):
    labels = halves[0][1]
    with pytest.raises(ParameterError, match="class without"):
        played_clients(labels, 11, 5, 5, 1.0, 0)
    with pytest.raises(ParameterError, match="2 attacked"):
        infer_labels(lambda *_: np.zeros(1), *halves, 10, attacked=1)


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (2, 14, 13)) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def test_ssim_is_that_of_its_definition():
    """Window by window, as Wang et al. write it."""
    true, found = images(1), images(1, seed=1)
    bell = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    weights = np.outer(bell, bell) / np.outer(bell, bell).sum()
    values = []
    for channel in range(2):
        for row in range(4):
            for column in range(3):
                x, y = (
                    one[0, channel, row : row + 11, column : column + 11].double().numpy()
                    for one in (found, true)
                )
                mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
                var_x, var_y = (weights * (x - mean_x) ** 2).sum(), (weights * (y - mean_y) ** 2).sum()
                both = (weights * (x - mean_x) * (y - mean_y)).sum()
                c1, c2 = 0.01**2, 0.03**2
                values.append(
                    (2 * mean_x * mean_y + c1)
                    * (2 * both + c2)
                    / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
                )
    assert float(ssim(found, true, (0.0, 1.0))) == pytest.approx(np.mean(values), rel=1e-9)
    assert ssim(true, true, (0.0, 1.0)).tolist() == pytest.approx([1.0])


SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def step():
    """One step on 30 digits, and 60 candidates of which they are the first half."""
    dataset = load_dataset("digits")
    features, labels = dataset.train_features[200:260], dataset.train_labels[200:260]
    model = build_model("mlp", SHAPE, 10, 3)
    return observed_step(model, features[:30], labels[:30]), features, labels, np.arange(60) < 30


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_an_update_points_to_the_samples_that_it_came_from(step, share):
    observed, features, labels, members = step
    known = np.random.default_rng(0).random(observed.change.size) < share
    hidden = replace(observed, known=known, change=np.where(known, observed.change, np.float32(1e3)))
    (_, low, _), *_ = membership_figures(update_alignment(hidden, features, labels), members)
    assert low > 0.55


def test_an_update_under_noise_points_nowhere(step):
    observed, features, labels, members = step
    noise = np.random.default_rng(0).normal(0, 10, observed.change.size).astype(np.float32)
    drowned = replace(observed, change=observed.change + noise)
    (_, low, high), *_ = membership_figures(update_alignment(drowned, features, labels), members)
    assert low < 0.5 < high


def test_cosines_are_those_of_full_gradients(step):
    observed, features, labels, _ = step
    model = observed.model
    loss = nn.functional.cross_entropy(model(features[5:6]), labels[5:6])
    own = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    expected = torch.nn.functional.cosine_similarity(own, torch.from_numpy(observed.gradient), dim=0)
    assert update_alignment(observed, features, labels, batch_size=7)[5] == pytest.approx(
        float(expected), abs=1e-5
    )


DELTA, NORM, SIZE = 1e-5, 2.0, 1500
CLAIMED = epsilon_of({Noise(1.0, "client"): 1}, DELTA)


def noised_sum(multiplier: float):
    """Clip each client's update to the norm, add them, and add noise of so many times the norm."""

    def mechanism(updates: Iterator[np.ndarray]) -> np.ndarray:
        total = np.zeros(SIZE, dtype=np.float32)
        for update in updates:
            total += clip_and_noise(update, NORM, 0.0)[0]
        return gaussian_noise(total, multiplier * NORM)

    return mechanism


def audited(mechanism, claimed: float, seed: int = 0, unit: str = "client"):
    canaries = DiracCanaries.drawn(SIZE, SIZE, NORM, seed)
    return audit_sum(mechanism, canaries, delta=DELTA, unit=unit, claimed=claimed)


def test_a_sound_mechanism_is_never_said_to_break_its_claim_and_seen_to_cost_something():
    bounds = [audited(noised_sum(1.0), CLAIMED, seed) for seed in range(12)]
    assert not any(bound.contradicts_claim for bound in bounds)
    assert np.median([bound.at_least for bound in bounds]) > 0.3 * CLAIMED
    assert {bound.unit for bound in bounds} == {"client"}


def test_a_tenth_of_the_noise_is_caught():
    assert audited(noised_sum(0.1), CLAIMED).contradicts_claim


def test_amplification_that_does_not_hold_is_caught():
    amplified = epsilon_of({Noise(1.0, "sample", sample_rate=0.01): 1}, DELTA)
    assert amplified < 1.0
    assert audited(noised_sum(1.0), amplified, unit="sample").contradicts_claim


@pytest.mark.parametrize(("told", "caught"), [(4, False), (1, False), (0, True)])
def test_clients_noise_that_shrinks_with_a_number_that_others_send_is_caught(told, caught):
    def upload(update: np.ndarray) -> np.ndarray:
        return clip_and_noise(update, NORM, NORM * math.sqrt(told))[0]

    bound = audit_uploads(upload, count=1500, size=20, norm=NORM, seed=0, delta=DELTA, claimed=CLAIMED)
    assert bound.contradicts_claim == caught
    assert bound.unit == "client"


def test_of_noise_alone_nothing_is_guessed():
    assert audited(lambda updates: noised_sum(1.0)(iter(())), CLAIMED).at_least < 0.4


@pytest.mark.parametrize(("divided_by", "caught"), [(1.0, False), (10.0, True)])
def test_dp_sgd_in_its_own_code(divided_by, caught):
    """A sample's loss is its features' product with the weights, so that its gradient is the canary."""

    def mechanism(gradients: Iterator[np.ndarray]) -> np.ndarray:
        features = torch.from_numpy(np.stack(list(gradients)))
        model = nn.Linear(SIZE, 1, bias=False)
        before = model.weight.detach().clone()
        settings = TrainingSettings(local_epochs=1, batch_size=len(features), learning_rate=1.0, momentum=0.0)
        train_privately(
            model,
            features,
            torch.zeros(len(features)),
            settings,
            noise_multiplier=1.0 / divided_by,
            max_grad_norm=NORM,
            loss=lambda outputs, _: outputs.mean(),
        )
        return ((before - model.weight.detach()) * len(features)).numpy()[0]

    claimed = epsilon_of({Noise(1.0, "sample"): 1}, DELTA)
    bound = audited(mechanism, claimed, unit="sample")
    assert bound.unit == "sample"
    assert bound.contradicts_claim == caught


def test_canaries_are_apart_and_in_by_a_coin():
    canaries = DiracCanaries.drawn(800, SIZE, NORM, seed=3)
    assert len(set(canaries.positions.tolist())) == 800
    assert 300 < canaries.included.sum() < 500
    total = sum(canaries.contributions())
    assert (total[canaries.positions] == NORM * canaries.included).all()
    assert total.sum() == NORM * canaries.included.sum()
    assert ((canaries.evidence(total) > 0) == canaries.included).all()


def test_wrong_numbers_are_refused():
    for count, norm in ((0, 1.0), (SIZE + 1, 1.0), (5, 0.0)):
        with pytest.raises(ParameterError):
            DiracCanaries.drawn(count, SIZE, norm, 0)
    canaries = DiracCanaries.drawn(5, SIZE, NORM, 0)
    with pytest.raises(ParameterError, match="values"):
        canaries.evidence(np.zeros(3, dtype=np.float32))
