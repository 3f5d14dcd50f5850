"""Methods by name, set up for a federation."""

from __future__ import annotations

from collections.abc import Callable

from shieldfl.errors import ParameterError
from shieldfl.methods.agreed_mask import AgreedMask
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

Factory = Callable[[GlobalModel, StageClock, MethodSettings, Federation], Method]


def _fedavg(
    initial: GlobalModel, clock: StageClock, settings: MethodSettings, federation: Federation
) -> Method:
    return FedAvg(
        initial,
        clock,
        server_learning_rate=federation.server_learning_rate,
        weights=federation.weights,
    )


def _selective_shield(
    initial: GlobalModel, clock: StageClock, settings: MethodSettings, federation: Federation
) -> Method:
    method = SelectiveShield(
        initial,
        clock,
        settings.selective_shield,
        clients=federation.clients,
        rounds=federation.rounds,
        min_clients=federation.min_clients,
        sample_rate=federation.sample_rate,
        server_learning_rate=federation.server_learning_rate,
        threads=federation.threads,
    )
    if federation.weights is not None:
        method.notes.append("selective-shield weighs all clients alike (its eq. 26), whatever their weights")
    return method


_FACTORIES: dict[str, Factory] = {
    "fedavg": _fedavg,
    "selective-shield": _selective_shield,
    "sense-crypt": lambda initial, clock, settings, federation: SenseCrypt(
        initial, clock, settings.sense_crypt, federation
    ),
    "full-he": lambda initial, clock, settings, federation: FullEncryption(
        "full-he", initial, clock, settings.full_he, federation
    ),
    "plain-he": lambda initial, clock, settings, federation: FullEncryption(
        "plain-he", initial, clock, settings.plain_he, federation
    ),
    "top-2": lambda initial, clock, settings, federation: LastLayerEncryption(
        "top-2", initial, clock, settings.top_2, federation
    ),
    "fedml-he": lambda initial, clock, settings, federation: AgreedMask(
        "fedml-he", initial, clock, settings.fedml_he, federation, ratio=settings.fedml_he.ratio
    ),
    "mask-crypt": lambda initial, clock, settings, federation: MaskCrypt(
        "mask-crypt", initial, clock, settings.mask_crypt, federation
    ),
    "dict-pfl": lambda initial, clock, settings, federation: DictPfl(
        "dict-pfl", initial, clock, settings.dict_pfl, federation
    ),
    "batch-crypt": lambda initial, clock, settings, federation: BatchCrypt(
        "batch-crypt", initial, clock, settings.batch_crypt, federation
    ),
    "alt-fl-pi": lambda initial, clock, settings, federation: AltFl(
        "alt-fl-pi", initial, clock, settings.alt_fl_pi, federation
    ),
    "alt-fl-si-dp": lambda initial, clock, settings, federation: AltFlWithoutEncryption(
        "alt-fl-si-dp", initial, clock, settings.alt_fl_si_dp, federation
    ),
    "alt-fl-si-he": lambda initial, clock, settings, federation: AltFl(
        "alt-fl-si-he", initial, clock, settings.alt_fl_si_he, federation
    ),
    "alt-fl-mp": lambda initial, clock, settings, federation: AltFl(
        "alt-fl-mp", initial, clock, settings.alt_fl_mp, federation
    ),
    "dp-sgd": lambda initial, clock, settings, federation: DpSgdAveraging(
        "dp-sgd", initial, clock, settings.dp_sgd, federation
    ),
    "dp-fedavg": lambda initial, clock, settings, federation: DpFedAvg(
        initial, clock, settings.dp_fedavg, federation
    ),
}
METHOD_NAMES = tuple(_FACTORIES)


def make_method(name: str, initial: GlobalModel, federation: Federation, settings: MethodSettings) -> Method:
    """Set a method up. Raises ParameterError that lists the names for an unknown one."""
    if name not in _FACTORIES:
        raise ParameterError(f"unknown method {name!r}: choose from {', '.join(METHOD_NAMES)}")
    return _FACTORIES[name](initial, StageClock(), settings, federation)
