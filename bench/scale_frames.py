"""A round of very many participants, every frame of which is made, added, answered for and opened; nobody trains."""

from __future__ import annotations

import time

import numpy as np
from rich.table import Table

from scale_roles import parameters_for, short
from shieldfl.cli.console import result_table
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import open_total
from shieldfl.lab.bench.comparison import EnrolledSession

_PATTERNS = 8


def participants_table(clients: int, values: int) -> Table:
    """Return processor seconds of each role; the opened sum is compared with the exact one."""
    parameters = parameters_for(clients, values)
    session = EnrolledSession(parameters, clients)
    draw = np.random.default_rng(3)
    updates = [draw.normal(0.0, 0.05, values).astype(np.float32) for _ in range(_PATTERNS)]
    aggregator = kahe.Aggregator(session.public_key, 1)
    seconds = {"encrypt": 0.0, "add": 0.0}
    frame_bytes = 0

    def all_frames() -> None:
        nonlocal frame_bytes
        for number, key in enumerate(session.client_keys):
            begin = time.process_time()
            frame = kahe.Encryptor(key, 1).encrypt(updates[number % _PATTERNS]).to_bytes()
            made = time.process_time()
            aggregator.add(frame)
            seconds["add"] += time.process_time() - made
            seconds["encrypt"] += made - begin
            frame_bytes += len(frame)

    all_frames()
    begin = time.process_time()
    total = aggregator.total()
    request = total.request()
    closed = time.process_time()
    answer = session.answer(request, list(range(clients)), 1)
    answered = time.process_time()
    opened, _ = open_total(session.public_key, total, [answer], threads=1)
    done = time.process_time()
    each = np.bincount(np.arange(clients) % _PATTERNS, minlength=_PATTERNS)
    exact = sum(
        int(count) * np.rint(one.astype(np.float64) * 2**20) for count, one in zip(each, updates, strict=True)
    )
    if not np.array_equal(opened, exact / 2**20):
        raise RuntimeError("the opened sum is not the exact one")
    rows = [
        ["all clients: encrypt", f"{seconds['encrypt']:.3g}", f"frames: {short(frame_bytes, 'B')}"],
        [
            "aggregator: add",
            f"{seconds['add']:.3g}",
            f"{1e6 * seconds['add'] / clients:.3g} µs a frame",
        ],
        [
            "aggregator: close",
            f"{closed - begin:.3g}",
            f"total {short(total.nbytes, 'B')}, request {short(len(request), 'B')}",
        ],
        ["authority: answer", f"{answered - closed:.3g}", f"answer {short(len(answer), 'B')}"],
        ["opener: open", f"{done - answered:.3g}", "equal to the exact sum"],
    ]
    return result_table(
        [f"{clients:,} clients, {values:,} values each", "processor s", ""], rows, words={2, ""}
    )
