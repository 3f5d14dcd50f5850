"""What a client's training may leave behind on a model, for the next client or for whoever looks at what is sent."""

from __future__ import annotations

from typing import Any

from torch import nn

from shieldfl.sensitivity.layer_chains import is_altered
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
    """Whether all that it does is torch's, or this package's: what is a user's own may keep anything."""
    if any(one._backward_hooks or one._post_accumulate_grad_hooks for one in model.parameters()):
        return False
    return objective == Objective() and all(
        type(one).__module__.startswith(_KNOWN)
        and not is_altered(one)
        and all(map(_is_function_of_torch, filter(callable, vars(one).values())))
        for one in model.modules()
    )


def _is_function_of_torch(one: Any) -> bool:
    module = str(getattr(one, "__module__", None))
    return module == "torch" or module.startswith(("torch.", "shieldfl."))


_KNOWN = ("torch.nn.", "shieldfl.")
