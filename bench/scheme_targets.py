"""Encrypting, adding and opening beside SEAL and TenSEAL; bytes on the wire; threads; sparse masks."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator

import numpy as np

import shieldfl as sf
from shieldfl.lab.bench.comparison import authority_of, own_scheme
from shieldfl.lab.bench.measurement import Effort, Figure, Scheme, select
from shieldfl.lab.bench.measurement import measure as measure_schemes
from shieldfl.lab.bench.others import TENSEAL, seal_baselines, tenseal_baselines
from sizes import Sizes
from target import Target, at_least, at_most, median_seconds_in_turns

_ONCE = Effort(seconds=0.0, fewest_repetitions=1)


def measure(sizes: Sizes) -> Iterator[Target]:
    """Yield the lines of this page."""
    yield from _against_baselines(sizes)
    yield from _wire_bytes(sizes)
    yield _two_threads(sizes)
    yield _sparse_over_dense(sizes)


def effort_of(sizes: Sizes) -> Effort:
    """Return how long schemes are compared for."""
    return Effort(
        seconds=sizes.seconds,
        fewest_repetitions=sizes.repetitions,
        most_repetitions=5 * sizes.repetitions,
        baseline_values=sizes.baseline_values,
    )


def fastest() -> sf.ckks.Parameters:
    """Return the parameters that the figures are for: 24-bit values, 64 clients, planned for speed."""
    return sf.ckks.Parameters.plan(max_clients=64, value_bits=24, fraction_bits=20, goal="speed")


def _against_baselines(sizes: Sizes) -> Iterator[Target]:
    schemes: list[Scheme] = [own_scheme("speed", authority_of(fastest(), 1), 1)]
    schemes += seal_baselines(1, sizes.baseline_values)[:1]
    if importlib.util.find_spec("tenseal"):
        schemes += tenseal_baselines(1, sizes.baseline_values)[:1]
    own, seal, *tenseal = measure_schemes(schemes, select(sizes.dense, 1.0), effort_of(sizes))
    yield at_least(
        "encrypt and serialise, against TenSEAL 8192 [60,40,40,60]",
        tenseal[0].encrypt_and_serialise_ns / own.encrypt_and_serialise_ns if tenseal else None,
        100,
        200,
        beside(own, tenseal[0], "encrypt and serialise") if tenseal else TENSEAL.how_to_install,
    )
    yield at_least(
        "encrypt, against SEAL's encode and encrypt, N = 2048, one prime",
        seal.stage_ns["encrypt"] / own.stage_ns["encrypt"],
        20,
        40,
        beside(own, seal, "encrypt"),
    )
    limit, note = _bandwidth_limit_ns(own)
    yield at_most("add a frame to the sum", own.stage_ns["add"], 4.0, min(4.0, limit), "ns/value", note)
    digest = f"of these about {_digest_ns(sizes):.1f} are SHA-256 of the total, by which the authority knows it again"
    yield at_most("open a total, policy included", own.stage_ns["open"], 15.0, 8.0, "ns/value", digest)


def beside(own: Figure, baseline: Figure, stage: str) -> str:
    """Say what a stage takes, ours first."""
    return f"{own.stage_ns[stage]:.2f} ns a value beside {baseline.stage_ns[stage]:,.1f}"


def _digest_ns(sizes: Sizes) -> float:
    """What the digest of a total takes, for each of its values."""
    scheme = own_scheme("speed", authority_of(fastest(), 1), 1)
    frame = scheme.close(scheme.start_sum(scheme.encrypt(select(sizes.dense, 1.0)).to_bytes())).to_bytes()
    seconds = median_seconds_in_turns({"digest": lambda: hashlib.sha256(frame).digest()}, sizes.repetitions)
    return 1e9 * seconds["digest"] / sizes.dense


def _bandwidth_limit_ns(own: Figure) -> tuple[float, str]:
    """Reading a frame and reading and writing the sum's 8-byte residues, at the speed of copying."""
    size = 64 * 2**20
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    seconds = median_seconds_in_turns({"copy": lambda: np.copyto(target, source)}, 9)["copy"]
    bytes_per_ns = 2 * size / seconds / 1e9
    parameters = fastest()
    primes = 1 if parameters.ring_degree == 2048 else 2
    sum_bytes = 2 * primes * 8 / parameters.values_per_coefficient
    moved = own.bytes_per_value + 2 * sum_bytes
    return moved / bytes_per_ns, (
        f"the stretch is the memory's: {moved:.1f} bytes a value at the {bytes_per_ns:.1f} bytes/ns of a copy"
    )


def _wire_bytes(sizes: Sizes) -> Iterator[Target]:
    plan = sf.ckks.Parameters.plan
    coarse = plan(max_clients=32, value_bits=16, fraction_bits=12, goal="size")
    fine = plan(max_clients=64, value_bits=24, fraction_bits=20, goal="size")
    named = {"16 bits, 32 clients": coarse, "24 bits, 64 clients": fine}
    schemes = [own_scheme(name, authority_of(parameters, 1), 1) for name, parameters in named.items()]
    figures = measure_schemes(schemes, select(sizes.dense, 1.0), _ONCE)
    for figure, target, stretch in zip(figures, (6.6, 12.5), (6.0, 9.0), strict=True):
        name = figure.scheme.removeprefix("shieldfl ")
        yield at_most(f"wire, {name}", figure.bytes_per_value, target, stretch, "bytes/value", figure.setting)


def _two_threads(sizes: Sizes) -> Target:
    name = "two threads over one, encrypt"
    if sf.build_info()["threads"] < 2:
        return at_least(name, None, 1.8, 1.95, "this machine has one core")
    public_key = sf.KeyAuthority(fastest(), min_clients=1).public_key
    one, two = (sf.ckks.Encryptor(public_key, threads) for threads in (1, 2))
    update = select(sizes.dense, 1.0).update
    seconds = median_seconds_in_turns(
        {"one": lambda: one.encrypt(update), "two": lambda: two.encrypt(update)}, 5 * sizes.repetitions
    )
    return at_least(name, seconds["one"] / seconds["two"], 1.8, 1.95)


def _sparse_over_dense(sizes: Sizes) -> Target:
    scheme = own_scheme("speed", authority_of(fastest(), 1), 1)
    sparse, dense = select(sizes.sparse, 0.1), select(sizes.sparse // 10, 1.0)
    for selection in (sparse, dense):
        closed = scheme.close(scheme.start_sum(scheme.serialise(scheme.encrypt(selection))))
        scheme.check(scheme.open(closed), selection.values, times=1)
    seconds = median_seconds_in_turns(
        {"sparse": lambda: scheme.encrypt(sparse), "dense": lambda: scheme.encrypt(dense)}, sizes.repetitions
    )
    return at_most(
        f"a random 10 % of {sizes.sparse:,} over {sizes.sparse // 10:,} dense values, encrypt",
        seconds["sparse"] / seconds["dense"] * dense.values.size / sparse.values.size,
        1.6,
        1.4,
    )
