"""DePE: weight matrices trained through a small table against a frozen dictionary. Needs torch.

Source: DictPFL, "Decompose-for-Partial-Encrypt".
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ParameterError, RangeError
from shieldfl.settings import Count, Settings, about

__all__ = ["factorise", "merged"]

_ATTENTION_WEIGHTS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


@dataclass(frozen=True)
class _Asked(Settings):
    rank: Annotated[Count, about("Rank of the factorisation, as in the method's settings.", symbol="r")] = 4
    train_fully: Annotated[
        tuple[str, ...], about("Modules that are not factorised, as in the method's settings.")
    ] = ()


def factorise(model: nn.Module, rank: int = 4, train_fully: Sequence[str] = ()) -> nn.Module:
    """Return a copy of a model that trains a small table instead of each large weight.

    The weight W0 (n x m; a convolution as output channels x the rest) of every ``nn.Linear``, ``nn.Conv2d``
    and ``nn.MultiheadAttention`` becomes W = W0 + D T. The dictionary D = U_r Sigma_r (n x r) comes from the
    truncated singular value decomposition of W0 and is frozen, as is W0; the table T (r x m), at first 0, is
    trained. So the copy computes what the model computes until it is trained. Everything else stays trained
    as it was: biases, norms, embeddings, other kinds of layers.

    The gradient of T is D^T times that of W, and a step of T moves W by D times it: in the directions that
    the dictionary spans, a learning rate counts Sigma_r^2 times. A layer as torch initialises it has Sigma_1
    of 1 to 2; for pretrained weights with larger singular values, lower the learning rate.

    The copy's parameters are named after the layer: ``"fc.weight_dictionary.table"`` stands for
    ``"fc.weight"``. W0 and D are neither parameters nor buffers, so that nothing that exchanges those can
    send them; they follow the model to another device. A ``state_dict()`` therefore holds what is trained,
    and is loaded into a copy that was factorised from the same start.

    All clients get the same dictionary from the same model: it is computed on the CPU in double precision,
    and of each pair (u, -u) the vector is taken whose entry of largest magnitude (the first such) is
    positive. On other processors or versions of NumPy, its last bits may differ.

    ``rank`` is r, from 1 to the smaller side of every layer that is replaced. ``train_fully`` names modules
    as ``named_modules()`` does: these, and all inside of them, keep their weights; ``"blocks.1"`` means
    ``"blocks.1.mlp"`` too, but not ``"blocks.10"``. The copy is of the same class. Layers with frozen weights
    (``requires_grad`` False) are as they were; layers that share a weight share its dictionary and table.

    Raises ParameterError for a rank that a layer does not allow, an unknown name in ``train_fully``, a model
    without a layer to replace or with layers replaced already, a weight of zeros (its dictionary would be
    zeros, and never learn), or one that is shared with something that stays fully trained; RangeError if a
    weight is not finite.
    """
    settings = _Asked(rank, train_fully)  # type: ignore[arg-type]  # a list
    _check_names(model, settings.train_fully)
    if any(isinstance(module, _ComputedLayer) for module in model.modules()):
        raise ParameterError("the model is factorised already: factorise the plain one, or merged(model)")
    copy = deepcopy(model)
    uses = _uses_of_trained_parameters(copy, settings.train_fully)
    replaced = [of_one for of_one in uses if any(is_replaceable for *_, is_replaceable in of_one)]
    if not replaced:
        raise ParameterError(
            "there is no layer to factorise: DePE needs a trained Linear, Conv2d or MultiheadAttention that "
            "is not named in train_fully"
        )
    for of_one in replaced:
        _replace(of_one, settings.rank)
    return copy


def merged(model: nn.Module) -> nn.Module:
    """Return a copy of a factorised model as a plain one: W0 + D T in ordinary layers.

    Its ``state_dict()`` and parameters have the names and the order of the model that was factorised. Raises
    ParameterError for a model that is not factorised.
    """
    copy = deepcopy(model)
    modules = list(copy.modules())
    dictionaries = [module for module in modules if isinstance(module, _Dictionary)]
    if not dictionaries:
        raise ParameterError("the model is not factorised: pass what factorise() returned")
    weights = {id(dictionary): nn.Parameter(dictionary().detach()) for dictionary in dictionaries}
    for layer in modules:
        if isinstance(layer, _ComputedLayer):
            attributes = layer.computed
            layer.__class__ = layer.plain_class  # type: ignore[assignment]
            for attribute in attributes:
                layer.register_parameter(attribute, weights[id(layer.get_submodule(_child(attribute)))])
                delattr(layer, _child(attribute))
    return copy


class _Dictionary(nn.Module):
    """W0 + D T, of the shape of W0: both W0, ``start``, and D (n, r), ``directions``, are frozen."""

    def __init__(self, start: torch.Tensor, directions: torch.Tensor) -> None:
        super().__init__()
        self.start = start
        self.directions = directions
        columns = start.numel() // start.shape[0]
        self.table = nn.Parameter(start.new_zeros(directions.shape[1], columns))

    def forward(self) -> torch.Tensor:
        return self.start + (self.directions @ self.table).view(self.start.shape)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> _Dictionary:
        """What moves a module to a device or dtype; torch does it for parameters and buffers alone."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.start, self.directions = fn(self.start), fn(self.directions)
        return self


class _ComputedLayer(nn.Module):
    """Base of layers some of whose weights are computed anew whenever they are read."""

    plain_class: type[nn.Module]
    computed: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what makes the class, which exists in this process alone."""
        return _blank_layer, (self.plain_class, self.computed), self.__dict__


def _make_class(plain_class: type[nn.Module], computed: tuple[str, ...]) -> type[_ComputedLayer]:
    """Make a subclass in which attributes are properties, so that all code that reads them works on."""
    members: dict[str, Any] = {"plain_class": plain_class, "computed": computed}
    for attribute in computed:
        members[attribute] = property(partial(_product, _child(attribute)))
    return type(f"Dictionary{plain_class.__name__}", (_ComputedLayer, plain_class), members)


def _blank_layer(plain_class: type[nn.Module], computed: tuple[str, ...]) -> _ComputedLayer:
    kind = _make_class(plain_class, computed)
    return kind.__new__(kind)


def _child(attribute: str) -> str:
    return f"{attribute}_dictionary"


def _product(child: str, layer: nn.Module) -> Any:
    return layer.get_submodule(child)()


_Use = tuple[nn.Module, str, str, bool]
"""Where a parameter is used: the layer, its name, the attribute, and whether it can be replaced there."""


def _uses_of_trained_parameters(model: nn.Module, train_fully: tuple[str, ...]) -> list[list[_Use]]:
    uses: dict[nn.Parameter, list[_Use]] = defaultdict(list)
    for name, module in model.named_modules():
        stays = any(name == prefix or name.startswith(f"{prefix}.") for prefix in train_fully)
        for attribute, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter.requires_grad:
                is_replaceable = not stays and attribute in _replaceable(module)
                uses[parameter].append((module, name or type(module).__name__, attribute, is_replaceable))
    return list(uses.values())


def _replace(uses: list[_Use], rank: int) -> None:
    """Compute a parameter from a dictionary in all the places where it is used."""
    first, first_name, attribute, _ = next(use for use in uses if use[3])
    for _, name, _, is_replaceable in uses:
        if not is_replaceable:
            raise ParameterError(
                f"layer {first_name!r} shares its weight with {name!r}, which is trained fully: "
                f"name {first_name!r} in train_fully too"
            )
    dictionary = _decompose(first.get_parameter(attribute), rank, first_name)
    for layer, _, attribute, _ in uses:
        layer.add_module(_child(attribute), dictionary)
        # Without a value, but in its place, so that the merged model has its parameters in the old order.
        layer.register_parameter(attribute, None)
        if isinstance(layer, _ComputedLayer):
            layer.__class__ = _make_class(layer.plain_class, (*layer.computed, attribute))
        else:
            layer.__class__ = _make_class(type(layer), (attribute,))


def _replaceable(module: nn.Module) -> tuple[str, ...]:
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        return ("weight",)
    return _ATTENTION_WEIGHTS if isinstance(module, nn.MultiheadAttention) else ()


def _decompose(weight: torch.Tensor, rank: int, layer_name: str) -> _Dictionary:
    start = weight.detach()
    matrix = start.flatten(1)
    rows, columns = matrix.shape
    if rank > min(rows, columns):
        raise ParameterError(
            f"rank {rank} is larger than layer {layer_name!r} allows (min({rows}, {columns})): "
            "lower the rank or name the layer in train_fully"
        )
    if not bool(torch.isfinite(matrix).all()):
        raise RangeError(f"the weight of layer {layer_name!r} is not finite: start from another model")
    if not bool(matrix.any()):
        raise ParameterError(
            f"the weight of layer {layer_name!r} is all zeros and has no directions to train: initialise it "
            "or name it in train_fully"
        )
    left, scales, _ = np.linalg.svd(matrix.double().cpu().numpy(), full_matrices=False)
    directions = left[:, :rank] * scales[:rank]
    peaks = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[np.newaxis], axis=0)
    return _Dictionary(start, torch.from_numpy(directions * np.sign(peaks)).to(matrix))


def _check_names(model: nn.Module, names: Sequence[str]) -> None:
    known = [name for name, _ in model.named_modules() if name]
    for name in names:
        if name not in known:
            closest = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
            raise ParameterError(
                f"train_fully names no module of the model: {name!r}; the closest are "
                f"{', '.join(closest) or 'none'}"
            )
