"""Rounds of real client processes of several speeds, beside ``shieldfl profile simulate`` of the same fleet.

python bench/measured_fleet.py bench/experiments/fleet-measured-4.toml --method fedavg,full-he --rounds 3
python bench/measured_fleet.py FLEET.toml --scheme paillier-dense --profile profile.json --json measured.json

Each client is a process that takes the method's own steps. It gets cores x share x speed of this machine's cores: it is
stopped (SIGSTOP) while it is ahead of that, and continued. Its link is a pause, as long as its latency and bytes take.
Clients on one machine slow each other down: they measure by how much before the first round, and the simulation is told
that. What a method does only once, such as agreeing on a mask, is measured and not simulated.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import secrets
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.authority.message import Message
from shieldfl.build_info import build_info
from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import ResultConsole, result_table
from shieldfl.encryption.enrolment import SECRET_BYTES
from shieldfl.encryption.registry import DEFAULT_ENCRYPTION, DEFAULT_KEY_BITS, encryptions, scheme_named
from shieldfl.lab.bench.comparison import describe_machine
from shieldfl.lab.fleet.calibration import CalibrationSettings, calibrate, scheme_parameters
from shieldfl.lab.fleet.cost_source import (
    DeviceProfile,
    EncryptionPlan,
    MaskSettings,
    SchemeProfile,
    load_profile,
    packed_fields,
    speedup,
)
from shieldfl.lab.fleet.fleet import Fleet, load_fleet
from shieldfl.lab.fleet.round_simulation import STAGES, FleetRounds, simulate_plan
from shieldfl.learning.local_trainer import LocalTrainer, train_locally
from shieldfl.learning.local_update import LocalUpdate, StartingPoint, median_seconds
from shieldfl.learning.networks import build_model
from shieldfl.masks import Mask
from shieldfl.methods.registry import (
    MethodSettings,
    adapt_model,
    checked_methods,
    make_method,
    method_class,
    method_of,
)
from shieldfl.models.torch_bridge import flatten, flatten_buffers, parameter_layout
from shieldfl.quantities import MISSING, seconds_text
from shieldfl.rounds.driver import RoundDriver
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan, GlobalModel, PublicSetup
from shieldfl.rounds.training_client import PUBLIC_PARTS
from shieldfl.settings import TrainingSettings

STEPS = (*STAGES, "download")
_CLASSES, _BATCH_SIZE, _FEW_SAMPLES = 10, 32, 256
_PROBE_CIPHERTEXTS = 64
_TICK_SECONDS, _BURST_SECONDS = 0.002, 0.01
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Task:
    """What a client process is told at its start."""

    client: int
    fleet: Fleet
    method: str
    settings: MethodSettings
    scheme: str
    sample_shape: tuple[int, ...]
    setup: bytes = b""
    digest: bytes = b""
    probe_key: bytes = b""
    """What it encrypts under to find out how much other clients slow it down."""
    shared_secret: bytes | None = None

    @property
    def threads(self) -> int:
        """As many as the client has cores."""
        return max(1, int(self.fleet.cores[self.client]))


class Training:
    """SGD on random samples, as calibration times it, of the parameters that the method trains."""

    def __init__(self, task: Task, samples: int) -> None:
        torch.set_num_threads(task.threads)
        plain = build_model(str(task.fleet.model.name), task.sample_shape, _CLASSES, seed=0)
        module = adapt_model(task.method, plain, task.settings)
        generator = torch.Generator().manual_seed(task.client)
        features = torch.randn((samples, *task.sample_shape), generator=generator)
        labels = torch.randint(_CLASSES, (samples,), generator=generator)
        settings = TrainingSettings(local_epochs=task.fleet.training.local_epochs, batch_size=_BATCH_SIZE)
        self._trainer = LocalTrainer(module, features, labels, settings)
        self._few = (plain, features[:_FEW_SAMPLES], labels[:_FEW_SAMPLES], replace(settings, local_epochs=1))
        self.initial = GlobalModel(flatten(module), flatten_buffers(module))
        self.offsets = parameter_layout(module).offsets

    def train(self, start: StartingPoint) -> tuple[LocalUpdate, float]:
        """Train for one round; return the update, and how many seconds its scores took."""
        update, _ = self._trainer.train(start, seed=0)
        return update, self._trainer.clock.take().get("score", 0.0)

    def seconds_per_sample(self, seconds: float) -> float:
        """Return the processor time of a sample as it is now."""
        return median_seconds(lambda: train_locally(*self._few, seed=0), seconds) / len(self._few[1])


class ClientProcess:
    """What runs in a client's process: each request is the name of a method here and its arguments."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._training = Training(task, int(task.fleet.samples[task.client]))
        self._steps = method_of(setup := PublicSetup.from_bytes(task.setup, task.digest)).client_steps(
            setup,
            task.client,
            1,
            self._training.initial,
            threads=task.threads,
            shared_secret=task.shared_secret,
        )
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._start: StartingPoint
        self._selects = False

    def enrolment(self) -> bytes:
        """Return what the key authority has to get."""
        return self._steps.enrolment().to_bytes()

    def enrolled(self, answer: bytes) -> None:
        """Take the key authority's answer."""
        self._steps.enrolled(Message.from_bytes(answer))

    def probe(self, seconds: float) -> tuple[float, float]:
        """Return the processor seconds of a training sample and of a ciphertext, while all clients compute."""
        scheme = scheme_named(self._task.scheme)
        key = scheme.PublicKey.from_bytes(self._task.probe_key)
        in_one = key.parameters.values_per_ciphertext
        if scheme.enrols:
            key = scheme.ClientKey.of_secret(key, self._task.client, secrets.token_bytes(SECRET_BYTES))
        encryptor = scheme.Encryptor(key, threads=self._task.threads)
        count = _PROBE_CIPHERTEXTS * self._task.threads
        values = np.zeros(count * in_one, np.float32)
        encrypting = median_seconds(lambda: encryptor.encrypt(values).to_bytes(), seconds) / count
        return self._training.seconds_per_sample(seconds), encrypting

    def train(self, round_number: int, participants: int, message: bytes) -> None:
        """Begin a round: nobody waits for the answer."""
        self._seconds.clear()
        self._selects = False
        begin = time.monotonic()
        self._start = self._steps.begin_round(round_number, participants, Message.from_bytes(message))
        update, score = self._training.train(self._start)
        self._steps.finish_training(update)
        self._steps.report()
        self._seconds |= {"train": time.monotonic() - begin - score, "score": score}

    def step(self, phase: str, answer: bytes | None) -> bytes:
        """Make a message and upload it."""
        if answer is not None:
            self._pause("download", answer)
        begin = time.monotonic()
        message = self._steps.step(phase, None if answer is None else Message.from_bytes(answer)).to_bytes()
        stages = self._steps.report().seconds
        select = stages.get("score", 0.0) + stages.get("negotiate", 0.0)
        self._selects |= "score" in stages
        self._seconds["select"] += select
        self._seconds["encrypt"] += time.monotonic() - begin - select
        self._pause("upload", message)
        return message

    def end_round(self, message: bytes) -> tuple[dict[str, float], float, dict[str, Any]]:
        """Download the new model; return the seconds of each step, when all was done, and what it encrypted."""
        self._pause("download", message)
        begin = time.monotonic()
        self._steps.end_round(Message.from_bytes(message))
        end = time.monotonic()
        self._seconds["download"] += end - begin
        stated = self._steps.disclosure
        facts = {
            "scores": self._start.scores is not None,
            "selects": self._selects,
            "sends_mask": not set(stated.parts) <= set(PUBLIC_PARTS),
            "encrypted": stated.encrypted.to_bytes(),
        }
        return dict(self._seconds), end, facts

    def _pause(self, direction: str, message: bytes) -> None:
        fleet, client = self._task.fleet, self._task.client
        rates = fleet.upload_bytes_per_second if direction == "upload" else fleet.download_bytes_per_second
        begin = time.monotonic()
        time.sleep(fleet.latency_seconds[client] + len(message) / rates[client])
        self._seconds[direction] += time.monotonic() - begin


def _serve(connection: Connection, task: Task) -> None:
    """Be a client until the other side has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nobody would continue a stopped client of a process that was killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    client = ClientProcess(task)
    with suppress(EOFError):
        while True:
            request, *arguments = connection.recv()
            answer = getattr(client, request)(*arguments)
            if request != "train":
                connection.send(answer)


class Clients:
    """The processes, as the driver of a round reaches them, and what they took in each round."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        context = get_context("spawn")
        pairs = [context.Pipe() for _ in tasks]
        self._connections = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(theirs, task), daemon=True)
            for (_, theirs), task in zip(pairs, tasks, strict=True)
        ]
        for process, (_, theirs) in zip(self._processes, pairs, strict=True):
            process.start()
            theirs.close()
        self.pids = [int(process.pid or 0) for process in self._processes]
        self.stages: list[dict[int, dict[str, float]]] = []
        """Seconds, by round, client and step."""
        self.round_seconds: list[float] = []
        self.told: dict[int, dict[str, Any]] = {}
        """What each client encrypted in the last round."""
        self._start = 0.0

    def close(self) -> None:
        """End every process and wait for it."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    def ask(
        self, clients: Sequence[int], request: str, arguments_of: Callable[[int], tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """Ask each client and yield the answers as they come. Raises RuntimeError for a client that has ended."""
        for client in clients:
            self._connections[client].send((request, *arguments_of(client)))
        waiting = {self._connections[client]: client for client in clients}
        while waiting:
            for connection in wait(list(waiting)):
                client = waiting.pop(connection)  # type: ignore[call-overload]
                try:
                    yield client, self._connections[client].recv()
                except EOFError:
                    raise RuntimeError(f"client {client} has ended; its error stands above") from None

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        """Hand out the first messages without delay: clients have the model from the round before."""
        messages = {client: message_of(client).to_bytes() for client in clients}
        self._start = time.monotonic()
        for client, message in messages.items():
            self._connections[client].send(("train", round_number, participants, message))

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes]]:
        """Let the clients make their messages; yield them as they arrive."""
        sent = None if message_of is None else {one: message_of(one).to_bytes() for one in clients}
        yield from self.ask(clients, "step", lambda one: (phase, sent and sent[one]))

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        """Let the clients download the new model."""
        found = dict(self.ask(clients, "end_round", lambda one: (message_of(one).to_bytes(),)))
        self.stages.append({client: seconds for client, (seconds, _, _) in found.items()})
        self.round_seconds.append(max(end for _, end, _ in found.values()) - self._start)
        self.told = {client: facts for client, (_, _, facts) in found.items()}


@contextmanager
def limited(pids: Sequence[int], cores: Sequence[float]) -> Iterator[None]:
    """Keep processes to so many cores: one that has used more processor time is stopped until it has not.

    One that others kept from running makes up for a hundredth of a second of it.
    """
    ended = threading.Event()

    def settle() -> None:
        used = [_processor_seconds(pid) for pid in pids]
        credit, stopped, before = [0.0] * len(pids), [False] * len(pids), time.monotonic()
        while not ended.wait(_TICK_SECONDS):
            elapsed, before = time.monotonic() - before, time.monotonic()
            for one, pid in enumerate(pids):
                now = _processor_seconds(pid)
                earned = credit[one] + elapsed * cores[one] - (now - used[one])
                credit[one], used[one] = min(earned, _BURST_SECONDS * cores[one]), now
                if (credit[one] < 0.0) != stopped[one]:
                    stopped[one] = not stopped[one]
                    os.kill(pid, signal.SIGSTOP if stopped[one] else signal.SIGCONT)

    thread = threading.Thread(target=settle, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _processor_seconds(pid: int) -> float:
    """Return what all threads of a process have used: the clock that clock_getcpuclockid(3) computes."""
    return time.clock_gettime((~pid << 3) | 2)


@dataclass(frozen=True)
class Measured:
    """One method's rounds, measured and simulated."""

    method: str
    stages: list[dict[int, dict[str, float]]]
    round_seconds: list[float]
    simulated: FleetRounds
    slowdown: dict[str, list[float]]
    """By how much clients' training and encryption are slower than calibrated, while all compute."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "method": self.method,
            "round": _beside(self.round_seconds, self.simulated.round_seconds[0]),
            "slowdown": self.slowdown,
            "clients": [
                {"client": name, "until_update": self._steps(client, STAGES)}
                | {step: self._steps(client, (step,)) for step in STEPS}
                for client, name in enumerate(self.simulated.fleet.client_names)
            ],
        }

    def _steps(self, client: int, steps: Sequence[str]) -> dict[str, Any]:
        simulated = self.simulated.stages | {"download": self.simulated.download}
        measured = [sum(times[client].get(step, 0.0) for step in steps) for times in self.stages]
        return _beside(measured, sum(simulated[step][0, client] for step in steps))


def _beside(measured: Sequence[float], simulated: float) -> dict[str, Any]:
    middle = median(measured)
    return {
        "measured": list(measured),
        "measured_median": middle,
        "simulated": float(simulated),
        "error": float(simulated) / middle - 1.0 if middle >= 0.001 else None,
    }


def measure_method(
    name: str, fleet: Fleet, profile: DeviceProfile, scheme: str, rounds: int, probe_seconds: float = 1.0
) -> Measured:
    """Run a method's rounds with a process for each client, and simulate them.

    ``profile`` is of this machine. Raises ParameterError for a method that refuses the fleet, SystemExit for
    another profile or a method on synthetic data, RuntimeError for a client that ends.
    """
    fleet = staying(fleet)
    parameters = scheme_parameters(scheme, DEFAULT_KEY_BITS)
    if repr(parameters) not in (one.setting for one in profile.schemes if one.name == scheme):
        raise SystemExit(f"the profile lacks {scheme} with this version's parameters: calibrate again")
    model = profile.model
    if model is None or (model.name, model.parameters) != (fleet.model.name, fleet.model.parameters):
        raise SystemExit(
            "the fleet's model was not calibrated: name one of shieldfl profile calibrate --model"
        )
    settings = own_settings(name, fleet, scheme)
    task = Task(0, fleet, name, settings, scheme, model.sample_shape)
    first = Training(task, samples=1)
    plan = FederationPlan(
        clients=fleet.size,
        rounds=rounds,
        min_clients=fleet.training.min_clients,
        server_learning_rate=1.0,
        parameters=first.initial.parameters.size,
        buffers=first.initial.buffers.size,
        layer_offsets=first.offsets,
        samples=int(fleet.samples.sum()),
    )
    method = make_method(name, settings, plan)
    if method.synthetic_demand is not None:
        raise SystemExit(f"{name} trains on synthetic data, which these clients do not have")
    secret = secrets.token_bytes(32) if method.needs_shared_secret else None
    threads = int(fleet.aggregator.cores)
    authority, setup = method.authority_setup(first.initial, threads=threads, shared_secret=secret)
    aggregator = method.aggregator_steps(
        setup, [1] * fleet.size, initial=first.initial if authority is None else None, threads=threads
    )
    task = replace(
        task,
        setup=setup.to_bytes(),
        digest=setup.digest,
        shared_secret=secret,
        probe_key=KeyAuthority(parameters).public_key.to_bytes(),
    )
    everyone = range(fleet.size)
    clients = Clients([replace(task, client=client) for client in everyone])
    try:
        enrolled = {}
        for client, request in clients.ask(everyone, "enrolment", lambda _: ()):
            if (message := Message.from_bytes(request)) and authority is not None:
                enrolled[client] = authority.enrol(client, message).to_bytes()
        list(clients.ask(list(enrolled), "enrolled", lambda one: (enrolled[one],)))
        driver = RoundDriver(method, authority, aggregator, clients, method.account())
        with limited(clients.pids, (fleet.cores * fleet.core_rate).tolist()):
            probed = dict(clients.ask(everyone, "probe", lambda _: (probe_seconds,)))
            for number in range(1, rounds + 1):
                driver.run_round(number, everyone, fleet.size)
    finally:
        clients.close()
    base = profile.cost_model(scheme)
    slowdown = {}
    for at, (step, seconds, serial) in enumerate(
        (
            ("train", base.train_seconds_per_sample, base.train_serial_share),
            ("encrypt", base.scheme.encrypt_seconds[1], base.scheme.serial_share),
        )
    ):
        calibrated = seconds * fleet.cores / speedup(fleet.cores, serial)
        slowdown[step] = [float(probed[one][at] / calibrated[one]) for one in everyone]
    costs = replace(base, scheme=own_costs(method, base.scheme))
    slowed = {
        kind.profile: replace(
            costs,
            train_seconds_per_sample=costs.train_seconds_per_sample * train,
            scheme=replace(costs.scheme, encrypt_seconds=times(costs.scheme.encrypt_seconds, encrypt)),
        )
        for kind, train, encrypt in zip(fleet.kinds, *slowdown.values(), strict=True)
    }
    observed = observed_plan(name, fleet, costs.scheme, clients.told)
    return Measured(
        method=name,
        stages=clients.stages,
        round_seconds=clients.round_seconds,
        simulated=simulate_plan(fleet, replace(costs, clients=slowed), observed),
        slowdown=slowdown,
    )


def staying(fleet: Fleet) -> Fleet:
    """Return the fleet as clients that stay, each a kind of its own, on this machine. SystemExit if it is too large."""
    cores, used = build_info()["threads"], float((fleet.cores * fleet.core_rate).sum())
    if max(*fleet.cores, used, fleet.aggregator.cores) > cores or fleet.core_rate.max() > 1.0:
        raise SystemExit(
            f"the clients use {used:.2f} cores together, and this machine has {cores} of speed 1: lower count, cores, "
            "cpu_share or core_speed"
        )
    alone = [kind for kind in fleet.kinds for _ in range(kind.count)]
    kinds = (
        replace(
            kind,
            name=name,
            count=1,
            profile=name,
            dropout_probability=0.0,
            idle_seconds=0.0,
            cluster="",
        )
        for kind, name in zip(alone, fleet.client_names, strict=True)
    )
    return replace(fleet, kinds=tuple(kinds))


def own_settings(name: str, fleet: Fleet, scheme: str) -> MethodSettings:
    """Return a method's settings: its scheme, and what it knows of clients' links and processors."""
    settings, facts = MethodSettings(), {"encryption": scheme}
    if name == "sense-crypt":
        # Clients have random data: there is nothing to cluster them by.
        facts |= {
            "bandwidths": fleet.upload_bytes_per_second.tolist(),
            "compute_speeds": (fleet.cores * fleet.core_rate).tolist(),
            "clustering": "none",
        }
    return settings.changed(name, facts) if len(method_class(name).schemes) > 1 else settings


def times(seconds: Any, factor: float) -> Any:
    """Return seconds, or those by threads, times a factor."""
    return {n: one * factor for n, one in seconds.items()} if isinstance(seconds, dict) else seconds * factor


def own_costs(method: Method, calibrated: SchemeProfile) -> SchemeProfile:
    """Return the costs of ciphertexts as the method makes them: as much higher as they have more bytes."""
    if not method.purposes:
        return calibrated
    parameters = method.purposes["update"]
    size = parameters.bytes_per_value * parameters.values_per_ciphertext
    scaled = ("encrypt_seconds", "add_seconds", "open_seconds", "answer_seconds", "answer_seconds_per_client")
    longer = {name: times(getattr(calibrated, name), size / calibrated.ciphertext_bytes) for name in scaled}
    return replace(
        calibrated,
        values_per_ciphertext=parameters.values_per_ciphertext,
        ciphertext_bytes=size,
        clients_open=method.clients_open,
        **longer,
    )


def observed_plan(
    name: str, fleet: Fleet, scheme: SchemeProfile, told: Mapping[int, Mapping[str, Any]]
) -> EncryptionPlan:
    """Return who encrypted how much in the last round, as one group."""
    masks = [Mask.from_bytes(told[client]["encrypted"]) for client in range(fleet.size)]
    union = masks[0]
    for mask in masks[1:]:
        union = union | mask
    values = np.array([mask.count for mask in masks])
    unions = np.full(fleet.size, union.count)
    return EncryptionPlan(
        method=name,
        values=values,
        fields=packed_fields(values, unions, scheme, MaskSettings().mask_overlap),
        groups=np.zeros(fleet.size, dtype=np.int64),
        union_values=unions[:1],
        budget_shortfall=np.zeros(fleet.size),
        **{fact: any(one[fact] for one in told.values()) for fact in ("scores", "selects", "sends_mask")},
    )


def print_measured(one: Measured) -> None:
    """Print a line for each client and one for the round."""
    console, facts = ResultConsole(), one.to_json()

    def error(times: Mapping[str, Any]) -> str:
        return MISSING if times["error"] is None else f"{times['error']:+.1%}"

    def cells(times: Mapping[str, Any]) -> list[str]:
        measured = times["measured"]
        shown = (times["measured_median"], min(measured), max(measured), times["simulated"])
        return [*map(seconds_text, shown), error(times)]

    console.print(f"{one.method}, {len(one.round_seconds)} rounds", style="bold")
    table = result_table(("", "measured", "from", "to", "simulated", "error", *STEPS))
    for client in facts["clients"]:
        table.add_row(
            client["client"], *cells(client["until_update"]), *(error(client[step]) for step in STEPS)
        )
    table.add_row("round", *cells(facts["round"]), *("" for _ in STEPS), style="bold")
    console.print(table)
    factors = (f"{name} {min(each):.2f} to {max(each):.2f}" for name, each in one.slowdown.items())
    console.print(
        f"slowed down by the other clients on this machine, times: {', '.join(factors)}", soft_wrap=True
    )


def main() -> None:
    """Read the command line, calibrate where no profile is given, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fleet", type=Path)
    parser.add_argument("--method", default="fedavg,full-he", help="names, with commas in between")
    parser.add_argument("--scheme", default=DEFAULT_ENCRYPTION, choices=encryptions())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=Path, help="of this machine, by shieldfl profile calibrate")
    parser.add_argument("--json", type=Path, help="write every figure")
    given = parser.parse_args()
    names = checked_methods(given.method.split(","))
    fleet = load_fleet(given.fleet)
    if given.profile is not None:
        profile = load_profile(given.profile)
    else:
        threads = tuple({max(1, int(cores)) for cores in fleet.cores})
        profile = calibrate(
            CalibrationSettings(schemes=(given.scheme,), threads=threads, model=fleet.model.name)
        )
    print_machine(describe_machine(), ResultConsole())
    found = []
    for name in names:
        found.append(measure_method(name, fleet, profile, given.scheme, given.rounds))
        print_measured(found[-1])
    if given.json is not None:
        given.json.write_text(json.dumps([one.to_json() for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
