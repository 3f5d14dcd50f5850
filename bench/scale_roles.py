"""What a client, the aggregator and the key authority of key-additive encryption take, by clients and values."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from statistics import median

import numpy as np
from rich.table import Table

from million_clients import request_of_all
from shieldfl.cli.console import result_table
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.lab.bench.comparison import EnrolledSession
from target import median_seconds_in_turns

CLIENTS = [10**exponent for exponent in range(2, 7)]
VALUES = [10**exponent for exponent in range(5, 10)]
MOST_MEASURED_VALUES = 10**7
MOST_MEASURED_SECRETS = 200_000
"""Of all clients of a request: a second or two."""
_LIST_BYTES = 20
"""Of a participant, in a total and in a request: its number and the id of its frame."""
_PER_SECRET = 32
"""Ciphertexts that share a secret."""


@cache
def parameters_for(clients: int, values: int) -> kahe.Parameters:
    """Return what so many clients sum 24-bit values with: planned for speed, as methods plan it."""
    return kahe.Parameters.plan(
        max_clients=clients, value_bits=24, fraction_bits=20, goal="speed", count=values
    )


def ciphertexts_of(clients: int, values: int) -> int:
    """Return how many ciphertexts an update has."""
    return int(-(-values // parameters_for(clients, values)._facts["values_per_ciphertext"]))


def secrets_of(clients: int, values: int) -> int:
    """Return how many secrets of each client a total has."""
    return -(-ciphertexts_of(clients, values) // _PER_SECRET)


@dataclass(frozen=True)
class FrameCost:
    """Of one client's update: processor seconds of one thread, and bytes."""

    encrypt: float
    add: float
    open: float
    frame_bytes: int
    total_bytes: int
    computed: bool = False
    """From the largest that was measured, in proportion to the values."""

    def scaled(self, factor: int) -> FrameCost:
        """Return the same for more values."""
        times = (factor * one for one in (self.encrypt, self.add, self.open))
        return FrameCost(*times, factor * self.frame_bytes, factor * self.total_bytes, computed=True)


@cache
def frame_cost(clients: int, values: int) -> FrameCost:
    """Measure what a frame takes, under the parameters for so many clients; two of them are in the total."""
    if values > MOST_MEASURED_VALUES:
        return frame_cost(clients, MOST_MEASURED_VALUES).scaled(values // MOST_MEASURED_VALUES)
    session = EnrolledSession(parameters_for(clients, values), 2)
    update = np.random.default_rng(0).normal(0.0, 0.05, values).astype(np.float32)
    encryptors = [kahe.Encryptor(key, 1) for key in session.client_keys]
    frames = [one.encrypt(update).to_bytes() for one in encryptors]
    aggregator = _aggregator_with(session, *frames)
    total = aggregator.total().to_bytes()
    read = kahe.Total.from_bytes(total, 1)
    answer = session.answer(read.request(), [0, 1], 1)
    rounds = iter(range(1, 10**6))
    aggregators = iter([_aggregator_with(session, frames[0]) for _ in range(8)])

    def add() -> None:
        next(aggregators).add(frames[1])

    def opened() -> None:
        open_total(session.public_key, kahe.Total.from_bytes(total, 1), [answer], threads=1)

    functions = {
        "encrypt": lambda: encryptors[0].encrypt(update, round=next(rounds)),
        "add": add,
        "open": opened,
    }
    seconds = median_seconds_in_turns(functions, 7, clock=time.process_time)
    return FrameCost(*(seconds[name] for name in functions), len(frames[0]), len(total))


def _aggregator_with(session: EnrolledSession, *frames: bytes) -> kahe.Aggregator:
    aggregator = kahe.Aggregator(session.public_key, 1)
    for frame in frames:
        aggregator.add(frame)
    return aggregator


@cache
def authority_seconds(clients: int, values: int) -> float:
    """Measure the processor seconds of an answer to so many clients."""
    public_key = kahe.PublicKey.of_session(
        parameters_for(clients, values), secrets.token_bytes(32), secrets.token_bytes(16)
    )
    keys = [kahe.ClientKey.of_secret(public_key, one, secrets.token_bytes(32)) for one in range(clients)]
    request = request_of_all(public_key, clients, values=values)
    function = {"": partial(sum_key, public_key, request, keys, threads=1)}
    return median_seconds_in_turns(function, 3, clock=time.process_time)[""]


def is_measured(clients: int, values: int) -> bool:
    """Whether an answer is measured, and not computed."""
    return values <= 10**7 and clients * secrets_of(clients, values) <= MOST_MEASURED_SECRETS


def answer_seconds(clients: int, values: int) -> float:
    """Measure, or compute: clients, times secrets, times what one takes where most were measured in this ring."""
    if is_measured(clients, values):
        return authority_seconds(clients, values)
    return (
        clients
        * secrets_of(clients, values)
        * _seconds_per_secret(parameters_for(clients, values)._facts["ring_degree"])
    )


@cache
def _seconds_per_secret(ring_degree: int) -> float:
    """Take it where most secrets of this ring were measured."""
    number, clients, values = max(
        (clients * secrets_of(clients, values), clients, values)
        for clients in CLIENTS
        for values in VALUES
        if is_measured(clients, values)
        and parameters_for(clients, values)._facts["ring_degree"] == ring_degree
    )
    return authority_seconds(clients, values) / number


def short(number: float, unit: str = "") -> str:
    """Return a number with three digits and a decimal prefix."""
    for factor, prefix in (
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1, ""),
        (1e-3, "m"),
    ):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}".rstrip()
    return f"{1e6 * number:.3g} µ{unit}"


def frames_table() -> Table:
    """What one client and one frame take."""
    heads = [
        "clients",
        "values",
        "bytes up",
        "bytes a value",
        "encrypt, s",
        "add, s",
        "total, bytes",
        "open, s",
        "",
    ]
    rows = []
    for clients in CLIENTS[::2]:
        for values in VALUES:
            cost = frame_cost(clients, values)
            times = [f"{one:.2g}" for one in (cost.encrypt, cost.add, cost.open)]
            rows.append(
                [
                    f"{clients:,}",
                    f"{values:,}",
                    short(cost.frame_bytes, "B"),
                    f"{cost.frame_bytes / values:.2f}",
                    *times[:2],
                    short(cost.total_bytes, "B"),
                    times[2],
                    "computed" if cost.computed else "",
                ]
            )
    return result_table(heads, rows)


def authority_table() -> Table:
    """What an answer takes."""
    heads = ["clients", "values", "secrets of a client", "list, bytes", "answer, processor s", ""]
    rows = [
        [
            f"{clients:,}",
            f"{values:,}",
            f"{secrets_of(clients, values):,}",
            short(_LIST_BYTES * clients, "B"),
            f"{answer_seconds(clients, values):.3g}",
            "" if is_measured(clients, values) else "computed",
        ]
        for clients in CLIENTS
        for values in VALUES
    ]
    return result_table(heads, rows)


def rounds_table() -> Table:
    """What a round takes in which all clients are, computed from what was measured."""
    heads = ["clients", "values", "bytes in", "adding, processor s", "at 10 Gbit/s, s", "answer, processor s"]
    rows = []
    for clients in CLIENTS:
        for values in VALUES:
            cost = frame_cost(10**2 if clients <= 10**3 else 10**4 if clients <= 10**5 else 10**6, values)
            frame = (
                ciphertexts_of(clients, values) * parameters_for(clients, values)._facts["ciphertext_bytes"]
            )
            add = clients * cost.add * frame / cost.frame_bytes
            rows.append(
                [
                    f"{clients:,}",
                    f"{values:,}",
                    short(clients * frame, "B"),
                    f"{add:.3g}",
                    f"{clients * frame / 1250000000.0:.3g}",
                    f"{answer_seconds(clients, values):.3g}",
                ]
            )
    return result_table(heads, rows)


def bytes_table(values: int = 10**6) -> Table:
    """What a client sends and gets in a round of which it evaluates nothing, beside float32 both ways."""
    rows = []
    for clients in (4, 16, 64, 256, *CLIENTS[1:]):
        facts, count = parameters_for(clients, values)._facts, ciphertexts_of(clients, values)
        up, total = count * facts["ciphertext_bytes"], count * facts["total_ciphertext_bytes"]
        rows.append(
            [
                f"{clients:,}",
                f"{up / values:.2f}",
                f"{total / values:.2f}",
                f"{(up + total) / (8 * values):.3f}",
                f"{(up + 4 * values) / (8 * values):.3f}",
            ]
        )
    heads = [
        "clients",
        "bytes a value up",
        "down, clients open",
        "both over float32",
        "aggregator opens: both",
    ]
    return result_table(heads, rows)


def tree_table(leaves: int = 10, each: int = 10, values: int = 10**6) -> Table:
    """Sum the same frames at once and by a tree of aggregators; the opened sums are compared."""
    clients = leaves * each
    session = EnrolledSession(parameters_for(clients, values), clients)
    draw = np.random.default_rng(1)
    updates = [draw.normal(0.0, 0.05, values).astype(np.float32) for _ in range(4)]
    frames = [
        kahe.Encryptor(key, 1).encrypt(updates[number % 4]).to_bytes()
        for number, key in enumerate(session.client_keys)
    ]
    flat = kahe.Aggregator(session.public_key, 1)
    flat_seconds = list(_timed(flat.add, frames))
    partial_sums = [
        _aggregator_with(session, *frames[leaf * each : (leaf + 1) * each]).total().to_bytes()
        for leaf in range(leaves)
    ]
    root = kahe.Aggregator(session.public_key, 1)
    root_seconds = list(_timed(root.add_total, partial_sums))
    sums = []
    for total in (flat.total(), root.total()):
        answer = session.answer(total.request(), list(range(clients)), 1)
        sums.append(open_total(session.public_key, total, [answer], threads=1)[0])
    if not np.array_equal(*sums):
        raise RuntimeError("the tree's sum is not the flat one")
    heads = ["who", "adds", "bytes each", "processor s each", "bytes in"]
    rows = [
        _adding("one aggregator", frames, flat_seconds),
        _adding(f"each of {leaves} leaves", frames[:each], flat_seconds),
        _adding("the root", partial_sums, root_seconds),
    ]
    return result_table(heads, rows)


def _timed(function, arguments) -> Iterator[float]:
    for argument in arguments:
        begin = time.process_time()
        function(argument)
        yield time.process_time() - begin


def _adding(who: str, frames: list[bytes], seconds: list[float]) -> list[str]:
    return [
        who,
        f"{len(frames)}",
        short(len(frames[0]), "B"),
        f"{median(seconds):.2g}",
        short(sum(map(len, frames)), "B"),
    ]


def authorities_table(clients: int = 1_000, values: int = 10**6) -> Table:
    """What one, two and three authorities of a session cost; each has to answer."""
    rows = []
    update = np.random.default_rng(2).normal(0.0, 0.05, values).astype(np.float32)
    for count in (1, 2, 3):
        session = EnrolledSession(parameters_for(clients, values), 2, count)
        encryptors = [kahe.Encryptor(key, 1) for key in session.client_keys]
        encryptor, numbers = encryptors[0], iter(range(1, 90))
        total = _aggregator_with(session, *(one.encrypt(update).to_bytes() for one in encryptors)).total()
        answers = session.answers(total.request(), [0, 1], 1)
        functions = {
            "encrypt": lambda encryptor=encryptor, numbers=numbers: encryptor.encrypt(
                update, round=next(numbers)
            ),
            "open": lambda session=session, total=total, answers=answers: open_total(
                session.public_key, total, answers, threads=1
            ),
        }
        seconds = median_seconds_in_turns(functions, 7, clock=time.process_time)
        sizes = f"{count} x {len(answers[0]):,}"
        rows.append([str(count), f"{seconds['encrypt']:.3g}", f"{seconds['open']:.3g}", sizes])
    return result_table(["authorities", "encrypt, s", "open, s", "answers, bytes"], rows)
