"""Rounds of a fleet, measured: real clients in processes of their own, under limits on processor and link."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_unsigned
from shieldfl.build_info import build_info
from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.device_profile import DeviceProfile
from shieldfl.fleet.costs.scheme_calibration import scheme_parameters
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.measure.client_processes import ClientProcesses
from shieldfl.fleet.measure.client_work import ClientTask, RoundTask
from shieldfl.fleet.measure.machine_load import MachineLoad, processor_seconds
from shieldfl.fleet.measure.measured_round import MeasuredRound, RoundTimes
from shieldfl.fleet.measure.plan_masks import PlanMasks, draw_masks
from shieldfl.fleet.measure.processor_quota import processor_quotas
from shieldfl.fleet.measure.shared_machine import measure_slowdown
from shieldfl.fleet.simulate.encryption_plan import EncryptionPlan, MaskSettings, plan_encryption
from shieldfl.fleet.simulate.round_simulation import STAGES, FleetRounds, simulate_plan
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.schemes import DEFAULT_KEY_BITS, encryptions, scheme_named

__all__ = ["MeasuredFleet", "measure_fleet", "trains_model", "without_dropouts"]

# A round that takes so much longer than simulated has a client that hangs.
_PATIENCE = 20.0
_LEAST_PATIENCE_SECONDS = 120.0


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
    """Of each stage but the upload, what the client's process used; shape (R, K)."""
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
    methods: Sequence[str],
    profile: DeviceProfile,
    scheme: str,
    rounds: int = 1,
    settings: MaskSettings | None = None,
    seed: int = 0,
    on_round: Callable[[str, int], None] | None = None,
) -> list[MeasuredFleet]:
    """Start the clients of a fleet, let them do ``rounds`` rounds of each method, and simulate these beside.

    The same client processes go through all methods. One whose process ends has dropped out for good, and the others
    go on. Each opened sum is compared with the sum of the plain updates.

    Parameters
    ----------
    profile : of this machine, with the scheme and, unless the fleet file states what training takes, the model.
    scheme : one of :func:`shieldfl.schemes.encryptions`.
    seed : of the clients' data and the masks.
    on_round : told the method and the number of the round that begins.

    Raises ParameterError for what this machine or the profile cannot do, RangeError for a sum that was opened wrongly,
    DataError where a client cannot be started, OSError.
    """
    if as_unsigned(rounds, "rounds") < 1:
        raise ParameterError("rounds must be at least 1")
    if scheme not in encryptions():
        raise ParameterError(f"schemes that can be measured are {', '.join(encryptions())}, not {scheme!r}")
    staying = without_dropouts(fleet)
    quotas = processor_quotas(staying, build_info()["threads"])
    costs = profile.cost_model(scheme)
    chosen = settings or MaskSettings()
    plans = [plan_encryption(method, staying, costs.scheme, chosen) for method in methods]
    tasks = _client_tasks(staying, profile, scheme, [quota.threads for quota in quotas], seed)
    authority = _key_authority(profile, scheme, staying)
    measured = []
    number = 0
    frame = authority.public_key.to_bytes()
    with ClientProcesses(staying.client_names, tasks, quotas, frame) as processes:
        for plan in plans:
            masks = draw_masks(plan, staying.model.parameters, costs.scheme, chosen.mask_overlap, seed)
            _announce(plan, masks, processes)
            apart = simulate_plan(staying, costs, plan, rounds)
            patience = max(_LEAST_PATIENCE_SECONDS, _PATIENCE * float(apart.round_seconds[0]))
            times, loads, factors = [], [], []
            for round_number in range(rounds):
                if on_round is not None:
                    on_round(plan.method, round_number)
                factors.append(measure_slowdown(processes, staying, costs))
                groups = plan.union_values.size
                numbers = range(number, number + groups)
                number += groups
                one = MeasuredRound(staying, plan, masks, processes, authority, numbers, patience)
                load, used = MachineLoad.now(), _own_seconds(processes)
                times.append(one.run())
                loads.append(MachineLoad.now().share_of_others(load, _own_seconds(processes) - used))
            slowdown = {name: np.array([one[name] for one in factors]) for name in factors[0]}
            measured.append(
                MeasuredFleet(
                    measured=_fleet_rounds(staying, plan, scheme, times),
                    simulated=simulate_plan(staying, costs, plan, rounds, slowdown=slowdown),
                    simulated_apart=apart,
                    slowdown=slowdown,
                    limit=processes.limit_description,
                    processor_seconds=_processor_seconds(times),
                    load_of_others=np.array(loads),
                )
            )
    return measured


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
            scheme=scheme,
            parameters=fleet.model.parameters,
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


def _key_authority(profile: DeviceProfile, scheme: str, fleet: Fleet) -> KeyAuthority:
    """Make a key with the very parameters that were calibrated."""
    (measured,) = (one for one in profile.schemes if one.name == scheme)
    for key_bits in scheme_named(scheme).key_sizes or (DEFAULT_KEY_BITS,):
        parameters = scheme_parameters(scheme, key_bits)
        if repr(parameters) == measured.setting:
            break
    else:
        raise ParameterError(
            f"the profile's {scheme} has other parameters than this version: calibrate again"
        )
    if fleet.size > parameters.max_clients:
        raise ParameterError(
            f"a measured fleet has at most {parameters.max_clients} clients, not {fleet.size}: lower count"
        )
    return KeyAuthority(
        parameters, min_clients=fleet.training.min_clients, threads=int(fleet.aggregator.cores)
    )


def _announce(plan: EncryptionPlan, masks: PlanMasks, processes: ClientProcesses) -> None:
    for client in processes.alive:
        order = masks.orders[plan.groups[client]]
        task = RoundTask(plan.scores, plan.selects, plan.sends_mask, masks.clients[client], order)
        processes.send(client, "method", task.facts(), parts=task.parts())


def _own_seconds(processes: ClientProcesses) -> float:
    clients = 0.0
    for client in processes.alive:
        try:
            clients += processor_seconds(processes.pids[client])
        except OSError:
            continue  # It has just ended.
    return time.process_time() + clients


def _processor_seconds(rounds: Sequence[RoundTimes]) -> dict[str, NDArray[np.float64]]:
    return {
        name: np.array([[one.processor_seconds.get(name, 0.0) for one in times.clients] for times in rounds])
        for name in STAGES[:-1]
    }


def _fleet_rounds(
    fleet: Fleet, plan: EncryptionPlan, scheme: str, rounds: Sequence[RoundTimes]
) -> FleetRounds:
    shape = (len(rounds), fleet.size)
    groups = plan.union_values.size
    download = np.zeros(shape)
    barrier, end = np.zeros((len(rounds), groups)), np.zeros((len(rounds), groups))
    for number, times in enumerate(rounds):
        for client, one in enumerate(times.clients):
            group = plan.groups[client]
            barrier[number, group] = max(barrier[number, group], one.until)
            if one.downloaded is not None:
                download[number, client] = one.downloaded - times.groups[group].opened
                end[number, group] = max(end[number, group], one.downloaded)
    failed = np.array([[group.failed for group in times.groups] for times in rounds])
    complete = np.array([[group.complete for group in times.groups] for times in rounds])
    opened = np.array([[group.opened for group in times.groups] for times in rounds])
    return FleetRounds(
        fleet=fleet,
        plan=plan,
        scheme=scheme,
        stages={
            name: np.array([[one.stages[name] for one in times.clients] for times in rounds])
            for name in STAGES
        },
        dropped=np.array([[one.dropped for one in times.clients] for times in rounds]),
        aggregation=np.where(failed, 0.0, complete - barrier),
        opening=np.where(failed, 0.0, opened - complete),
        download=download,
        cluster_seconds=np.where(failed, barrier, np.maximum(end, opened)),
        failed=failed,
        bytes_up=np.array([[float(one.bytes_up) for one in times.clients] for times in rounds]),
        bytes_down=np.array([[float(one.bytes_down) for one in times.clients] for times in rounds]),
    )
