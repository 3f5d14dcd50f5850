"""Models as people hold them, into what is encrypted and back: state dicts, modules, nested dicts of arrays.

torch is needed for torch's tensors alone: of NumPy arrays a layout is made without it.
"""

from shieldfl.models.model_layout import BATCH_NORM_STATISTICS, ModelLayout, ModelParts

__all__ = ["BATCH_NORM_STATISTICS", "ModelLayout", "ModelParts"]
