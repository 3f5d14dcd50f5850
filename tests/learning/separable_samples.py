"""A classification that small models learn, for tests of training."""

from __future__ import annotations

import torch
from torch import nn

from shieldfl.learning.networks import build_model

SHAPE = (1, 6, 6)
CLASSES = 4


def samples(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around one centre per class: learnable, not trivial."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, *SHAPE, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return centres[labels] + torch.randn(count, *SHAPE, generator=generator), labels


def model(name: str = "mlp") -> nn.Module:
    return build_model(name, SHAPE, CLASSES, 3)
