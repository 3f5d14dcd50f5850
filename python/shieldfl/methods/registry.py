"""Methods by name, set up for a federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shieldfl.errors import ParameterError
from shieldfl.methods.fedavg import FedAvg
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import Method
from shieldfl.methods.selective_shield import SelectiveShield
from shieldfl.methods.sense_crypt import SenseCrypt
from shieldfl.methods.settings import MethodSettings
from shieldfl.profiling.stages import StageClock

__all__ = ["METHOD_NAMES", "Federation", "make_method"]


@dataclass(frozen=True)
class Federation:
    """What every method needs to know of the run that it is set up for."""

    clients: int
    rounds: int
    min_clients: int
    sample_rate: float
    server_learning_rate: float
    threads: int | None
    weights: tuple[int, ...] | None = None
    """How much each client counts; None for all alike."""


def _fedavg(initial: GlobalModel, federation: Federation, settings: MethodSettings) -> Method:
    return FedAvg(
        initial,
        StageClock(),
        server_learning_rate=federation.server_learning_rate,
        weights=federation.weights,
    )


def _selective_shield(initial: GlobalModel, federation: Federation, settings: MethodSettings) -> Method:
    method = SelectiveShield(
        initial,
        StageClock(),
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


def _sense_crypt(initial: GlobalModel, federation: Federation, settings: MethodSettings) -> Method:
    return SenseCrypt(
        initial,
        StageClock(),
        settings.sense_crypt,
        clients=federation.clients,
        min_clients=federation.min_clients,
        server_learning_rate=federation.server_learning_rate,
        weights=federation.weights,
        threads=federation.threads,
    )


_FACTORIES: dict[str, Callable[[GlobalModel, Federation, MethodSettings], Method]] = {
    "fedavg": _fedavg,
    "selective-shield": _selective_shield,
    "sense-crypt": _sense_crypt,
}
METHOD_NAMES = tuple(_FACTORIES)


def make_method(name: str, initial: GlobalModel, federation: Federation, settings: MethodSettings) -> Method:
    """Set a method up. Raises ParameterError that lists the names for an unknown one."""
    if name not in _FACTORIES:
        raise ParameterError(f"unknown method {name!r}: choose from {', '.join(METHOD_NAMES)}")
    return _FACTORIES[name](initial, federation, settings)
