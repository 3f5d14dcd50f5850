"""Methods by name, set up for a federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shieldfl.errors import ParameterError
from shieldfl.methods.fedavg import FedAvg
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import Method
from shieldfl.methods.selective_shield import SelectiveShield
from shieldfl.methods.selective_shield_settings import SelectiveShieldSettings
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


def _fedavg(initial: GlobalModel, federation: Federation, settings: SelectiveShieldSettings) -> Method:
    return FedAvg(initial, StageClock(), server_learning_rate=federation.server_learning_rate)


def _selective_shield(
    initial: GlobalModel, federation: Federation, settings: SelectiveShieldSettings
) -> Method:
    return SelectiveShield(
        initial,
        StageClock(),
        settings,
        clients=federation.clients,
        rounds=federation.rounds,
        min_clients=federation.min_clients,
        sample_rate=federation.sample_rate,
        server_learning_rate=federation.server_learning_rate,
        threads=federation.threads,
    )


_FACTORIES: dict[str, Callable[[GlobalModel, Federation, SelectiveShieldSettings], Method]] = {
    "fedavg": _fedavg,
    "selective-shield": _selective_shield,
}
METHOD_NAMES = tuple(_FACTORIES)


def make_method(
    name: str, initial: GlobalModel, federation: Federation, settings: SelectiveShieldSettings
) -> Method:
    """Set a method up. Raises ParameterError that lists the names for an unknown one."""
    if name not in _FACTORIES:
        raise ParameterError(f"unknown method {name!r}: choose from {', '.join(METHOD_NAMES)}")
    return _FACTORIES[name](initial, federation, settings)
