"""Models as people hold them, into what is encrypted and back: state dicts, modules, nested dicts of arrays.

Models enter, vectors leave, and the other way round; NumPy arrays need no torch.
Read ``model_layout.py`` first.
"""

from shieldfl.models.model_layout import BATCH_NORM_STATISTICS, ModelLayout, ModelParts

__all__ = ["BATCH_NORM_STATISTICS", "ModelLayout", "ModelParts"]
