"""Encryption, aggregation and opening, each checked against the plain sum."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf

PLAN = sf.ckks.Parameters.plan
PARAMETERS = {
    "exact/default": sf.ckks.Parameters(),
    "exact/goal=speed": PLAN(goal="speed"),
    "exact/goal=size": PLAN(goal="size"),
    "exact/goal=size/bits=16/clients=32": PLAN(max_clients=32, value_bits=16, fraction_bits=12, goal="size"),
    "slots/n=4096": sf.ckks.Parameters(packing="slots"),
}
THREADS = sorted({1, 2, sf.build_info()["threads"]})

with_threads = pytest.mark.parametrize("threads", THREADS, ids=lambda threads: f"threads={threads}")
with_shares = pytest.mark.parametrize("share", [0.01, 0.1, 0.5], ids=lambda share: f"share={share}")


@pytest.fixture(params=PARAMETERS, ids=list(PARAMETERS))
def authority(request):
    return sf.KeyAuthority(PARAMETERS[request.param], min_clients=1, one_total_per_round=False, threads=1)


def check(authority: sf.KeyAuthority, total: sf.ckks.Total, update: np.ndarray, times: int = 1) -> None:
    step = 2.0**authority.public_key.parameters.fraction_bits
    expected = times * np.rint(update.astype(np.float64) * step) / step
    np.testing.assert_allclose(authority.open(total), expected, rtol=0, atol=1.0 / step)


def total_of(authority: sf.KeyAuthority, batch: sf.ckks.CiphertextBatch) -> sf.ckks.Total:
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=1)
    aggregator.add(batch)
    return aggregator.total()


@with_threads
def test_encrypt(benchmark, authority, update, threads):
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=threads)
    batch = benchmark(encryptor.encrypt, update)
    benchmark.extra_info["bytes_per_value"] = batch.nbytes / update.size
    check(authority, total_of(authority, batch), update)


@with_threads
@with_shares
def test_encrypt_masked(benchmark, authority, update, share, threads):
    chosen = np.random.default_rng(2).random(update.size) < share
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=threads)
    batch = benchmark(encryptor.encrypt, update, sf.Mask.from_bool(chosen))
    benchmark.extra_info["values"] = int(chosen.sum())
    check(authority, total_of(authority, batch), update[chosen])


@with_threads
def test_add_a_frame(benchmark, authority, update, threads):
    """Parsing, checking and adding one frame; each time to a sum that holds another one."""
    encryptor = sf.ckks.Encryptor(authority.public_key)
    first, second = encryptor.encrypt(update), encryptor.encrypt(update).to_bytes()

    def prepared():
        aggregator = sf.ckks.Aggregator(authority.public_key, threads=threads)
        aggregator.add(first)
        return (aggregator,), {}

    def add(aggregator):
        aggregator.add(second)
        return aggregator

    aggregator = benchmark.pedantic(add, setup=prepared, rounds=10)
    check(authority, aggregator.total(), update, times=2)


def test_close_a_sum(benchmark, authority, update):
    """From the sum in the aggregator's memory to the frame of the total."""
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=1)
    aggregator.add(sf.ckks.Encryptor(authority.public_key).encrypt(update))
    check(authority, benchmark(aggregator.total), update)


@with_threads
@pytest.mark.parametrize("name", PARAMETERS)
def test_open(benchmark, name, update, threads):
    authority = sf.KeyAuthority(PARAMETERS[name], min_clients=1, one_total_per_round=False, threads=threads)
    total = total_of(authority, sf.ckks.Encryptor(authority.public_key).encrypt(update))
    benchmark(authority.open, total)
    check(authority, total, update)
