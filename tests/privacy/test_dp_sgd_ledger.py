"""Epsilon of DP-SGD against Opacus' own accountant and engine, and over Alt-FL's schedule."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.methods.alt_fl.schedule import AlternatingSchedule
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.privacy.dp_sgd_ledger import DpSgdLedger
from shieldfl.settings import TrainingSettings

N = 1000


def opacus_epsilon(steps: list[tuple[float, float]], delta: float) -> float:
    accountant = RDPAccountant()
    for noise_multiplier, sample_rate in steps:
        accountant.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the")
        return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.1), (0.5, 0.02), (0.05, 0.1), (0.005, 0.3), (40.0, 1.0)])
def test_equals_opacus_own_accountant_exactly(sigma: float, rate: float) -> None:
    ledger = DpSgdLedger(1 / N)
    for _ in range(3):
        ledger.charge(7, noise_multiplier=sigma, sample_rate=rate, steps=20)
    spent = ledger.spent()
    assert spent.epsilon == opacus_epsilon([(sigma, rate)] * 60, 1 / N)
    assert (spent.epsilon_by_client, spent.delta) == ({7: spent.epsilon}, 1 / N)


def test_equals_opacus_own_accountant_over_changing_steps() -> None:
    ledger = DpSgdLedger(1e-5)
    steps = [(1.0, 0.1, 4), (2.0, 0.1, 3), (1.0, 0.1, 5), (1.0, 0.2, 2)]
    for sigma, rate, count in steps:
        ledger.charge(0, noise_multiplier=sigma, sample_rate=rate, steps=count)
    each = [(sigma, rate) for sigma, rate, count in steps for _ in range(count)]
    assert ledger.spent().epsilon == opacus_epsilon(each, 1e-5)
    assert ledger.steps(0) == 14


def test_training_is_charged_as_opacus_own_engine_charges_it() -> None:
    features, labels = torch.randn(50, 4), torch.randint(0, 3, (50,))
    done = train_privately(
        nn.Linear(4, 3),
        features,
        labels,
        TrainingSettings(local_epochs=2, batch_size=8, learning_rate=0.1),
        noise_multiplier=1.1,
    )
    ledger = DpSgdLedger(1 / 50)
    ledger.charge(0, noise_multiplier=1.1, sample_rate=done.sample_rate, steps=done.steps)
    model = nn.Linear(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on torch's noise, and on hooks
        engine = PrivacyEngine(accountant="rdp")
        private, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(features, labels), batch_size=8
            ),
            noise_multiplier=1.1,
            max_grad_norm=4.7,
        )
        for _ in range(2):
            for batch, target in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(private(batch), target).backward()
                optimizer.step()
        assert ledger.spent().epsilon == float(engine.get_epsilon(1 / 50))


def test_the_largest_client_is_reported() -> None:
    ledger = DpSgdLedger(1 / N)
    ledger.charge(0, noise_multiplier=1.0, sample_rate=0.1, steps=10)
    ledger.charge(1, noise_multiplier=1.0, sample_rate=0.5, steps=10)
    ledger.charge(2, noise_multiplier=1.0, sample_rate=0.1, steps=5)
    spent = ledger.spent()
    assert spent.epsilon == spent.epsilon_by_client[1] == max(spent.epsilon_by_client.values())
    assert spent.epsilon_by_client[2] < spent.epsilon_by_client[0] < spent.epsilon
    assert [ledger.steps(client) for client in (0, 1, 2, 3)] == [10, 10, 5, 0]


@pytest.mark.parametrize(
    ("ratio", "share"), [("0", 0.0), ("1/4", 0.25), ("1/2", 0.5), ("3/5", 0.6), ("1", 1.0)]
)
def test_privacy_interleaving_spends_its_ratio_of_the_steps(ratio: str, share: float) -> None:
    rounds, steps = 20, 6
    schedule = AlternatingSchedule(ratio)
    interleaved, always = DpSgdLedger(1 / N), DpSgdLedger(1 / N)
    for number in range(1, rounds + 1):
        always.charge(0, noise_multiplier=1.0, sample_rate=0.1, steps=steps)
        if not schedule.is_first_kind(number):
            interleaved.charge(0, noise_multiplier=1.0, sample_rate=0.1, steps=steps)
    assert interleaved.steps(0) == share * always.steps(0)
    assert interleaved.spent().epsilon == opacus_epsilon([(1.0, 0.1)] * round(rounds * steps * share), 1 / N)


def test_nothing_charged_costs_nothing_and_no_noise_everything() -> None:
    ledger = DpSgdLedger(1 / N)
    assert (ledger.spent().epsilon, ledger.spent().epsilon_by_client) == (0.0, {})
    ledger.charge(0, noise_multiplier=1e6, sample_rate=0.1, steps=1)
    assert 0.0 <= ledger.spent().epsilon < 0.2
    ledger.charge(1, noise_multiplier=0.0, sample_rate=0.1, steps=1)
    assert ledger.spent().epsilon == math.inf


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, "1/N"])
def test_an_impossible_ledger_is_refused(delta: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        DpSgdLedger(delta)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"),
    [
        (-1.0, 0.1, 1),
        (math.nan, 0.1, 1),
        (math.inf, 0.1, 1),
        (1.0, 0.0, 1),
        (1.0, 1.1, 1),
        (1.0, math.nan, 1),
        (1.0, "all", 1),
        (1.0, 0.1, 0),
        (1.0, 0.1, -3),
        (1.0, 0.1, 1.5),
    ],
)
def test_an_impossible_charge_is_refused_and_charges_nothing(sigma: float, rate: float, steps: int) -> None:
    ledger = DpSgdLedger(1 / N)
    with pytest.raises(ParameterError):
        ledger.charge(0, noise_multiplier=sigma, sample_rate=rate, steps=steps)
    assert ledger.spent().epsilon_by_client == {}
