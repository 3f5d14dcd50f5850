"""Encryption, aggregation and opening, each checked against the plain sum."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf

PARAMETERS = {
    "exact/n=2048": sf.ckks.Parameters(),
    "exact/n=4096": sf.ckks.Parameters(ring_degree=4096),
    "slots/n=4096": sf.ckks.Parameters(packing="slots"),
}


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


@pytest.mark.parametrize("threads", [1, 2], ids=lambda threads: f"threads={threads}")
def test_encrypt(benchmark, authority, update, threads):
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=threads)
    batch = benchmark(encryptor.encrypt, update)
    benchmark.extra_info["bytes_per_value"] = batch.nbytes / update.size
    check(authority, total_of(authority, batch), update)


def test_encrypt_masked(benchmark, authority, update):
    chosen = np.random.default_rng(2).random(update.size) < 0.1
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=1)
    batch = benchmark(encryptor.encrypt, update, sf.Mask.from_bool(chosen))
    check(authority, total_of(authority, batch), update[chosen])


def test_add_a_frame(benchmark, authority, update):
    """Parsing, checking and adding one frame; each time to a sum that holds another one."""
    encryptor = sf.ckks.Encryptor(authority.public_key)
    first, second = encryptor.encrypt(update), encryptor.encrypt(update).to_bytes()

    def prepared():
        aggregator = sf.ckks.Aggregator(authority.public_key, threads=1)
        aggregator.add(first)
        return (aggregator,), {}

    def add(aggregator):
        aggregator.add(second)
        return aggregator

    aggregator = benchmark.pedantic(add, setup=prepared, rounds=10)
    check(authority, aggregator.total(), update, times=2)


def test_open(benchmark, authority, update):
    total = total_of(authority, sf.ckks.Encryptor(authority.public_key).encrypt(update))
    benchmark(authority.open, total)
    check(authority, total, update)
