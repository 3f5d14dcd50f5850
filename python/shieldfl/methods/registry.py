"""Methods by name, set up for a federation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.agreed_mask import FedMlHe
from shieldfl.methods.alt_fl import AltFl, AltFlWithoutEncryption
from shieldfl.methods.batch_crypt import BatchCrypt
from shieldfl.methods.dict_pfl import DictPfl
from shieldfl.methods.dp_fedavg import DpFedAvg
from shieldfl.methods.dp_sgd_averaging import DpSgdAveraging
from shieldfl.methods.fedavg import FedAvg
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.mask_crypt import MaskCrypt
from shieldfl.methods.masked_average import FullEncryption, LastLayerEncryption
from shieldfl.methods.method import Method
from shieldfl.methods.selective_shield import SelectiveShield
from shieldfl.methods.sense_crypt import SenseCrypt
from shieldfl.methods.settings import MethodSettings
from shieldfl.profiling.stages import StageClock

__all__ = ["METHOD_NAMES", "Federation", "make_method"]

_CLASSES: dict[str, Callable[[str, GlobalModel, StageClock, Any, Federation], Method]] = {
    "fedavg": FedAvg,
    "selective-shield": SelectiveShield,
    "sense-crypt": SenseCrypt,
    "full-he": FullEncryption,
    "plain-he": FullEncryption,
    "top-2": LastLayerEncryption,
    "fedml-he": FedMlHe,
    "mask-crypt": MaskCrypt,
    "dict-pfl": DictPfl,
    "batch-crypt": BatchCrypt,
    "alt-fl-pi": AltFl,
    "alt-fl-si-dp": AltFlWithoutEncryption,
    "alt-fl-si-he": AltFl,
    "alt-fl-mp": AltFl,
    "dp-sgd": DpSgdAveraging,
    "dp-fedavg": DpFedAvg,
}
METHOD_NAMES = tuple(_CLASSES)


def make_method(name: str, initial: GlobalModel, federation: Federation, settings: MethodSettings) -> Method:
    """Set a method up. Raises ParameterError that lists the names for an unknown one."""
    if name not in _CLASSES:
        raise ParameterError(f"unknown method {name!r}: choose from {', '.join(METHOD_NAMES)}")
    return _CLASSES[name](name, initial, StageClock(), settings.of(name), federation)
