"""The models that runs know by name."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import nn

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.learning import MODELS
from shieldfl.learning.scores import is_altered

__all__ = [
    "MODELS",
    "VisionTransformer",
    "build_model",
    "default_model",
    "has_known_modules",
    "is_moved_by_steps_alone",
]


_KNOWN = ("torch.nn.", "shieldfl.")


def has_known_modules(model: nn.Module) -> bool:
    """Say whether all modules are torch's, or this package's: what is a user's own may do anything."""
    if any(one._backward_hooks or one._post_accumulate_grad_hooks for one in model.parameters()):
        return False
    return all(
        type(one).__module__.startswith(_KNOWN)
        and not is_altered(one)
        and all(
            f"{getattr(own, '__module__', None)}.".startswith(("torch.", "shieldfl."))
            for own in vars(one).values()
            if callable(own)
        )
        for one in model.modules()
    )


def is_moved_by_steps_alone(model: nn.Module) -> bool:
    """Say whether optimizer steps alone move parameters: an embedding with a largest norm moves its own."""
    return has_known_modules(model) and all(getattr(one, "max_norm", None) is None for one in model.modules())


_IMAGE_AXES = 3  # channels, height, width
_HEADS = 4


class VisionTransformer(nn.Module):
    """Float32 images (N, channels, height, width) to (N, classes) logits.

    It takes patches of ``patch`` pixels a side. ``width`` numbers, a multiple of 4, describe a patch between
    ``depth`` blocks. Raises ParameterError for a shape that is not cut into whole patches.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        classes: int,
        patch: int = 4,
        width: int = 128,
        depth: int = 6,
    ) -> None:
        super().__init__()
        if len(image_shape) != _IMAGE_AXES or any(side % patch for side in image_shape[1:]):
            raise ParameterError(
                "a vision transformer needs images of (channels, height, width), both sides multiples of "
                f"{patch}, got {image_shape}"
            )
        channels, rows, columns = image_shape
        self.patches = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.positions = nn.Parameter(torch.empty(1, (rows // patch) * (columns // patch), width))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.Sequential(*(_Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        logits: torch.Tensor = self.head(self.norm(self.blocks(tokens)).mean(dim=1))
        return logits


class _Block(nn.Module):
    """Attention among the patches, then a network of two layers for each, both added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _SelfAttention(width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        mixed: torch.Tensor = tokens + self.mlp(self.mlp_norm(tokens))
        return mixed


class _SelfAttention(nn.Module):
    """Scaled dot-product attention of (N, patches, width) to itself, in several heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        samples, patches, width = tokens.shape
        by_head = self.qkv(tokens).view(samples, patches, 3, _HEADS, width // _HEADS)
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4).unbind()
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values)
        projected: torch.Tensor = self.projection(attended.transpose(1, 2).reshape(samples, patches, width))
        return projected


_POOLING = 4  # two 2x2 poolings
_LEAST_LENET_SIDE = 12
_HIDDEN_WIDTHS = {"linear": (), "mlp": (256, 128), "small-mlp": (32,)}


def build_model(name: str, dataset_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Build a freshly initialised float32 classifier: (N, *dataset_shape) features to (N, classes) logits.

    - ``linear``: flatten, one linear layer. - ``mlp``: flatten, 256, 128, out, ReLU between (SelectiveShield,
    table 7). - ``small-mlp``: flatten, 32, out, ReLU between: 2,410 parameters on digits, for what is tried
    many times (ours). - ``simple-cnn``: two 3x3 convolutions (32 and 64 channels), each with BatchNorm, ReLU
    and 2x2 max pooling, then 256 and out (SelectiveShield, table 7); images of at least 4 x 4. - ``lenet5``:
    two 5x5 convolutions (6 and 16 channels, the first padded by 2), each with ReLU and 2x2 max pooling, then
    120, 84 and out; images of at least 12 x 12. On CIFAR-10 these are the 83,126 parameters that Alt-FL
    trains; the paper does not name its activation and pooling. - ``small-vit``: :class:`VisionTransformer`,
    1.2 million parameters on CIFAR-10, for DictPFL. - ``tiny-vit``: the same with patches of 8 x 8 pixels,
    half the width and four blocks: 214,090 parameters on CIFAR-10, and less than a tenth of the time for each
    sample.

    ``seed`` decides the initial weights; torch's global generator is left as it was. Raises ParameterError
    for an unknown name, or a shape (channels, height, width) or number of classes that the model cannot take.
    """
    if name not in MODELS:
        raise ParameterError(f"unknown model {name!r}: choose one of {', '.join(MODELS)}")
    if not dataset_shape or min(dataset_shape) < 1:
        raise ParameterError(f"the shape of a sample must have positive sides, got {dataset_shape}")
    classes = as_count(classes, "classes", 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(as_unsigned(seed, "seed"))
        if name in _HIDDEN_WIDTHS:
            return _mlp(math.prod(dataset_shape), *_HIDDEN_WIDTHS[name], classes)
        if name == "small-vit":
            return VisionTransformer(dataset_shape, classes)
        if name == "tiny-vit":
            return VisionTransformer(dataset_shape, classes, patch=8, width=64, depth=4)
        cnn = _cnn(name, dataset_shape, classes)
    # Convolutions on a CPU run a fifth to a third faster on channels-last memory; the values are the same.
    return cnn.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def default_model(dataset_name: str) -> str:
    """Name SelectiveShield's model of a data set (table 7): ``simple-cnn`` for CIFARs, ``mlp`` for others."""
    return "simple-cnn" if dataset_name.startswith("cifar") else "mlp"


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for wide, next_wide in pairwise(widths):
        layers += [nn.Linear(wide, next_wide), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _cnn(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    least = _LEAST_LENET_SIDE if name == "lenet5" else _POOLING
    if len(shape) != _IMAGE_AXES or min(shape[1:]) < least:
        raise ParameterError(
            f"{name} needs images of (channels, height >= {least}, width >= {least}), got {shape}"
        )
    channels, *sides = shape
    if name == "lenet5":
        # The second convolution is not padded and takes two pixels off each edge.
        pixels = math.prod((side // 2 - 4) // 2 for side in sides)
        first: list[nn.Module] = [nn.Conv2d(channels, 6, kernel_size=5, padding=2)]
        second: list[nn.Module] = [nn.Conv2d(6, 16, kernel_size=5)]
        head = _mlp(16 * pixels, 120, 84, classes)
    else:
        pixels = math.prod(side // _POOLING for side in sides)
        first = [nn.Conv2d(channels, 32, kernel_size=3, padding=1), nn.BatchNorm2d(32)]
        second = [nn.Conv2d(32, 64, kernel_size=3, padding=1), nn.BatchNorm2d(64)]
        head = _mlp(64 * pixels, 256, classes)
    return nn.Sequential(*first, nn.ReLU(), nn.MaxPool2d(2), *second, nn.ReLU(), nn.MaxPool2d(2), *head)
