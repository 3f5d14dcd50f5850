"""Canaries in the package's own mechanisms and in broken ones, beside what the accountant says."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from attack_references.mechanism_canaries import DiracCanaries, audit_sum, audit_uploads
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.privacy.events import Noise
from shieldfl.privacy.noise import clip_and_noise, gaussian_noise
from shieldfl.settings import TrainingSettings

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
