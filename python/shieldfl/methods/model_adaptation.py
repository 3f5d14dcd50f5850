"""What of a model a method trains: a module of its own, made from the plain one. Needs torch."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module

from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.methods.alt_fl.rounds import AltFlRounds
from shieldfl.methods.alt_fl.settings import AltFlSettings, DpSgdSettings
from shieldfl.methods.dict_pfl.dictionary_layers import factorise
from shieldfl.methods.settings import MethodSettings

__all__ = ["adapt_model", "count_trained", "load_privacy_packages"]


def adapt_model(name: str, model: nn.Module, settings: MethodSettings) -> nn.Module:
    """Return the module that a method trains, evaluates and makes its flat vectors from.

    - ``dict-pfl``: the factorised model, see :func:`shieldfl.methods.dict_pfl.dictionary_layers.factorise`. Its flat
      vector is far shorter; ``merged()`` of the same module makes a plain model of the result.
    - ``top-2``: a copy in which only the last layer's weight and bias are trained. The flat vector is that of the whole
      model. Batch statistics are no parameters: those in front of the last layer still follow the data.
    - every other method: the model itself.

    The model is not changed.

    Raises
    ------
    ParameterError
        For ``top-2`` where the last two parameters are not the weight and the bias of one layer, for methods with
        DP-SGD where a layer mixes samples, such as BatchNorm, and what ``factorise`` refuses.
    RangeError
        If a weight that ``factorise`` replaces is not finite.
    """
    if _trains_privately(name, settings):
        from shieldfl.privacy.dp_sgd import check_layers

        try:
            check_layers(deepcopy(model).train())
        except ParameterError as error:
            raise ParameterError(f"{name} cannot train this model: {error}") from error
    if name == "dict-pfl":
        return factorise(model, settings.dict_pfl.rank, settings.dict_pfl.train_fully)
    return _with_last_layer_trained(model) if name == "top-2" else model


def load_privacy_packages(name: str, settings: MethodSettings) -> None:
    """Import Opacus where the method will train or count epsilon with it; nothing else of a run needs it.

    It takes seconds, which would else be those of the method's set-up or of a stage of its first round.
    """
    entry = settings.of(name)
    noised = (
        getattr(entry, "noise_multiplier", 0.0) > 0.0 or getattr(entry, "target_epsilon", None) is not None
    )
    if noised or _trains_privately(name, settings):
        import_module("shieldfl.privacy.dp_sgd")


def _trains_privately(name: str, settings: MethodSettings) -> bool:
    entry = settings.of(name)
    if isinstance(entry, AltFlSettings):
        return AltFlRounds(name, entry.interleaving_ratio).trains_privately
    return isinstance(entry, DpSgdSettings)


def count_trained(model: nn.Module) -> int:
    """Return how many parameters are trained."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _with_last_layer_trained(model: nn.Module) -> nn.Module:
    copy = deepcopy(model)
    named = list(copy.named_parameters())
    last = [name.rpartition(".") for name, _ in named[-2:]]
    if [attribute for _, _, attribute in last] != ["weight", "bias"] or last[0][0] != last[1][0]:
        raise ParameterError(
            "top-2 is a method that needs a bias where there is none: give the model's last layer a weight and a bias"
        )
    for _, parameter in named[:-2]:
        parameter.requires_grad_(False)
    return copy
