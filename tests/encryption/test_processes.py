"""Threads, how many the core starts, forks and spawned processes."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from shieldfl.privacy.noise import clip_and_noise

CORES = _core.available_threads()
UPDATE = np.linspace(-1, 1, 5000)


@pytest.fixture
def authority():
    return sf.KeyAuthority(sf.ckks.Parameters(max_clients=64), min_clients=1, one_total_per_round=False)


def encrypt_into(connection, public_key, threads):
    encryptor = sf.ckks.Encryptor(public_key, threads=threads)
    connection.send(encryptor.encrypt(UPDATE, round=1))
    connection.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_child_processes_encrypt_with_randomness_of_their_own(authority, method):
    context = multiprocessing.get_context(method)
    sf.ckks.Encryptor(authority.public_key, threads=2).encrypt(UPDATE)  # threads before the fork
    aggregator = sf.ckks.Aggregator(authority.public_key)
    children = []
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=encrypt_into, args=(sender, authority.public_key, 2))
        child.start()
        children.append((child, receiver))
    batches = [receiver.recv() for _, receiver in children]
    for child, _ in children:
        child.join(timeout=30)
        assert child.exitcode == 0
    # Equal ids or ciphertexts would mean a generator that the fork had copied.
    assert batches[0].to_bytes() != batches[1].to_bytes()
    for batch in batches:
        aggregator.add(batch)
    step = 2.0**20
    np.testing.assert_array_equal(authority.open(aggregator.total()), 2 * np.rint(UPDATE * step) / step)


def test_many_threads_share_encryptor_aggregator_and_votes(authority):
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=1)
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=1)
    votes = sf.Votes(len(UPDATE))
    mask = sf.Mask.from_bool(UPDATE > 0)

    def work():
        for _ in range(4):
            aggregator.add(encryptor.encrypt(UPDATE, round=2).to_bytes())
            votes.add(mask)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert aggregator.clients == votes.voters == 32
    np.testing.assert_array_equal(votes.counts(), np.where(UPDATE > 0, 32, 0))
    step = 2.0**20
    opened = authority.open(aggregator.total())
    np.testing.assert_array_equal(opened, 32 * np.rint(UPDATE * step) / step)


def test_interpreter_runs_while_the_core_works(authority):
    """A thread that only counts must get on while another one encrypts for a while."""
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=1)
    update = np.zeros(10_000_000, dtype=np.float32)
    state = {"ticks": 0, "done": False}

    def tick():
        while not state["done"]:
            state["ticks"] += 1
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = state["ticks"]
    encryptor.encrypt(update)
    during = state["ticks"] - before
    state["done"] = True
    ticker.join()
    # One call that kept the lock would let the counter take a step or two at its ends.
    assert during >= 10


def test_clients_are_read_while_others_add(authority):
    """The aggregator's lock and the interpreter's are never waited for in opposite orders, which would hang."""
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=1)
    frames = [encryptor.encrypt(UPDATE, round=3).to_bytes() for _ in range(48)]
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=2)
    aggregator.add(frames[0])
    done = threading.Event()
    seen = []

    def add(part):
        for frame in frames[1:][part::4]:
            aggregator.add(frame)

    def read():
        while not done.is_set():
            before = aggregator.clients
            total = aggregator.total()
            seen.append(before <= total.clients <= aggregator.clients)

    adders = [threading.Thread(target=add, args=(part,), daemon=True) for part in range(4)]
    readers = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in adders + readers:
        thread.start()
    for adder in adders:
        adder.join(timeout=60)
        assert not adder.is_alive()
    done.set()
    for reader in readers:
        reader.join(timeout=60)
        assert not reader.is_alive()
    assert seen
    assert all(seen)
    assert aggregator.clients == 48
    step = 2.0**20
    np.testing.assert_array_equal(authority.open(aggregator.total()), 48 * np.rint(UPDATE * step) / step)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fork_while_other_threads_encrypt_and_add(authority):
    """The child has none of those threads, and must not wait for a lock that one of them held."""
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=2)
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=2)
    done = threading.Event()

    def work():
        while not done.is_set():
            if aggregator.clients < 40:
                aggregator.add(encryptor.encrypt(UPDATE, round=1))
            else:
                encryptor.encrypt(UPDATE, round=1)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(5):
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=encrypt_into, args=(sender, authority.public_key, 2))
            child.start()
            assert receiver.poll(timeout=60)
            assert receiver.recv().clients == 1
            child.join(timeout=60)
            assert child.exitcode == 0
    finally:
        done.set()
        for worker in workers:
            worker.join(timeout=60)


def test_interpreter_exits_while_threads_work():
    """Daemon threads in the core are left behind when the interpreter goes: no crash, no hang, nothing on stderr."""
    program = """
import threading, time
import numpy as np
import shieldfl as sf

authority = sf.KeyAuthority(sf.ckks.Parameters(max_clients=64))
encryptor = sf.ckks.Encryptor(authority.public_key, threads=2)
update = np.zeros(300_000, dtype=np.float32)
started = threading.Barrier(4)

def work():
    started.wait()
    while True:
        encryptor.encrypt(update)

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.05)
"""
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""


def started(work) -> int:
    before = _core.threads_started()
    work()
    return _core.threads_started() - before


def a_round(authority: sf.KeyAuthority, size: int, threads: int | None):
    """Everything that a round does with an update of this size."""
    update = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    mask = sf.Mask.from_bool(np.arange(size) % 3 == 0)

    def work() -> None:
        clip_and_noise(update, 1.0, 0.5, threads=threads)
        sf.negotiate([mask, mask], threads=threads)
        mask.gather(update, threads=threads)
        aggregator = sf.ckks.Aggregator(authority.public_key, threads, round=0)
        for chosen in (None, mask):
            batch = sf.ckks.Encryptor(authority.public_key, threads).encrypt(update, mask=chosen)
            if chosen is None:
                aggregator.add(batch.to_bytes())
        authority.open(aggregator.total())

    return work


@pytest.mark.parametrize("size", [1, 1000, 16_000])
def test_small_work_stays_on_the_callers_thread(authority, size):
    assert started(a_round(authority, size, None)) == 0


@pytest.mark.skipif(CORES < 2, reason="one core starts no threads")
def test_large_work_takes_all_cores(authority):
    update = np.zeros(1_000_000, np.float32)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    batches = []
    assert started(lambda: batches.append(encryptor.encrypt(update))) == min(CORES, 15) - 1
    aggregator = sf.ckks.Aggregator(authority.public_key, round=0)
    assert started(lambda: aggregator.add(batches[0])) == min(CORES, 7) - 1


def test_who_names_a_number_gets_it(authority):
    update = np.linspace(-1.0, 1.0, 16_000, dtype=np.float32)
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=2)
    assert started(lambda: encryptor.encrypt(update)) == 1
