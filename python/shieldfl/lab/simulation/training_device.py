"""Where clients train: device and threads; and what training may leave behind on a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.learning.local_trainer import Objective
from shieldfl.learning.networks import has_known_modules


def training_device(name: str) -> torch.device:
    """Return ``cpu``, ``cuda:1``, ``mps`` or the like. Raises ParameterError for one that torch lacks."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    known = ["cpu", *(["cuda", *cuda] if cuda else [])]
    known += ["mps"] if torch.backends.mps.is_available() else []
    if name not in known:
        raise ParameterError(f"torch has no device {name!r} on this machine: take {' or '.join(known)}")
    return torch.device(name)


_WORTH_SHARING = 50_000_000
"""Products of a batch's forward pass that are worth a second thread: with the backward pass, some 5 ms on one core.

torch's threads meet after every operation, of which a step has dozens, and wait for the slowest: on a machine that also
does other things, for one that does not run.
"""


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)


def threads_worth(
    model: nn.Module,
    sample_shape: tuple[int, ...],
    batch_size: int,
    most: int,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Return how many threads a training step is worth: the most that there may be, or 1 for a small model.

    Decided by model and batch alone, not by what the machine is doing, so that a run can be repeated: torch's sums may
    depend on the number of threads.
    """
    products = batch_size * forward_products(model, sample_shape, dtype)
    return most if products >= _WORTH_SHARING else 1


def forward_products(
    model: nn.Module, sample_shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> int:
    """Count the multiplications of one sample's way through the linear and convolutional layers of a model."""
    products, samples = 0, 2  # Not every model takes one alone.

    def count(module: nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal products
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        products += weight.numel() * (output.numel() // len(weight)) // samples

    layers = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    hooks = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, layers)]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            model(torch.zeros(samples, *sample_shape, dtype=dtype))
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    return products


def leaves_parameters_alone(model: nn.Module, objective: Objective) -> bool:
    return _is_known(model, objective) and not any(True for _ in model.buffers())


def leaves_vectors_alone(model: nn.Module, objective: Objective) -> bool:
    """Say whether training changes only parameters and float buffers: integers stay on the model."""
    return _is_known(model, objective) and all(one.is_floating_point() for one in model.buffers())


def _is_known(model: nn.Module, objective: Objective) -> bool:
    return objective == Objective() and has_known_modules(model)
