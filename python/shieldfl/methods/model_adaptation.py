"""What of a model a method trains: a module of its own, made from the plain one. Needs torch."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module

from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.methods.registry import MethodSettings, method_class
from shieldfl.rounds.method import naming_own_method

__all__ = ["adapt_model", "count_trained", "load_privacy_packages"]


def adapt_model(name: str, model: nn.Module, settings: MethodSettings) -> nn.Module:
    """Return the module that a method trains, evaluates and makes its flat vectors from, see :meth:`Method.adapted`.

    The model is not changed. Raises ParameterError for methods with DP-SGD where a layer mixes samples, such as
    BatchNorm, and what the method refuses.
    """
    method, entry = method_class(name), settings.of(name)
    if method.trains_privately(name, entry):
        from shieldfl.privacy.dp_sgd import check_layers

        try:
            check_layers(deepcopy(model).train())
        except ParameterError as error:
            raise ParameterError(f"{name} cannot train this model: {error}") from error
    with naming_own_method(name, method, refuses=True):
        return method.adapted(model, entry)


def load_privacy_packages(name: str, settings: MethodSettings) -> None:
    """Import what trains by DP-SGD and counts epsilon, where the method will; nothing else of a run needs it.

    It takes seconds, which would else be those of the method's set-up or of a stage of its first round.
    """
    entry = settings.of(name)
    noised = (
        getattr(entry, "noise_multiplier", 0.0) > 0.0 or getattr(entry, "target_epsilon", None) is not None
    )
    if noised or method_class(name).trains_privately(name, entry):
        import_module("shieldfl.privacy.dp_sgd")
        import_module("dp_accounting")


def count_trained(model: nn.Module) -> int:
    """Return how many parameters are trained."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
