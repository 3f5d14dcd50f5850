"""Threads, how many the core starts, forks and spawned processes; and the memory that these take at most."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.child_process import run_python
from encryption.enrolled_clients import total_of
from encryption.paillier_keys import authority_for
from on_threads import on_threads
from shieldfl.privacy.noise import clip_and_noise

CORES = _core.available_threads()
UPDATE = np.linspace(-1, 1, 5000)
QUANTISED = np.rint(UPDATE * 2.0**20) / 2.0**20


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
    opened = authority.open(total_of(authority.public_key, batches))
    np.testing.assert_array_equal(opened, 2 * QUANTISED)


def test_many_threads_share_encryptor_aggregator_and_votes(authority):
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=1)
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=1)
    votes = sf.Votes(len(UPDATE))
    mask = sf.Mask.from_bool(UPDATE > 0)

    def work():
        for _ in range(4):
            aggregator.add(encryptor.encrypt(UPDATE, round=2).to_bytes())
            votes.add(mask)

    on_threads(8, work)
    assert aggregator.clients == votes.voters == 32
    np.testing.assert_array_equal(votes.counts(), np.where(UPDATE > 0, 32, 0))
    np.testing.assert_array_equal(authority.open(aggregator.total()), 32 * QUANTISED)


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
    np.testing.assert_array_equal(authority.open(aggregator.total()), 48 * QUANTISED)


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
        ended = run_python("-c", program)
        assert (ended.returncode, ended.stderr) == (0, "")


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


# Resident bytes now, and the most since the process began. The most of later minus the now of earlier bounds from
# above what came on top in between. (getrusage will not do: a child inherits its parent's maximum.)
METERS = """
import sys
import numpy as np
import shieldfl as sf

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))

"""

measures_memory = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer takes memory of its own"
)


def measured(code, *arguments):
    """Run code that prints a figure, behind the meters."""
    done = run_python("-c", METERS + code, *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


ENCRYPT = """
with open(sys.argv[1], "rb") as file:
    key = sf.{scheme}.PublicKey.from_bytes(file.read())
encryptor = sf.{scheme}.Encryptor(key)
update = np.full(int(sys.argv[3]), 0.25, dtype=np.float32)
chosen = np.zeros(update.size, dtype=bool)
chosen[::2] = True
mask = sf.Mask.from_bool(chosen) if sys.argv[2] == "half" else None
encryptor.encrypt(update[: min(5000, update.size // 100)])  # makes tables, and the threads their scratch
before = status("VmRSS")
frame = encryptor.encrypt(update, mask).to_bytes()
print((status("VmHWM") - before) / len(frame))
"""

ADD = """
with open(sys.argv[1], "rb") as file:
    key = sf.{scheme}.PublicKey.from_bytes(file.read())
encryptor = sf.{scheme}.Encryptor(key)
update = np.full(int(sys.argv[2]), 0.25, dtype=np.float32)
*first, last = [encryptor.encrypt(update).to_bytes() for _ in range(int(sys.argv[3]))]
aggregator = sf.{scheme}.Aggregator(key)
for frame in first:
    aggregator.add(frame)
before = status("VmRSS")
aggregator.add(last)
print((status("VmHWM") - before) / len(last))
"""


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    single = authority_for(sf.paillier.Parameters(key_bits=2048, packing="single"))
    for scheme, authority in {"ckks": sf.KeyAuthority(sf.ckks.Parameters()), "paillier": single}.items():
        (folder / scheme).write_bytes(authority.public_key.to_bytes())
    return folder.joinpath


# Single values of Paillier take 512 bytes each: so many that the two megabytes of a huge page do not count.
@measures_memory
@pytest.mark.parametrize(
    ("scheme", "share", "values", "most"),
    [
        ("ckks", "all", 4_000_000, 1.2),
        ("ckks", "half", 8_000_000, 1.2),
        pytest.param("paillier", "all", 50_000, 1.1, marks=pytest.mark.slow),
    ],
)
def test_encrypting_takes_the_memory_of_the_frame(key_file, scheme, share, values, most):
    assert 0.9 < measured(ENCRYPT.format(scheme=scheme), key_file(scheme), share, values) <= most


@measures_memory
@pytest.mark.parametrize(
    ("scheme", "values", "frames"),
    [("ckks", 4_000_000, 3), pytest.param("paillier", 20_000, 2, marks=pytest.mark.slow)],
)
def test_adding_bytes_copies_nothing(key_file, scheme, values, frames):
    assert measured(ADD.format(scheme=scheme), key_file(scheme), values, frames) < 0.1


def test_reading_a_batch_keeps_the_one_copy_that_it_is_given():
    authority = sf.KeyAuthority(sf.ckks.Parameters())
    frame = sf.ckks.Encryptor(authority.public_key).encrypt(np.zeros(5000)).to_bytes()
    assert sf.ckks.CiphertextBatch.from_bytes(frame).to_bytes() is frame
