"""Key-additive encryption: client, aggregator and opener beside other libraries, bytes on the wire, the authority."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from authority_answers import measure_authority
from million_clients import NAME, measure_sum
from scheme_targets import beside, effort_of
from shieldfl.lab.bench.comparison import own_schemes, parameter_sets
from shieldfl.lab.bench.measurement import Figure, Scheme, select
from shieldfl.lab.bench.measurement import measure as measure_schemes
from shieldfl.lab.bench.others import TENSEAL, tenseal_baselines
from sizes import Sizes
from target import Target, at_least, at_most

_FIRST = next(iter(parameter_sets("kahe")))


def measure(sizes: Sizes) -> Iterator[Target]:
    """Yield the lines of this page."""
    own: list[Scheme] = [*own_schemes("kahe", 1)]
    tenseal = tenseal_baselines(1, sizes.baseline_values)[:1] if importlib.util.find_spec("tenseal") else []
    figures = measure_schemes([*own, *tenseal], select(sizes.dense, 1.0), effort_of(sizes))
    first = figures[0]
    name = f"{_FIRST}: encrypt and serialise, against TenSEAL 8192 [60,40,40,60]"
    if tenseal:
        other, stage = figures[-1], "encrypt and serialise"
        ratio = other.encrypt_and_serialise_ns / first.encrypt_and_serialise_ns
        yield at_least(name, ratio, 300, note=beside(first, other, stage))
    else:
        yield at_least(name, None, 300, note=TENSEAL.how_to_install)
    for figure, limit in zip(figures, (4.1, 2.9, 3.6), strict=False):
        yield _wire(figure, limit)
    yield at_most(f"{_FIRST}: add a frame to the sum", first.stage_ns["add"], 0.7, unit="ns/value")
    yield at_most(f"{_FIRST}: open a total, digest included", first.stage_ns["open"], 5.0, unit="ns/value")
    yield from _authority(sizes)


def _wire(figure: Figure, limit: float) -> Target:
    name = figure.scheme.removeprefix("shieldfl ")
    whole = parameter_sets("kahe")[name].bytes_per_value
    note = f"{whole:.2f} where ciphertexts are full: the last one of {figure.values:,} values is not"
    return at_most(f"{name}: wire", figure.bytes_per_value, limit, unit="bytes/value", note=note)


def _authority(sizes: Sizes) -> Iterator[Target]:
    few = measure_authority(parameter_sets("kahe")[_FIRST], 64, 1, sizes.repetitions)
    yield at_most(f"{NAME}: 64 clients", 1e3 * few.seconds, 1.0, unit="ms", note=few.note)
    yield from measure_sum(sizes.authority_clients, threads=(1,))
