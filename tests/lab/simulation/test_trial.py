"""What methods cannot train is said, by name, before any of them begins; what they can trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.errors import ParameterError
from test_sample_gradients import Around, SharedLayer, TiedHead

TINY = {"clients": 3, "rounds": 1, "local_epochs": 1}
BY_SAMPLE = {
    "dp-sgd": {},
    "fedml-he": {},
    "selective-shield": {"selective-shield": {"sensitivity": "per-sample"}},
}


def task(model: Callable[[], nn.Module], samples: int = 30) -> sf.Task:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(samples + 6, 8, generator=generator)
    if model is TiedHead:
        features = torch.randint(0, 12, (samples + 6, 4), generator=generator)
    targets = torch.randint(0, 3, (samples + 6,), generator=generator)
    return sf.Task(
        model=model,
        train_data=(features[:samples], targets[:samples]),
        test_data=(features[samples:], targets[samples:]),
    )


def centred() -> nn.Module:
    return Around(lambda values: values - values.mean(dim=0))


def batch_normed() -> nn.Module:
    return Around(lambda values: nn.functional.batch_norm(values, None, None, training=True))


def attending() -> nn.Module:
    return Around(lambda values: (values @ values.T).softmax(dim=1) @ values)


def of_three() -> nn.Module:
    return Around(lambda values: values.roll(1, 0) if len(values) > 2 else values)


class Spare(Around):
    """Its last layer is never used."""

    def __init__(self) -> None:
        super().__init__(torch.sin)
        self.spare = nn.Linear(6, 2)


def scripted() -> nn.Module:
    return torch.jit.script(nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)))


def compiled() -> nn.Module:
    return torch.compile(nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)), backend="eager")


def refused(model: Callable[[], nn.Module], methods: list[str], settings: dict, said: str) -> None:
    rounds: list[object] = []
    with pytest.raises(ParameterError, match=said):
        sf.run(task(model), methods, settings=settings, on_round=lambda *one: rounds.append(one), **TINY)
    assert rounds == []


@pytest.mark.parametrize("model", [centred, batch_normed, attending, of_three])
@pytest.mark.parametrize("method", BY_SAMPLE)
def test_models_that_mix_samples_are_refused_where_each_has_its_gradient(model, method) -> None:
    refused(
        model, ["fedavg", method], BY_SAMPLE[method], f"{method} cannot train this model: the model .Around."
    )


@pytest.mark.parametrize("method", ["dp-sgd", "top-2"])
def test_a_parameter_that_a_method_trains_for_nothing_is_named(method) -> None:
    refused(
        Spare,
        ["fedavg", method],
        {},
        f"{method} cannot train this model: the parameter 'spare.weight' is trained",
    )


def test_a_scripted_module_is_refused() -> None:
    refused(scripted, ["fedavg"], {}, "the model is scripted")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_model_that_cannot_be_copied_is_refused() -> None:
    refused(lambda: nn.utils.weight_norm(nn.Linear(8, 3)), ["fedavg"], {}, "torch cannot copy the model")


@pytest.mark.parametrize(
    "model", [TiedHead, lambda: Around(SharedLayer()), pytest.param(compiled, marks=pytest.mark.slow)]
)
def test_other_uses_of_a_parameter_are_no_reason_to_refuse(model) -> None:
    result = sf.run(task(model), ["dp-sgd", "fedml-he"], **TINY)
    assert result.figure("dp-sgd", "epsilon").mean > 0


@pytest.mark.parametrize("model", [centred, attending, Spare])
def test_methods_without_gradients_of_samples_take_them(model) -> None:
    sf.run(task(model), ["fedavg", "full-he"], **TINY)


def test_a_batch_of_one_that_a_model_does_not_take_is_a_named_error() -> None:
    tiny = task(batch_normed, 27)
    parts = [range(first, first + 9) for first in (0, 9, 18)]
    with pytest.raises(ParameterError, match=r"the model .Around., or the loss, fails on a client's batch"):
        sf.run(replace(tiny, partition=parts), "fedavg", batch_size=4, **TINY)
