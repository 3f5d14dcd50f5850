"""One-time pads: the client beside TenSEAL and kahe, bytes on the wire, and the authority's work beside kahe's."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from authority_answers import measure_authority
from scheme_targets import beside, effort_of
from shieldfl.lab.bench.comparison import own_schemes, parameter_sets
from shieldfl.lab.bench.measurement import Scheme, select
from shieldfl.lab.bench.measurement import measure as measure_schemes
from shieldfl.lab.bench.others import TENSEAL, tenseal_baselines
from sizes import Sizes
from target import Target, at_least, at_most

_FIRST = next(iter(parameter_sets("pads")))
_CLIENTS = (4, 64)


def measure(sizes: Sizes) -> Iterator[Target]:
    """Yield the lines of this page."""
    own: list[Scheme] = [own_schemes("pads", 1)[0], own_schemes("kahe", 1)[0]]
    tenseal = tenseal_baselines(1, sizes.baseline_values)[:1] if importlib.util.find_spec("tenseal") else []
    pads, kahe, *others = measure_schemes([*own, *tenseal], select(sizes.dense, 1.0), effort_of(sizes))
    stage = "encrypt and serialise"
    name = f"{_FIRST}: {stage}, against TenSEAL 8192 [60,40,40,60]"
    if others:
        ratio = others[0].encrypt_and_serialise_ns / pads.encrypt_and_serialise_ns
        yield at_least(name, ratio, 600, 900, note=beside(pads, others[0], stage))
    else:
        yield at_least(name, None, 600, 900, note=TENSEAL.how_to_install)
    yield at_most(f"{_FIRST}: wire", pads.bytes_per_value, 3.8, unit="bytes/value")
    ratio = pads.encrypt_and_serialise_ns / kahe.encrypt_and_serialise_ns
    yield at_most(f"{_FIRST}: {stage}, over kahe 24/64", ratio, None, note=beside(pads, kahe, stage))
    for clients in _CLIENTS:
        yield _authority(clients, sizes)


def _authority(clients: int, sizes: Sizes) -> Target:
    """Compare what the authority takes for the same clients and values."""
    ours = measure_authority(parameter_sets("pads")[_FIRST], clients, 1, sizes.repetitions, sizes.dense)
    theirs = measure_authority(
        parameter_sets("kahe")["kahe 24/64"], clients, 1, sizes.repetitions, sizes.dense
    )
    note = (
        f"{1e3 * ours.seconds:.2f} ms beside {1e3 * theirs.seconds:.2f}, answers of {ours.answer_bytes:,} and "
        f"{theirs.answer_bytes:,} bytes"
    )
    name = f"authority of {_FIRST} over that of kahe, {clients} clients with {sizes.dense:,} values"
    return at_most(name, ours.seconds / theirs.seconds, None, note=note)
