"""The comparison of Paillier: key sizes and threads, each case in a process bound to as many cores as threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from shieldfl import paillier
from shieldfl.benchmarks import heu_peer, phe_peer
from shieldfl.benchmarks.bound_process import run_on_cores
from shieldfl.benchmarks.machine import describe_machine
from shieldfl.benchmarks.measurement import Effort, Figure, measure
from shieldfl.benchmarks.own_paillier import OwnPaillier, paillier_parameters
from shieldfl.benchmarks.paillier_scheme import PaillierScheme, repeat_mixed_sum
from shieldfl.benchmarks.scheme import select
from shieldfl.errors import ParameterError
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.scheme.registry import checked_encryption

__all__ = [
    "Ciphertexts",
    "PaillierCase",
    "PaillierComparison",
    "PaillierFigure",
    "authority_of",
    "compare_paillier",
    "measure_here",
    "own_schemes",
    "paillier_grid",
    "peer_schemes",
]


@dataclass(frozen=True)
class Ciphertexts:
    """On how many ciphertexts everybody is timed, so that no repetition takes more than a second or two."""

    fast: int = 1024
    """With powers of one base from a table, eight at once."""
    medium: int = 256
    slow: int = 32
    """With a whole exponentiation for each."""


@dataclass(frozen=True)
class PaillierCase:
    """A key size and a number of threads."""

    key_bits: int
    threads: int

    def __post_init__(self) -> None:
        checked_encryption("paillier-dense", self.key_bits)
        if not 1 <= self.threads <= 1024:
            raise ParameterError(f"the number of threads must be between 1 and 1024, got {self.threads}")


@dataclass(frozen=True)
class PaillierFigure:
    """What a scheme took, for each ciphertext and for each value."""

    figure: Figure
    values_per_ciphertext: int

    def ciphertext_us(self, stage: str) -> float:
        """Return the microseconds that a stage takes for each ciphertext."""
        return self.figure.stage_ns[stage] * self.values_per_ciphertext / 1e3

    def value_us(self, stage: str) -> float:
        """Return the microseconds that a stage takes for each value."""
        return self.figure.stage_ns[stage] / 1e3


@dataclass
class PaillierComparison:
    """All cases of one run; the figures of a case begin with those of this library."""

    machine: dict[str, Any]
    cases: list[tuple[PaillierCase, list[PaillierFigure]]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What could not be compared with, and how to install it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, for ``--json``; times are nanoseconds for each value."""
        return {
            "machine": self.machine,
            "missing": self.missing,
            "cases": [
                asdict(case)
                | {
                    "figures": [
                        asdict(each.figure) | {"values_per_ciphertext": each.values_per_ciphertext}
                        for each in figures
                    ]
                }
                for case, figures in self.cases
            ],
        }


def paillier_grid(key_bits: Sequence[int], threads: Sequence[int]) -> list[PaillierCase]:
    """Return every combination. Raises ParameterError for a number out of range."""
    return [PaillierCase(*combination) for combination in product(key_bits, threads)]


def compare_paillier(
    cases: Sequence[PaillierCase],
    *,
    peers: bool = True,
    effort: Effort,
    ciphertexts: Ciphertexts,
    on_case: Callable[[int, PaillierCase], None] = lambda done, case: None,
) -> PaillierComparison:
    """Measure the cases, all schemes side by side. Raises WrongSumError when a scheme opens a wrong sum."""
    comparison = PaillierComparison(describe_machine())
    for done, case in enumerate(cases):
        on_case(done, case)
        figures, comparison.missing = run_on_cores(
            case.threads, _measure_case, case, peers, effort, ciphertexts
        )
        comparison.cases.append((case, figures))
    return comparison


def _measure_case(
    case: PaillierCase, peers: bool, effort: Effort, ciphertexts: Ciphertexts
) -> tuple[list[PaillierFigure], list[str]]:
    schemes: list[PaillierScheme] = [*own_schemes(case, ciphertexts)]
    missing: list[str] = []
    if peers:
        others, missing = peer_schemes(case, ciphertexts)
        schemes += others
    return measure_here(schemes, effort), missing


def measure_here(schemes: Sequence[PaillierScheme], effort: Effort) -> list[PaillierFigure]:
    """Time the schemes in turns."""
    most_values = max(scheme.ciphertexts * scheme.values_per_ciphertext for scheme in schemes)
    figures = measure(schemes, select(most_values, 1.0), effort, repeat_mixed_sum)
    return [
        PaillierFigure(figure, scheme.values_per_ciphertext)
        for figure, scheme in zip(figures, schemes, strict=True)
    ]


def authority_of(parameters: paillier.Parameters, threads: int) -> KeyAuthority:
    """Return an authority that opens as often as it is asked.

    Each repetition sums anew, which the protection against two totals of one round would stop. Its work, a digest of
    the total, is done and timed all the same.
    """
    return KeyAuthority(parameters, min_clients=1, one_total_per_round=False, threads=threads)


def own_schemes(case: PaillierCase, ciphertexts: Ciphertexts) -> list[OwnPaillier]:
    """Return this library's, under three keys; the first one is what others are compared with."""
    single, dense, classical = (
        authority_of(parameters, case.threads)
        for parameters in (
            paillier_parameters(case.key_bits),
            paillier_parameters(case.key_bits, "dense"),
            paillier_parameters(case.key_bits, randomizer="classical"),
        )
    )
    threads, fast, medium, slow = case.threads, ciphertexts.fast, ciphertexts.medium, ciphertexts.slow
    return [
        OwnPaillier("single", single, threads, fast),
        OwnPaillier("single, vartime look-ups", single, threads, fast, lookups_vartime=True),
        OwnPaillier("dense", dense, threads, fast),
        OwnPaillier("single, GMP engine", single, threads, medium, engine="gmp"),
        OwnPaillier("single, classical", classical, threads, slow),
    ]


def peer_schemes(case: PaillierCase, ciphertexts: Ciphertexts) -> tuple[list[PaillierScheme], list[str]]:
    """Return the others that are installed, and how to install those that are not."""
    schemes: list[PaillierScheme] = []
    missing = []
    try:
        schemes.append(phe_peer.phe_peer(case.key_bits, case.threads, ciphertexts.slow))
    except ModuleNotFoundError as error:
        if error.name not in ("phe", "gmpy2"):
            raise
        missing.append(phe_peer.HOW_TO_INSTALL)
    try:
        schemes += heu_peer.heu_peers(case.key_bits, ciphertexts.medium)
    except ModuleNotFoundError as error:
        if error.name not in ("heu", "heu.phe"):
            raise
        missing.append(heu_peer.HOW_TO_INSTALL)
    return schemes, missing
