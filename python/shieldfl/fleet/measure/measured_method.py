"""One method on a measured fleet: its roles, the driver of its rounds, and what its clients then encrypted."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError, RangeError
from shieldfl.fleet.costs.cost_model import SchemeCosts
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.measure.client_processes import ClientProcesses, ClientTask
from shieldfl.fleet.measure.measured_round import MeasuredClients, RoundTimes
from shieldfl.fleet.measure.paced_link import Letter
from shieldfl.fleet.simulate.encryption_plan import EncryptionPlan, MaskSettings, packed_fields
from shieldfl.masks import Mask
from shieldfl.methods.discovery import method_class
from shieldfl.methods.protocol.driver import RoundDriver
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.settings import plain_settings

__all__ = ["MeasuredMethod"]

_DEVIATION = 0.05


class MeasuredMethod:
    """A method's aggregator and key authority here, its clients in their processes.

    Parameters
    ----------
    task : of any client: whether it trains a model, and which.
    rounds : that will be measured.

    Raises ParameterError for a method that the clients cannot train for, and what it refuses itself.
    """

    def __init__(
        self, name: str, settings: MethodSettings, fleet: Fleet, task: ClientTask, rounds: int
    ) -> None:
        self.name = name
        entry = settings.of(name)
        stated = task.train_core_seconds is not None
        if stated and method_class(name).trains_privately(name, entry):
            raise ParameterError(
                f"{name} trains by DP-SGD, which takes longer than train_core_seconds_per_sample says: leave that out "
                "and name a model"
            )
        self._initial, offsets = _initial_model(fleet, settings, task, name)
        plan = FederationPlan(
            clients=fleet.size,
            rounds=rounds,
            min_clients=fleet.training.min_clients,
            server_learning_rate=1.0,
            parameters=self._initial.parameters.size,
            buffers=self._initial.buffers.size,
            layer_offsets=offsets,
            samples=int(fleet.samples.sum()),
        )
        self._method = make_method(name, settings, plan)
        if self._method.synthetic_demand is not None:
            raise ParameterError(f"{name} trains on synthetic data, which the clients of a fleet do not have")
        self._fleet = fleet
        self._account = self._method.account()
        self._told: dict[int, Letter] = {}
        self._model = self._initial.parameters
        """What a client said that the last round gave."""
        self.times: list[RoundTimes] = []
        """Of each round so far."""

    def begin(self, processes: ClientProcesses, patience_seconds: float) -> None:
        """Set the method up and tell the clients that are alive."""
        method, initial = self._method, self._initial
        threads = int(self._fleet.aggregator.cores)
        secret = secrets.token_bytes(32) if method.needs_shared_secret else None
        self._authority, setup = method.authority_setup(initial, threads=threads, shared_secret=secret)
        parts = {
            "setup": setup.to_bytes(),
            "digest": setup.digest,
            "parameters": initial.parameters.tobytes(),
            "buffers": initial.buffers.tobytes(),
            **({} if secret is None else {"shared_secret": secret}),
        }
        for client in processes.alive:
            processes.send(client, "method", parts=parts)
        self._aggregator = method.aggregator_steps(
            setup,
            [1] * self._fleet.size,
            initial=initial if self._authority is None else None,
            threads=threads,
        )
        self._processes = processes
        self._clients = MeasuredClients(processes, self._fleet, patience_seconds, self._opening_seconds)
        for client, request in self._clients.enrolments(processes.alive):
            if request and self._authority is not None:
                granted = self._authority.enrol(client, request)
                processes.send(client, "enrolled", parts={"message": granted.to_bytes()})
        self._driver = RoundDriver(method, self._authority, self._aggregator, self._clients, self._account)

    def run_round(self, number: int) -> None:
        """Let those clients do a round that are alive, if they are enough. Raises RangeError for a wrong sum."""
        least = self._fleet.training.min_clients
        alive = self._processes.alive
        if len(alive) < least:
            self.times.append(self._clients.new_round())
            return
        finished = self._driver.run_round(number, alive, least).finished
        times = self._clients.times
        self.times.append(times)
        for client in set(alive) - set(finished) if not times.failed else ():
            # Also one whose message the aggregator refused.
            times.clients[client].dropped = True
        told = self._clients.told(finished)
        self._told |= told
        models = [letter.parts["parameters"] for letter in told.values() if "parameters" in letter.parts]
        if not models:
            return
        before, self._model = self._model, np.frombuffer(models[0], dtype=np.float32)
        if len(told) == len(finished):
            for model in dict.fromkeys(models):
                self._check(before, np.frombuffer(model, dtype=np.float32), list(told.values()))

    def _check(self, before: NDArray[np.float32], after: NDArray[np.float32], told: Sequence[Letter]) -> None:
        """Compare the model with that of the plain updates, where all of these were sent and no noise was added."""
        whole = type(self._method).averages_all and all(letter.facts["sent_plain"] for letter in told)
        if not told or not whole:
            return
        updates = [np.frombuffer(letter.parts["update"], dtype=np.float32) for letter in told]
        mean = np.mean(updates, axis=0, dtype=np.float64)
        plain = before + mean
        # Each value is rounded to the nearest multiple of 2^-f, and so is the mean off by half of that at most.
        half = 0.5 * 2.0 ** -self._method.purposes["update"].fraction_bits if self._method.purposes else 0.0
        # Sums in the clear travel in float32, as the model is.
        rounding = 2.0 * np.spacing(np.maximum(abs(after), abs(before)))
        rounding += np.spacing(np.abs(mean).astype(np.float32))
        if not (np.abs(after - plain) <= half + rounding).all():
            raise RangeError("a sum was opened wrongly: this build cannot be relied on")

    def costs(self, calibrated: SchemeCosts) -> SchemeCosts:
        """Return a scheme's costs for ciphertexts as this method makes them, for as many clients as there are.

        One of other parameters than were calibrated takes as much longer as it has more bytes.
        """
        if not self._method.purposes:
            return calibrated
        parameters = self._method.purposes["update"]
        in_one = parameters.values_per_ciphertext
        size = parameters.bytes_per_value * in_one
        longer = size / calibrated.ciphertext_bytes
        return replace(
            calibrated,
            values_per_ciphertext=in_one,
            ciphertext_bytes=size,
            encrypt_seconds=longer * calibrated.encrypt_seconds,
            add_seconds=longer * calibrated.add_seconds,
            open_seconds=longer * calibrated.open_seconds,
            answer_seconds=longer * calibrated.answer_seconds,
            answer_seconds_per_client=longer * calibrated.answer_seconds_per_client,
            clients_open=self._method.clients_open,
        )

    def observed_plan(self, scheme: SchemeCosts) -> EncryptionPlan:
        """Return who encrypted how much in its last round, as one group; nothing for a client that finished none."""
        size, clients = self._fleet.model.parameters, self._fleet.size
        masks = {client: Mask.from_bytes(letter.parts["encrypted"]) for client, letter in self._told.items()}
        union = Mask.empty(next(iter(masks.values())).size) if masks else Mask.empty(size)
        for mask in masks.values():
            union = union | mask
        values = np.array([masks[one].count if one in masks else 0 for one in range(clients)])
        unions = np.full(clients, union.count)

        def any_of(fact: str) -> bool:
            return any(letter.facts[fact] for letter in self._told.values())

        return EncryptionPlan(
            method=self.name,
            values=values,
            fields=packed_fields(values, unions, scheme, MaskSettings().mask_overlap),
            groups=np.zeros(clients, dtype=np.int64),
            union_values=unions[:1],
            scores=any_of("scores"),
            selects=any_of("selects"),
            sends_mask=any_of("sends_mask"),
            budget_shortfall=np.zeros(clients),
        )

    def _opening_seconds(self) -> float:
        if self._authority is None:
            return 0.0
        report = self._authority.report()
        self._account.take(report)
        return report.seconds.get("open", 0.0)


def _initial_model(
    fleet: Fleet, settings: MethodSettings, task: ClientTask, name: str
) -> tuple[GlobalModel, tuple[int, ...]]:
    """Return the model that the first round starts from, and its layers' offsets; () for random numbers."""
    if task.train_core_seconds is not None:
        generator = np.random.default_rng(task.seed)
        values = generator.normal(0.0, _DEVIATION, fleet.model.parameters).astype(np.float32)
        return GlobalModel(values, np.zeros(0, dtype=np.float32)), ()
    # Only here: a fleet whose training is stated needs no torch.
    from shieldfl.fleet.costs.train_step import LocalTraining

    training = LocalTraining(str(task.model), task.sample_shape, samples=1, local_epochs=1, seed=0)
    training.begin_method(name, plain_settings(settings.of(name)))
    return training.initial, training.layout.offsets
