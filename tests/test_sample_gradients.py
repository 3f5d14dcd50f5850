"""The gradient of each sample alone is what autograd finds for it alone, and the trial takes what treats samples so."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional

from shieldfl.learning import MODELS
from shieldfl.learning.networks import build_model
from shieldfl.models.sample_gradients import batch_gradients, check_samples_apart, gradients_of_samples

CLASSES = 3


class Around(nn.Module):
    """Six values of each sample, through what is given, to classes."""

    def __init__(self, inner: nn.Module | Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(8, 6)
        self.inner = inner
        self.last = nn.Linear(6, CLASSES)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(self.inner(self.first(values)).tanh())
        return outputs


class TiedHead(nn.Module):
    """Words whose classes are words, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 6, padding_idx=0)
        self.middle = nn.Linear(6, 6)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.middle(self.embedding(words).mean(dim=1)), self.embedding.weight)


class Transposed(nn.Linear):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return functional.linear(super().forward(values).tanh(), self.weight.t())


class SharedLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.other = self.one

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.other(self.one(values).sin())
        return outputs


def shared_weight() -> nn.Module:
    layers = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    layers[2].weight = layers[0].weight
    return layers


class LowRank(nn.Linear):
    """A frozen layer beside a trained one of rank two."""

    def __init__(self) -> None:
        super().__init__(6, 6)
        self.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.randn(6, 2))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return super().forward(values) + values @ self.down.T @ self.up.T


class SelfAttention(nn.MultiheadAttention):
    def forward(self, values: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        tokens = values.reshape(-1, 3, 2)
        return super().forward(tokens, tokens, tokens, need_weights=False)[0].flatten(1)


class Steps(nn.GRUCell):
    """A recurrent layer by hand."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        state = values.new_zeros(len(values), 6)
        for step in values.reshape(-1, 3, 2).unbind(1):
            state = super().forward(step, state)
        return state


class OtherOrder(nn.Module):
    """Draws in another order for a batch than for its samples one by one."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return functional.dropout(values.T.contiguous(), 0.5, self.training).T


class Images(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Unflatten(1, (2, 1, 3)),
            nn.Conv2d(2, 4, (1, 2), groups=2),
            nn.GroupNorm(2, 4),
            nn.SiLU(inplace=True),
            nn.ConvTranspose2d(4, 2, (1, 2)),
            nn.Flatten(),
        )


MODELS_OF_SIX: dict[str, Callable[[], nn.Module | Callable[[torch.Tensor], torch.Tensor]]] = {
    "transposed weight": lambda: Transposed(6, 6),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)),
    "one layer under two names": SharedLayer,
    "one weight of two layers": shared_weight,
    "low rank beside what is frozen": LowRank,
    "attention within a sample": lambda: SelfAttention(2, 1, batch_first=True),
    "recurrent cell": lambda: Steps(2, 6),
    "group norm": lambda: nn.GroupNorm(2, 6),
    "dropout": lambda: nn.Dropout(0.5),
    "dropout by a function": lambda: lambda values: functional.dropout(values, 0.5),
    "noise": lambda: lambda values: values + torch.randn_like(values),
    "dropout in another order": OtherOrder,
    "grouped and transposed convolutions, channels last": lambda: Images().to(
        memory_format=torch.channels_last
    ),
}
DRAWS = {"dropout", "dropout by a function", "noise", "dropout in another order"}


def made(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(4)
    if name == "tied head":
        return TiedHead(), torch.randint(0, 12, (5, 4)), torch.randint(0, 12, (5,))
    model = Around(MODELS_OF_SIX[name]())
    return model, torch.randn(5, 8), torch.randint(0, CLASSES, (5,))


@pytest.mark.parametrize("name", ["tied head", *sorted(MODELS_OF_SIX.keys() - DRAWS)])
def test_gradients_are_those_of_each_sample_alone(name: str) -> None:
    model, features, targets = made(name)
    gradients, losses, outputs = gradients_of_samples(model)(features, targets)
    for place in range(len(features)):
        one = features[place : place + 1], targets[place : place + 1]
        expected, output = batch_gradients(model, *one)
        assert gradients.keys() == expected.keys()
        for parameter, gradient in expected.items():
            torch.testing.assert_close(gradients[parameter][place], gradient, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(outputs[place], output[0])
        torch.testing.assert_close(losses[place], functional.cross_entropy(output, one[1]))
    assert all(type(one) is nn.Parameter and one.grad is None for one in model.parameters())
    torch.testing.assert_close(model(features), outputs)  # The model works on.


def test_no_gradient_depends_on_another_sample_whatever_a_model_computes() -> None:
    _, features, targets = made("group norm")
    differentiate = gradients_of_samples(
        Around(lambda values: values.sin() - values.sort(dim=0).values.mean(dim=0))
    )
    alone = differentiate(features[:1], targets[:1])[0]
    beside = differentiate(torch.cat([features[:1], 100 * features[1:]]), targets)[0]
    for name, gradients in alone.items():
        torch.testing.assert_close(beside[name][0], gradients[0])


@pytest.mark.parametrize("name", ["tied head", *MODELS_OF_SIX])
def test_honest_models_pass_the_trial_and_stay_as_they_were(name: str) -> None:
    model, features, targets = made(name)
    twin, drawn = deepcopy(model.state_dict()), torch.get_rng_state()
    check_samples_apart(model, features, targets, need_all=True)
    assert all(torch.equal(value, twin[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model.training


@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_package_pass_the_trial(name: str) -> None:
    model = build_model(name, (1, 16, 16), CLASSES, 0).eval()
    generator = torch.Generator().manual_seed(1)
    check_samples_apart(model, torch.rand(3, 1, 16, 16, generator=generator), torch.arange(3), need_all=True)
