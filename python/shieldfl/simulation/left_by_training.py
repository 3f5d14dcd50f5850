"""What a client's training may leave behind on a model, for the next client or for whoever looks at what is sent."""

from __future__ import annotations

from torch import nn

from shieldfl.training.known_modules import has_known_modules
from shieldfl.training.objective import Objective

__all__ = ["leaves_parameters_alone", "leaves_vectors_alone"]


def leaves_parameters_alone(model: nn.Module, objective: Objective) -> bool:
    """Say whether training leaves nothing behind but parameters."""
    return _is_known(model, objective) and not any(True for _ in model.buffers())


def leaves_vectors_alone(model: nn.Module, objective: Objective) -> bool:
    """Say whether training leaves nothing behind but parameters and float buffers: what updates have.

    Integers, such as how many batches a normalisation has seen, stay on the model.
    """
    return _is_known(model, objective) and all(one.is_floating_point() for one in model.buffers())


def _is_known(model: nn.Module, objective: Objective) -> bool:
    return objective == Objective() and has_known_modules(model)
