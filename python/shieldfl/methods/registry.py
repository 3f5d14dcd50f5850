"""Methods by name, set up for a federation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.agreed_mask.method import FedMlHe
from shieldfl.methods.alt_fl.method import AltFl, AltFlWithoutEncryption
from shieldfl.methods.batch_crypt.method import BatchCrypt
from shieldfl.methods.dict_pfl.method import DictPfl
from shieldfl.methods.fedavg import FedAvg
from shieldfl.methods.mask_crypt.method import MaskCrypt
from shieldfl.methods.masked_average.method import FullEncryption, LastLayerEncryption
from shieldfl.methods.noised_average.dp_fedavg import DpFedAvg
from shieldfl.methods.noised_average.dp_sgd import DpSgdAveraging
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.methods.selective_shield.method import SelectiveShield
from shieldfl.methods.sense_crypt.method import SenseCrypt
from shieldfl.methods.settings import MethodSettings
from shieldfl.privacy.reading import PrivacyReading

__all__ = ["METHOD_NAMES", "check_declarations", "make_method", "method_of"]

_CLASSES: dict[str, type[Method]] = {
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


def check_declarations(method: type[Method]) -> type[Method]:
    """Return a class that says how its epsilon is to be read and what the aggregator sees.

    Raises ParameterError where the class itself does not: inherited words were said of another method, and nothing is
    called encrypted, or private, by default.
    """
    own = vars(method)
    if not isinstance(own.get("privacy_reading"), PrivacyReading):
        raise ParameterError(
            f"{method.__name__} does not say how its epsilon is to be read: declare privacy_reading on the class itself"
        )
    sees = own.get("aggregator_sees")
    if not isinstance(sees, str) or not sees.strip():
        raise ParameterError(
            f"{method.__name__} does not say what the aggregator sees: declare aggregator_sees on the class itself"
        )
    return method


for _method in _CLASSES.values():
    check_declarations(_method)


def make_method(name: str, settings: MethodSettings, plan: FederationPlan) -> Method:
    """Return what a method does under a plan.

    Raises ParameterError that lists the names for an unknown one, and for one that does not declare what it shows.
    """
    if name not in _CLASSES:
        raise ParameterError(f"unknown method {name!r}: choose from {', '.join(METHOD_NAMES)}")
    made: Callable[[str, Any, FederationPlan], Method] = check_declarations(_CLASSES[name])
    return made(name, settings.of(name), plan)


def method_of(setup: PublicSetup) -> Method:
    """Return the method of a public set-up. Raises ParameterError for one that is not known here, or its settings."""
    settings = MethodSettings()
    if setup.settings:
        settings = settings.changed(setup.method, setup.settings)
    return make_method(setup.method, settings, setup.plan)
