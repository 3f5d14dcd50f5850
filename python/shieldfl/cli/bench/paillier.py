"""Paillier's part of ``shieldfl bench``: key sizes and threads instead of numbers of values."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from shieldfl.benchmarks.measurement import Effort
from shieldfl.benchmarks.paillier_comparison import (
    Ciphertexts,
    PaillierCase,
    PaillierComparison,
    compare_paillier,
    paillier_grid,
)
from shieldfl.build_info import build_info
from shieldfl.cli.bench.progress import progress_of
from shieldfl.errors import ParameterError

__all__ = ["checked_paillier_grid", "compare_paillier_with_progress", "counts_of"]

_QUICK_CIPHERTEXTS = Ciphertexts(fast=16, medium=8, slow=2)


def counts_of(quick: bool) -> Ciphertexts:
    """Return on how many ciphertexts everybody is timed."""
    return _QUICK_CIPHERTEXTS if quick else Ciphertexts()


def checked_paillier_grid(key_bits: tuple[int, ...], threads: tuple[int, ...] | None) -> list[PaillierCase]:
    """Return the cases that the options ask for; a number out of range is wrong usage."""
    if threads is None:
        threads = tuple(dict.fromkeys((1, build_info()["threads"])))
    try:
        return paillier_grid(key_bits, threads)
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None


def compare_paillier_with_progress(
    cases: Sequence[PaillierCase], peers: bool, effort: Effort, ciphertexts: Ciphertexts
) -> PaillierComparison:
    """Measure, with a bar on standard error where that is a terminal."""
    with progress_of(len(cases)) as show:
        return compare_paillier(
            cases,
            peers=peers,
            effort=effort,
            ciphertexts=ciphertexts,
            on_case=lambda done, case: show(done, f"{case.key_bits}-bit keys, threads {case.threads}"),
        )
