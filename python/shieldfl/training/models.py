"""The models that runs train, by name, and which paper they are from."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import nn

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.training import MODELS
from shieldfl.training.vision_transformer import VisionTransformer

__all__ = ["MODELS", "build_model", "default_model"]

_IMAGE_RANK = 3  # channels, height, width
_POOLING = 4  # two 2x2 poolings
_LEAST_LENET_SIDE = 12


def build_model(name: str, dataset_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Build a freshly initialised float32 classifier: (N, *dataset_shape) features to (N, classes) logits.

    - ``linear``: flatten, one linear layer.
    - ``mlp``: flatten, 256, 128, out, ReLU between (SelectiveShield, table 7).
    - ``small-mlp``: flatten, 32, out, ReLU between: 2,410 parameters on digits, for what is tried many times (ours).
    - ``simple-cnn``: two 3x3 convolutions (32 and 64 channels), each with BatchNorm, ReLU and 2x2 max
      pooling, then 256 and out (SelectiveShield, table 7).
    - ``lenet5``: two 5x5 convolutions (6 and 16 channels, the first padded by 2), each with ReLU and 2x2 max
      pooling, then 120, 84 and out. On CIFAR-10 these are the 83,126 parameters that Alt-FL trains; the
      paper does not name its activation and pooling.
    - ``small-vit``: :class:`shieldfl.training.vision_transformer.VisionTransformer`, 1.2 million
      parameters on CIFAR-10, for DictPFL.
    - ``tiny-vit``: the same with patches of 8 x 8 pixels, half the width and four blocks: 214,090 parameters on
      CIFAR-10, and less than a tenth of the time for each sample.

    Parameters
    ----------
    name : str
        One of :data:`MODELS`.
    dataset_shape : tuple of int
        Shape of one sample. All but ``linear`` and the MLPs need (channels, height, width), height and width
        at least 4 for ``simple-cnn``, at least 12 for ``lenet5`` and multiples of 4 for ``small-vit``, of 8
        for ``tiny-vit``.
    classes : int
        Number of classes, at least 2.
    seed : int
        Decides the initial weights. torch's global generator is left as it was.

    Raises
    ------
    ParameterError
        For an unknown name, or a shape or number of classes that the model cannot take.
    """
    if name not in MODELS:
        raise ParameterError(f"unknown model {name!r}: choose one of {', '.join(MODELS)}")
    if not dataset_shape or min(dataset_shape) < 1:
        raise ParameterError(f"the shape of a sample must have positive sides, got {dataset_shape}")
    classes = as_count(classes, "classes", 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(as_unsigned(seed, "seed"))
        if name == "linear":
            return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(dataset_shape), classes))
        if name == "mlp":
            return _mlp(math.prod(dataset_shape), 256, 128, classes)
        if name == "small-mlp":
            return _mlp(math.prod(dataset_shape), 32, classes)
        if name == "small-vit":
            return VisionTransformer(dataset_shape, classes)
        if name == "tiny-vit":
            return VisionTransformer(dataset_shape, classes, patch=8, width=64, depth=4)
        cnn = (_lenet5 if name == "lenet5" else _simple_cnn)(dataset_shape, classes)
    # Convolutions on a CPU run a fifth to a third faster on channels-last memory; the values are the same.
    return cnn.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def default_model(dataset_name: str) -> str:
    """Name SelectiveShield's model for a data set (table 7): ``simple-cnn`` for the CIFARs, ``mlp`` for the others."""
    return "simple-cnn" if dataset_name.startswith("cifar") else "mlp"


def _mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for wide, next_wide in pairwise(widths):
        layers += [nn.Linear(wide, next_wide), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _simple_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    if len(shape) != _IMAGE_RANK or min(shape[1:]) < _POOLING:
        raise ParameterError(f"simple-cnn needs images of (channels, height >= 4, width >= 4), got {shape}")
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // _POOLING) * (width // _POOLING), 256),
        nn.ReLU(),
        nn.Linear(256, classes),
    )


def _lenet5(shape: tuple[int, ...], classes: int) -> nn.Module:
    if len(shape) != _IMAGE_RANK or min(shape[1:]) < _LEAST_LENET_SIDE:
        raise ParameterError(f"lenet5 needs images of (channels, height >= 12, width >= 12), got {shape}")
    channels, height, width = shape
    # The second convolution is not padded and takes two pixels off each edge.
    rows, columns = ((side // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 6, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
