"""One flat float32 vector (P,) out of a torch module, in the order of ``named_parameters()``, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from shieldfl.array_view import FloatVector, as_vector
from shieldfl.errors import ArrayTypeError, ParameterError
from shieldfl.models.model_layout import ParameterLayout

__all__ = [
    "ParameterLayout",
    "exact_dtype",
    "flatten",
    "flatten_buffers",
    "load_flat",
    "load_flat_buffers",
    "parameter_layout",
    "update_layout",
]

_Named = Sequence[tuple[str, torch.Tensor]]


def parameter_layout(model: nn.Module) -> ParameterLayout:
    """Describe the vector of a model's parameters. ParameterError for none, ArrayTypeError unless float32."""
    return _layout_of(_named_parameters(model))


def update_layout(model: nn.Module) -> ParameterLayout:
    """Describe the vector of an update: that of parameters, and the floating-point buffers behind it."""
    return _layout_of([*_named_parameters(model), *_named_float_buffers(model)])


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return what sums of float32 values are kept in on a device: float64, where it has that."""
    return torch.float32 if device.type == "mps" else torch.float64


def flatten(model: nn.Module) -> FloatVector:
    """Copy all parameters into one new vector, float32 (P,); errors as :func:`parameter_layout`."""
    return _gather(_named_parameters(model))


def load_flat(model: nn.Module, vector: FloatVector) -> None:
    """Copy a vector, contiguous float32 (P,), into the parameters, in place.

    It is checked before any changes.

    Raises ArrayTypeError for another dtype, rank or memory layout, ParameterError for another size.
    """
    _scatter(_named_parameters(model), vector, "parameters")


def flatten_buffers(model: nn.Module) -> FloatVector:
    """Copy float buffers (BatchNorm's running statistics) into one float32 vector (B,), where B may be 0."""
    return _gather(_named_float_buffers(model))


def load_flat_buffers(model: nn.Module, vector: FloatVector) -> None:
    """Copy a vector made by :func:`flatten_buffers` back into the buffers; errors as :func:`load_flat`."""
    _scatter(_named_float_buffers(model), vector, "buffer values")


def _layout_of(named: _Named) -> ParameterLayout:
    return ParameterLayout.of([(name, tuple(tensor.shape)) for name, tensor in named])


def _named_parameters(model: nn.Module) -> _Named:
    named = _checked(list(model.named_parameters()))
    if not any(tensor.numel() for _, tensor in named):
        raise ParameterError("the model has no parameters: there is nothing to train or protect")
    return named


def _named_float_buffers(model: nn.Module) -> _Named:
    return _checked([(name, one) for name, one in model.named_buffers() if one.is_floating_point()])


def _checked(named: _Named) -> _Named:
    for name, tensor in named:
        if tensor.dtype != torch.float32:
            raise ArrayTypeError(f"{name!r} is {tensor.dtype}, expected torch.float32: use .float()")
    return named


def _gather(named: _Named) -> FloatVector:
    parts = [tensor.detach().reshape(-1) for _, tensor in named] or [torch.empty(0)]
    vector: FloatVector = torch.cat(parts).cpu().numpy()
    return vector


def _scatter(named: _Named, vector: FloatVector, what: str) -> None:
    as_vector(vector, (np.float32,), "the vector")
    layout = _layout_of(named)
    if vector.size != layout.size:
        raise ParameterError(f"the model holds {layout.size} {what}, the vector {vector.size}")
    with torch.no_grad():
        for (_, tensor), (_, place) in zip(named, layout.slices(), strict=True):
            piece = vector[place].reshape(tuple(tensor.shape))
            if tensor.device.type == "cpu":
                np.copyto(tensor.detach().numpy(), piece)
            else:
                # torch warns about read-only memory, which it cannot represent.
                tensor.copy_(torch.from_numpy(piece if piece.flags.writeable else piece.copy()))
