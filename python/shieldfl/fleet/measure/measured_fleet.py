"""Rounds of a fleet, measured: real clients in processes of their own, under limits on processor and link."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.build_info import build_info
from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.device_profile import DeviceProfile
from shieldfl.fleet.costs.scheme_calibration import scheme_parameters
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.measure.client_processes import ClientProcesses, ClientTask
from shieldfl.fleet.measure.measured_method import MeasuredMethod
from shieldfl.fleet.measure.measured_round import PROCESSOR_STAGES, ClientTimes, RoundTimes
from shieldfl.fleet.measure.processor_quota import processor_quotas
from shieldfl.fleet.measure.processor_time import MachineLoad, processor_seconds
from shieldfl.fleet.measure.shared_machine import measure_slowdown
from shieldfl.fleet.simulate.encryption_plan import EncryptionPlan, plan_encryption
from shieldfl.fleet.simulate.round_simulation import STAGES, FleetRounds, simulate_plan
from shieldfl.methods.discovery import checked_methods, method_class
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.scheme.registry import DEFAULT_ENCRYPTION, DEFAULT_KEY_BITS, encryptions, scheme_named
from shieldfl.settings import Count, Seed, Settings, Text, about, settings_of

__all__ = ["MeasureSettings", "MeasuredFleet", "measure_fleet", "trains_model", "without_dropouts"]

# A round that takes so much longer than simulated has a client that hangs.
_PATIENCE = 20.0
_LEAST_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class MeasureSettings(Settings):
    """What is measured. Raises ParameterError for methods that are unknown or named twice too."""

    methods: Annotated[tuple[Text, ...], about("Methods, one after the other.", options=("--method",))] = (
        "fedavg",
        "full-he",
    )
    scheme: Annotated[str, about("That methods encrypt by.", choices=encryptions)] = DEFAULT_ENCRYPTION
    rounds: Annotated[Count, about("Number of rounds of each method.")] = 3
    seed: Annotated[Seed, about("Of the clients' data, and of the model.")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_methods(self.methods)


@dataclass(frozen=True)
class MeasuredFleet:
    """Rounds of one method, measured, and the same computed."""

    measured: FleetRounds
    simulated: FleetRounds
    """As many rounds, with ``slowdown``; without the fleet file's dropouts: a measured client leaves if it fails."""
    simulated_apart: FleetRounds
    """The same for clients that do not share a machine."""
    slowdown: dict[str, NDArray[np.float64]]
    """By how much each client's training and encryption are slower, while all clients compute, than calibrated:
    measured before each round, shape (R, K)."""
    limit: str
    """What kept the clients to their share of the processor."""
    processor_seconds: dict[str, NDArray[np.float64]]
    """Of training with its scores and of the steps that make messages, what the client's process used; (R, K)."""
    load_of_others: NDArray[np.float64]
    """Share of the machine's cores that other processes used during each round, shape (R,)."""


def trains_model(fleet: Fleet) -> bool:
    """Whether the clients train a real model: where the fleet file does not state what training takes."""
    return fleet.model.train_core_seconds_per_sample is None


def without_dropouts(fleet: Fleet) -> Fleet:
    """Return the same fleet, of clients that stay and, being processes here, have this machine's costs."""
    here = {"dropout_probability": 0.0, "simd": "", "profile": ""}
    return replace(fleet, kinds=tuple(replace(kind, **here) for kind in fleet.kinds))  # type: ignore[arg-type]


def measure_fleet(
    fleet: Fleet,
    profile: DeviceProfile,
    chosen: MeasureSettings,
    settings: MethodSettings | None = None,
    on_round: Callable[[str, int], None] | None = None,
) -> list[MeasuredFleet]:
    """Start the clients of a fleet, let them do some rounds of each method, and simulate these beside.

    The same client processes go through all methods. One whose process ends has dropped out for good, and the others
    go on. Where a method gives the mean of all updates, each new model is compared with that of the plain ones.

    Parameters
    ----------
    profile : of this machine, with the scheme and, unless the fleet file states what training takes, the model.
    chosen : the methods, but for those that train on synthetic data, and the scheme, with the profile's key size.
    settings : of the methods; what they know of clients' links and processors is the fleet's.
    on_round : told the method and the number of the round that begins.

    Raises ParameterError for what this machine, the profile or a method cannot do, RangeError for a sum that was
    opened wrongly, DataError where a client cannot be started, OSError.
    """
    scheme, rounds = chosen.scheme, chosen.rounds
    staying = without_dropouts(fleet)
    quotas = processor_quotas(staying, build_info()["threads"])
    costs = profile.cost_model(scheme)
    parameters, key_bits = _calibrated(profile, scheme)
    own_settings = _own_settings(chosen.methods, staying, scheme, key_bits, settings or MethodSettings())
    tasks = _client_tasks(staying, profile, scheme, [quota.threads for quota in quotas], chosen.seed)
    made = [MeasuredMethod(name, own_settings, staying, tasks[0], rounds) for name in chosen.methods]
    # Rounds have keys of their own; this one is for the probe.
    frame = KeyAuthority(parameters).public_key.to_bytes()
    measured = []
    with ClientProcesses(staying.client_names, tasks, quotas, frame) as processes:
        for one in made:
            whole = plan_encryption("full-he", staying, costs.scheme)
            longest = float(simulate_plan(staying, costs, whole).round_seconds[0])
            patience = max(_LEAST_PATIENCE_SECONDS, _PATIENCE * longest)
            one.begin(processes, patience)
            loads, factors = [], []
            for number in range(rounds):
                if on_round is not None:
                    on_round(one.name, number)
                factors.append(measure_slowdown(processes, staying, costs))
                load, used = MachineLoad.now(), _own_seconds(processes)
                one.run_round(number + 1)
                loads.append(MachineLoad.now().share_of_others(load, _own_seconds(processes) - used))
            slowdown = {name: np.array([each[name] for each in factors]) for name in factors[0]}
            own = replace(costs, scheme=one.costs(costs.scheme))
            plan = one.observed_plan(own.scheme)
            measured.append(
                MeasuredFleet(
                    measured=_fleet_rounds(staying, plan, scheme, one.times),
                    simulated=simulate_plan(staying, own, plan, rounds, slowdown=slowdown),
                    simulated_apart=simulate_plan(staying, own, plan, rounds),
                    slowdown=slowdown,
                    limit=processes.limit_description,
                    processor_seconds={
                        name: np.array(
                            [[one.processor_seconds[name] for one in times.clients] for times in one.times]
                        )
                        for name in PROCESSOR_STAGES
                    },
                    load_of_others=np.array(loads),
                )
            )
    return measured


def _calibrated(profile: DeviceProfile, scheme: str) -> tuple[Any, int]:
    """Return the parameters that the profile was measured with, and their key size."""
    (measured,) = (one for one in profile.schemes if one.name == scheme)
    # The default first: short keys warn.
    for key_bits in (DEFAULT_KEY_BITS, *scheme_named(scheme).key_sizes):
        parameters = scheme_parameters(scheme, key_bits)
        if repr(parameters) == measured.setting:
            return parameters, key_bits
    raise ParameterError(f"the profile's {scheme} has other parameters than this version: calibrate again")


def _own_settings(
    methods: Sequence[str], fleet: Fleet, scheme: str, key_bits: int, settings: MethodSettings
) -> MethodSettings:
    """Return the settings under which a fleet is measured: of those below, each method has what it knows of."""
    facts = {
        "encryption": scheme,
        "key_bits": key_bits,
        "bandwidths": fleet.upload_bytes_per_second.tolist(),
        "compute_speeds": (fleet.cores * fleet.core_rate).tolist(),
        # The clients have random data: there is nothing to cluster them by.
        "clustering": "none",
    }
    for name in methods:
        schemes = method_class(name).schemes
        if schemes and scheme not in schemes:
            raise ParameterError(f"{name} encrypts by {' or '.join(schemes)}, not by {scheme}")
        entry = settings.of(name)
        known = {} if entry is None else settings_of(type(entry))
        if known:
            own = {key: value for key, value in facts.items() if key in known}
            settings = settings.changed(name, own)
    return settings


def _client_tasks(
    fleet: Fleet, profile: DeviceProfile, scheme: str, threads: Sequence[int], seed: int
) -> list[ClientTask]:
    stated = fleet.model.train_core_seconds_per_sample
    model = profile.model
    known = (fleet.model.name, fleet.model.parameters)
    if stated is None and (model is None or (model.name, model.parameters) != known):
        raise ParameterError(
            "the training step of the fleet's model was not measured: name one of linear, mlp and simple-cnn with its "
            "number of parameters in the fleet file and calibrate with --model, or state "
            "train_core_seconds_per_sample"
        )
    epochs = fleet.training.local_epochs
    return [
        ClientTask(
            index=client,
            scheme=scheme,
            threads=threads[client],
            samples=int(fleet.samples[client]),
            local_epochs=epochs,
            upload_bytes_per_second=float(fleet.upload_bytes_per_second[client]),
            latency_seconds=float(fleet.latency_seconds[client]),
            seed=seed + client,
            train_core_seconds=None if stated is None else float(stated * fleet.samples[client] * epochs),
            model=fleet.model.name,
            sample_shape=() if stated is not None or model is None else model.sample_shape,
        )
        for client in range(fleet.size)
    ]


def _own_seconds(processes: ClientProcesses) -> float:
    clients = 0.0
    for client in processes.alive:
        try:
            clients += processor_seconds(processes.pids[client])
        except OSError:
            continue  # It has just ended.
    return time.process_time() + clients


def _fleet_rounds(
    fleet: Fleet, plan: EncryptionPlan, scheme: str, rounds: Sequence[RoundTimes]
) -> FleetRounds:
    def of_clients(figure: Callable[[ClientTimes], float]) -> NDArray[Any]:
        return np.array([[figure(one) for one in times.clients] for times in rounds])

    def of_rounds(figure: Callable[[RoundTimes], float]) -> NDArray[Any]:
        return np.array([[figure(times)] for times in rounds])

    failed = of_rounds(lambda times: times.failed)
    barrier = of_rounds(lambda times: times.barrier)
    opening = of_rounds(lambda times: times.opening)
    return FleetRounds(
        fleet=fleet,
        plan=plan,
        scheme=scheme,
        stages={name: of_clients(lambda one, name=name: one.stages[name]) for name in STAGES},  # type: ignore[misc]
        dropped=of_clients(lambda one: one.dropped),
        aggregation=np.where(failed, 0.0, of_rounds(lambda times: times.opened) - barrier - opening),
        opening=opening,
        download=of_clients(lambda one: one.download),
        cluster_seconds=np.where(failed, barrier, of_rounds(lambda times: times.end)),
        failed=failed,
        bytes_up=of_clients(lambda one: float(one.bytes_up)),
        bytes_down=of_clients(lambda one: float(one.bytes_down)),
    )
