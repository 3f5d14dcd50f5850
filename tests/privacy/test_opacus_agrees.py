"""The ε of a federated run with DP-SGD is what Opacus says of the same training, by its engine and its accountants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from methods.method_conformance import SteppedRun
from methods.variants import Variant
from shieldfl.learning.local_update import PrivateSteps
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.rounds.plan import GlobalModel
from shieldfl.settings import TrainingSettings

SAMPLES, FEATURES, CLASSES = 60, 5, 3
ROUNDS = 3
DELTA = 1e-4


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(SAMPLES, FEATURES, generator=generator)
    return features, torch.randint(0, CLASSES, (SAMPLES,), generator=generator)


def epsilon_of_run(noise_multiplier: float, batch_size: int, local_epochs: int) -> float:
    """Two clients train by DP-SGD, in as many rounds, from what the federation's model is then."""
    settings = TrainingSettings(local_epochs=local_epochs, batch_size=batch_size, learning_rate=0.1)

    def train(round_number, client, start):
        model = nn.Linear(FEATURES, CLASSES)
        nn.utils.vector_to_parameters(torch.tensor(start.parameters), model.parameters())
        _, steps, sample_rate = train_privately(
            model,
            *samples(),
            settings,
            noise_multiplier=start.noise.noise_multiplier,
            max_grad_norm=start.noise.max_grad_norm,
        )
        trained = nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
        return start.trained(trained, start.buffers, private_steps=PrivateSteps(steps, sample_rate))

    zeros = GlobalModel(np.zeros((FEATURES + 1) * CLASSES, dtype=np.float32), np.empty(0, dtype=np.float32))
    variant = Variant("dp-sgd", SelectiveShieldSettings(), "dp-sgd")
    variant = variant.with_others(noise_multiplier=noise_multiplier, delta=DELTA)
    run = SteppedRun(variant, clients=2, initial=zeros, train=train)
    for _ in range(ROUNDS):
        run.run_round()
    return run.account.spent().epsilon


def engine_of(noise_multiplier: float, batch_size: int, epochs: int) -> PrivacyEngine:
    """Opacus trains on the same samples for as many epochs as the rounds have together."""
    engine = PrivacyEngine(accountant="rdp")
    model = nn.Linear(FEATURES, CLASSES)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(*samples()), batch_size=batch_size),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
    )
    for _ in range(epochs):
        for features, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
    return engine


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("noise_multiplier", "batch_size", "local_epochs"), [(1.1, 10, 2), (2.0, 7, 1), (0.8, 60, 1)]
)
def test_a_run_says_what_opacus_says(noise_multiplier, batch_size, local_epochs):
    ours = epsilon_of_run(noise_multiplier, batch_size, local_epochs)
    engine = engine_of(noise_multiplier, batch_size, ROUNDS * local_epochs)
    ((multiplier, rate, steps),) = engine.accountant.history
    steps_per_epoch = -(-SAMPLES // batch_size)
    assert (multiplier, steps) == (noise_multiplier, ROUNDS * local_epochs * steps_per_epoch)
    assert rate == pytest.approx(1 / steps_per_epoch)
    assert ours == pytest.approx(engine.get_epsilon(DELTA), rel=1e-3)
    accountant = RDPAccountant()
    for _ in range(steps):
        accountant.step(noise_multiplier=noise_multiplier, sample_rate=rate)
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    # And it sees a difference: half of the noise is another figure.
    assert ours < epsilon_of_run(noise_multiplier / 2, batch_size, local_epochs) * 0.9
