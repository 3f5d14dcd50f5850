"""Models that are torch's own: of what else they do while they train nothing is unknown."""

from __future__ import annotations

from typing import Any

from torch import nn

from shieldfl.sensitivity.layer_chains import is_altered

__all__ = ["has_known_modules", "is_moved_by_steps_alone"]

_KNOWN = ("torch.nn.", "shieldfl.")


def has_known_modules(model: nn.Module) -> bool:
    """Say whether all modules are torch's, or this package's: what is a user's own may do anything."""
    if any(one._backward_hooks or one._post_accumulate_grad_hooks for one in model.parameters()):
        return False
    return all(
        type(one).__module__.startswith(_KNOWN)
        and not is_altered(one)
        and all(map(_is_function_of_torch, filter(callable, vars(one).values())))
        for one in model.modules()
    )


def is_moved_by_steps_alone(model: nn.Module) -> bool:
    """Say whether nothing but an optimizer's steps moves parameters, as an embedding that has a largest norm does."""
    return has_known_modules(model) and all(getattr(one, "max_norm", None) is None for one in model.modules())


def _is_function_of_torch(one: Any) -> bool:
    module = str(getattr(one, "__module__", None))
    return module == "torch" or module.startswith(("torch.", "shieldfl."))
