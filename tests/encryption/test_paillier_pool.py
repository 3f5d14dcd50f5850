"""Precomputed randomisers: used once, by one process, whatever else goes on."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

import shieldfl as sf
from encryption.child_process import run_python
from encryption.paillier_keys import authority_for

STEP = 2.0**20


@pytest.fixture(scope="module", params=["short-exponent", "classical"])
def authority(request):
    return authority_for(sf.paillier.Parameters(key_bits=2048, packing="single", randomizer=request.param))


def open_sum(authority, *batches):
    aggregator = sf.paillier.Aggregator(authority.public_key)
    for batch in batches:
        aggregator.add(batch)
    return authority.open(aggregator.total())


def ciphertexts_of(batch):
    """The residues of a batch of single values under a key of 2048 bits."""
    frame = batch.to_bytes()
    count = batch.parsed.present_ciphertexts
    payload = frame[len(frame) - 4 - 512 * count : -4]
    return [payload[512 * i : 512 * (i + 1)] for i in range(count)]


@pytest.mark.parametrize("packing", ["dense", "single"])
def test_how_many_a_batch_takes(packing):
    authority = authority_for(sf.paillier.Parameters(key_bits=2048, packing=packing))
    encryptor = sf.paillier.Encryptor(authority.public_key)
    for count in (0, 1, 67, 68, 69, 136, 200):
        for weight in (None, 1.0):
            update = np.zeros(count) if count else np.zeros(1)
            mask = None if count else sf.Mask.empty(1)
            batch = encryptor.encrypt(update, mask, weight)
            assert encryptor.ciphertexts_for(count, weighted=weight is not None) == batch.parsed.ciphertexts


@pytest.mark.parametrize("lookups_vartime", [False, True])
def test_encryption_uses_up_what_is_there_and_then_makes_its_own(authority, lookups_vartime):
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=2, lookups_vartime=lookups_vartime)
    assert encryptor.precomputed == 0
    encryptor.precompute(50)
    encryptor.precompute(5)
    encryptor.wait()
    assert encryptor.precomputed == 55
    update = np.linspace(-3, 3, 40)
    batches = [encryptor.encrypt(update)]
    assert encryptor.precomputed == 15
    batches.append(encryptor.encrypt(update))
    assert encryptor.precomputed == 0
    batches.append(encryptor.encrypt(update))
    np.testing.assert_array_equal(open_sum(authority, *batches), 3 * np.rint(update * STEP) / STEP)


def test_many_threads_share_one_pool(authority):
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=1)
    aggregator = sf.paillier.Aggregator(authority.public_key, threads=1)
    update = np.linspace(-2, 2, 7)
    seen = []

    def work():
        for _ in range(4):
            encryptor.precompute(5)
            batch = encryptor.encrypt(update)
            seen.extend(ciphertexts_of(batch))
            aggregator.add(batch)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
        assert not worker.is_alive()
    assert aggregator.clients == 24
    assert len(set(seen)) == len(seen) == 24 * 7
    np.testing.assert_array_equal(authority.open(aggregator.total()) * STEP, 24 * np.rint(update * STEP))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("still_working", [False, True])
def test_a_child_after_fork_has_an_empty_pool_and_randomness_of_its_own(authority, still_working):
    """Both halves of a fork would otherwise hide different updates with the same randomisers."""
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=2)
    encryptor.precompute(40)
    encryptor.wait()
    if still_working:
        encryptor.precompute(200)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - the child
        available = encryptor.precomputed
        encryptor.wait()
        encryptor.precompute(10)
        encryptor.wait()
        frame = encryptor.encrypt(np.zeros(12)).to_bytes()
        os.write(
            writer, available.to_bytes(4, "little") + encryptor.precomputed.to_bytes(4, "little") + frame
        )
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        sent = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert int.from_bytes(sent[:4], "little") == 0
    assert int.from_bytes(sent[4:8], "little") == 0
    encryptor.wait()
    assert encryptor.precomputed == (240 if still_working else 40)
    theirs = sf.paillier.CiphertextBatch.from_bytes(sent[8:])
    ours = [encryptor.encrypt(np.zeros(60)) for _ in range(5)]
    residues = [residue for batch in (theirs, *ours) for residue in ciphertexts_of(batch)]
    assert len(set(residues)) == len(residues) == 312
    np.testing.assert_array_equal(open_sum(authority, theirs), np.zeros(12))


def test_an_encryptor_that_goes_stops_its_threads(authority):
    """It waits for a few products, and for none of the many randomisers that it was asked for."""
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=2)
    encryptor.encrypt(np.zeros(1))  # makes the table
    before = len(os.listdir("/proc/self/task"))
    encryptor.precompute(2**24)
    assert len(os.listdir("/proc/self/task")) > before
    del encryptor
    deadline = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


EXIT_WHILE_WORKING = """
import sys, threading
import numpy as np
import shieldfl as sf

with open(sys.argv[1], "rb") as file:
    key = sf.paillier.PublicKey.from_bytes(file.read())
encryptors = [sf.paillier.Encryptor(key, threads=2) for _ in range(3)]
if sys.argv[2] == "table":
    encryptors[0].encrypt(np.zeros(1))
for encryptor in encryptors:
    encryptor.precompute(100_000)
waiter = threading.Thread(target=encryptors[0].wait, daemon=True)
waiter.start()
"""


@pytest.mark.parametrize("when", ["table", "no table"])
def test_interpreter_exits_while_pools_are_filled(authority, tmp_path, when):
    """No crash, no hang, nothing on stderr; and nobody waits for what was asked for."""
    (tmp_path / "key").write_bytes(authority.public_key.to_bytes())
    ended = run_python("-c", EXIT_WHILE_WORKING, str(tmp_path / "key"), when)
    assert (ended.returncode, ended.stderr) == (0, "")
