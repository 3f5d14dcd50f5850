"""The names of the models, for those who check a name and need no torch."""

from __future__ import annotations

__all__ = ["MODELS"]

MODELS = ("linear", "mlp", "simple-cnn", "lenet5", "small-vit", "tiny-vit")
