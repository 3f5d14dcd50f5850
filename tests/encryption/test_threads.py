"""How many threads the core starts where nobody says how many."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from shieldfl.privacy.noise import clip_and_noise

CORES = _core.available_threads()


def started(work) -> int:
    before = _core.threads_started()
    work()
    return _core.threads_started() - before


@pytest.fixture(scope="module")
def authority() -> sf.KeyAuthority:
    return sf.KeyAuthority(sf.ckks.Parameters(max_clients=4), min_clients=1, one_total_per_round=False)


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
