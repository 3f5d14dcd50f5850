"""Paillier's encryption, aggregation and opening, each checked against the plain sum."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.lab.bench.comparison import authority_of, own_scheme, paillier_parameters
from shieldfl.lab.bench.measurement import Scheme, select

CIPHERTEXTS = 512
FEW = 32
THREADS = sorted({1, 2, sf.build_info()["threads"]})

with_threads = pytest.mark.parametrize("threads", THREADS, ids=lambda threads: f"threads={threads}")
with_key_bits = pytest.mark.parametrize("key_bits", [2048, 3072], ids=lambda bits: f"bits={bits}")
with_packings = pytest.mark.parametrize("packing", ["single", "dense"])


@functools.cache
def authority(
    key_bits: int, packing: str = "single", randomizer: str = "short-exponent", threads: int = 1
) -> sf.KeyAuthority:
    """Keys take seconds to make, so that the benchmarks share them."""
    return authority_of(paillier_parameters(key_bits, packing, randomizer), threads)


def check_total_of(scheme: Scheme, batch: sf.paillier.CiphertextBatch, values: np.ndarray) -> None:
    total = scheme.start_sum(scheme.serialise(batch))
    scheme.check(scheme.opened(total), values, times=1)


def run_encrypt(benchmark, scheme: Scheme) -> None:
    selection = select(scheme.most_values, 1.0)
    batch = benchmark(scheme.encrypt, selection)
    benchmark.extra_info["ciphertexts"] = selection.values.size // scheme.values_per_ciphertext
    benchmark.extra_info["bytes_per_value"] = batch.nbytes / selection.values.size
    check_total_of(scheme, batch, selection.values)


@with_threads
@with_packings
@with_key_bits
def test_encrypt(benchmark, key_bits, packing, threads):
    run_encrypt(benchmark, own_scheme(packing, authority(key_bits, packing), threads, CIPHERTEXTS))


@with_key_bits
def test_encrypt_with_vartime_lookups(benchmark, key_bits):
    run_encrypt(benchmark, own_scheme("vartime", authority(key_bits), 1, CIPHERTEXTS, lookups_vartime=True))


@with_key_bits
def test_encrypt_with_classical_randomizers(benchmark, key_bits):
    run_encrypt(benchmark, own_scheme("classical", authority(key_bits, randomizer="classical"), 1, FEW))


@with_key_bits
def test_encrypt_on_the_gmp_engine(benchmark, key_bits):
    run_encrypt(benchmark, own_scheme("gmp", authority(key_bits), 1, FEW, engine="gmp"))


@with_key_bits
def test_encrypt_from_a_filled_pool(benchmark, key_bits):
    scheme = own_scheme("pool", authority(key_bits), 1, CIPHERTEXTS)
    selection = select(CIPHERTEXTS, 1.0)

    def filled():
        scheme.encryptor.precompute(CIPHERTEXTS)
        scheme.encryptor.wait()
        return (selection,), {}

    batch = benchmark.pedantic(scheme.encrypt, setup=filled, rounds=5)
    check_total_of(scheme, batch, selection.values)


@pytest.mark.parametrize("clear", [False, True], ids=["encrypted", "and-clear"])
@with_threads
@with_packings
@with_key_bits
def test_add_a_frame(benchmark, key_bits, packing, threads, clear):
    """Parsing, checking and adding one frame; each time to a sum that holds another one."""
    scheme = own_scheme(packing, authority(key_bits, packing), threads, CIPHERTEXTS)
    selection = select(CIPHERTEXTS * scheme.values_per_ciphertext, 1.0)
    first, second = (scheme.serialise(scheme.encrypt(selection)) for _ in range(2))

    def prepared():
        return (scheme.start_sum(first),), {}

    def add(total):
        if clear:
            scheme.add_with_clear(total, second, selection.values)
        else:
            scheme.add(total, second)
        return total

    total = benchmark.pedantic(add, setup=prepared, rounds=10)
    opened = scheme.opened(total)
    scheme.check(opened, selection.values, times=2, clear=selection.values if clear else None)


@with_threads
@with_packings
@with_key_bits
def test_open(benchmark, key_bits, packing, threads):
    scheme = own_scheme(packing, authority(key_bits, packing, threads=threads), threads, CIPHERTEXTS)
    selection = select(CIPHERTEXTS * scheme.values_per_ciphertext, 1.0)
    closed = scheme.close(scheme.start_sum(scheme.serialise(scheme.encrypt(selection))))
    scheme.check(benchmark(scheme.open, closed), selection.values, times=1)
