"""What the noise of private training comes to in the parameters, beside the noise that training leaves there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.learning.local_update import GradientNoise
from shieldfl.models.torch_bridge import flatten
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.settings import TrainingSettings


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("epochs", "batch_size", "samples"), [(1, 8, 8), (3, 4, 10)])
def test_the_noise_of_all_steps_is_what_is_left_of_it_in_the_end(momentum, epochs, batch_size, samples):
    training = TrainingSettings(
        local_epochs=epochs, batch_size=batch_size, learning_rate=0.3, momentum=momentum
    )
    model = nn.Linear(5000, 1, bias=False)
    before = flatten(model)
    # Samples of zeros have no gradient: noise alone moves the parameters.
    nothing = torch.zeros(samples, 5000), torch.zeros(samples, 1)
    train_privately(
        model,
        *nothing,
        training,
        noise_multiplier=0.7,
        max_grad_norm=2.0,
        loss=lambda outputs, targets: ((outputs - targets) ** 2).mean(),
    )
    stated = GradientNoise(0.7, 2.0).deviation(training, samples)
    assert np.std(flatten(model) - before) == pytest.approx(stated, rel=0.06)
