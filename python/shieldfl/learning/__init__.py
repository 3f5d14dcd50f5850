"""A client's local training: models, SGD on its own samples, the update that comes of it.

A starting point and samples enter, a local update leaves. Read ``local_trainer.py`` first.
"""

__all__ = ["MODELS"]

MODELS = ("linear", "mlp", "small-mlp", "simple-cnn", "lenet5", "small-vit", "tiny-vit")
"""Names of the models, which can be checked without torch."""
