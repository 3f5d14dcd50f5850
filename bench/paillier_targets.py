"""The figures that Paillier is held to: what each must reach beside phe and HEU, and whether it does in this run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

import shieldfl as sf
from peak_memory import with_extra_peak_bytes
from shieldfl.lab.bench.comparison import (
    PaillierCase,
    authority_of,
    measure_paillier,
    own_paillier,
    own_scheme,
    paillier_baselines,
    paillier_parameters,
)
from shieldfl.lab.bench.measurement import Effort, Figure, Scheme, run_on_cores, select
from target import Target, at_least, at_most, median_seconds_in_turns

KEY_BITS = 2048
SINGLE, VARTIME, DENSE, GMP = (
    f"shieldfl {name}" for name in ("single", "single, vartime look-ups", "dense", "single, GMP engine")
)
PHE, HEU = "phe + gmpy2", "HEU ZPaillier"


@dataclass(frozen=True)
class Sizes:
    """How many ciphertexts and repetitions the figures are measured with."""

    effort: Effort = field(default_factory=lambda: Effort(30.0, fewest_repetitions=7, most_repetitions=15))
    frame_values: int = 1_000_000


QUICK = Sizes(
    Effort(0.0, 1, 1, fast_ciphertexts=16, medium_ciphertexts=8, slow_ciphertexts=2), frame_values=2000
)


def measure_all(sizes: Sizes, on_part: Callable[[str], None] = lambda part: None) -> list[Target]:
    """Measure every line, in the order in which they are printed."""
    on_part("beside phe and HEU, one thread")
    figures, pool_us, missing = run_on_cores(1, _on_one_core, sizes)
    on_part("two threads")
    two_threads = _two_threads(sizes)
    on_part(f"a frame of {sizes.frame_values:,} ciphertexts")
    return [*_one_thread_targets(figures, pool_us, missing), two_threads, _memory(sizes)]


def _on_one_core(sizes: Sizes) -> tuple[dict[str, Figure], float, list[str]]:
    case = PaillierCase(KEY_BITS, threads=1)
    ours = own_paillier(case, sizes.effort)
    others, missing = paillier_baselines(case, sizes.effort)
    compared = [
        scheme for scheme in (*ours, *others) if scheme.name in (SINGLE, VARTIME, DENSE, GMP, PHE, HEU)
    ]
    figures = {each.scheme: each for each in measure_paillier(compared, sizes.effort)}
    return figures, _pooled_us(ours[0], sizes), missing


def _pooled_us(scheme: Scheme, sizes: Sizes) -> float:
    """Microseconds for each ciphertext, of one value, when all randomisers are there already."""
    ciphertexts = sizes.effort.fast_ciphertexts
    selection = select(ciphertexts, 1.0)
    seconds = []
    for _ in range(sizes.effort.fewest_repetitions + 1):  # the first one is not counted
        scheme.encryptor.precompute(ciphertexts)
        scheme.encryptor.wait()
        begin = time.perf_counter()
        batch = scheme.encrypt(selection)
        seconds.append(time.perf_counter() - begin)
        if scheme.encryptor.precomputed != 0:
            raise RuntimeError("encryption did not use the pool up")
        total = scheme.start_sum(scheme.serialise(batch))
        scheme.check(scheme.opened(total), selection.values, times=1)
    return 1e6 * median(seconds[1:]) / ciphertexts


def _one_thread_targets(figures: dict[str, Figure], pool_us: float, missing: list[str]) -> Iterator[Target]:
    def against(
        name: str,
        own: str,
        baseline: str,
        stage: str,
        target: float,
        stretch: float,
        per: str = "ciphertext",
        remark: str = "",
    ) -> Target:
        if baseline not in figures:
            return at_least(name, None, target, stretch, "; ".join(missing))
        both = [figures[scheme] for scheme in (own, baseline)]
        times = [one.stage_ns[stage] / 1e3 for one in both]
        if per == "ciphertext":
            times = [one * figure.values_per_ciphertext for one, figure in zip(times, both, strict=True)]
        note = f"{times[0]:,.3g} µs a {per} beside {times[1]:,.5g}"
        if stage == "encrypt":
            cores = [f"{one.cores:.2f}" for one in both]
            note += f"; processor time over time {cores[0]} beside {cores[1]}"
        return at_least(name, times[1] / times[0], target, stretch, note + remark)

    yield against("encrypt, look-ups that leak nothing, against phe", SINGLE, PHE, "encrypt", 40, 55)
    ignored = sf.build_info()["paillier_engine"] == "ifma"
    yield against(
        "encrypt, lookups_vartime=True, against phe",
        VARTIME,
        PHE,
        "encrypt",
        60,
        75,
        remark="; the AVX-512 engine ignores the setting, so this is the line above once more"
        if ignored
        else "",
    )
    yield against(
        "encrypt, look-ups that leak nothing, against HEU ZPaillier", SINGLE, HEU, "encrypt", 2.5, 4
    )
    yield at_most("encrypt from a filled pool", pool_us, 6.0, 3.0, "µs/ciphertext")
    yield against("encrypt, packed, against phe", DENSE, PHE, "encrypt", 2000, 4000, per="value")
    yield against("decrypt, against phe", SINGLE, PHE, "open", 3, 4.5)
    yield against("add, from bytes, against phe in memory", SINGLE, PHE, "add", 2, 4)
    yield against("add, from bytes, against HEU ZPaillier in memory", SINGLE, HEU, "add", 1, 4)
    yield against("encrypt, GMP engine, against phe", GMP, PHE, "encrypt", 10, 15)


def _two_threads(sizes: Sizes) -> Target:
    name = "two threads over one, encrypt"
    if sf.build_info()["threads"] < 2:
        return at_least(name, None, 1.8, 1.95, "this machine has one core")
    seconds = run_on_cores(2, _seconds_by_threads, sizes)
    return at_least(name, seconds["one"] / seconds["two"], 1.8, 1.95)


def _seconds_by_threads(sizes: Sizes) -> dict[str, float]:
    authority = authority_of(paillier_parameters(KEY_BITS), threads=1)
    one, two = (own_scheme("single", authority, threads, sizes.effort.fast_ciphertexts) for threads in (1, 2))
    selection = select(sizes.effort.fast_ciphertexts, 1.0)
    for scheme in (one, two):
        total = scheme.start_sum(scheme.serialise(scheme.encrypt(selection)))
        scheme.check(scheme.opened(total), selection.values, times=1)
    return median_seconds_in_turns(
        {"one": lambda: one.encrypt(selection), "two": lambda: two.encrypt(selection)},
        3 * sizes.effort.fewest_repetitions,
    )


def _memory(sizes: Sizes) -> Target:
    name = f"extra peak memory over the frame, encrypting {sizes.frame_values:,} values one by one"
    try:
        extra_bytes, frame_bytes = run_on_cores(sf.build_info()["threads"], _extra_peak, sizes)
    except PermissionError as error:
        return at_most(name, None, 1.1, 1.02, note=f"PermissionError: {error}")
    note = f"{extra_bytes:,} bytes for a frame of {frame_bytes:,}"
    return at_most(name, extra_bytes / frame_bytes, 1.1, 1.02, note=note)


def _extra_peak(sizes: Sizes) -> tuple[int, int]:
    authority = authority_of(paillier_parameters(KEY_BITS), threads=sf.build_info()["threads"])
    encryptor = sf.paillier.Encryptor(authority.public_key)
    update = select(sizes.frame_values, 1.0).update
    encryptor.encrypt(update[:1000])  # the table of powers and threads' stacks are there from now on
    batch, extra_bytes = with_extra_peak_bytes(lambda: encryptor.encrypt(update))
    return extra_bytes, batch.nbytes
