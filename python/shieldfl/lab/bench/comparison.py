"""Comparisons: this library beside others on the same values, case by case."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import product
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta

from shieldfl.build_info import build_info, machine_facts
from shieldfl.encryption.registry import KeyBits
from shieldfl.lab.bench import others
from shieldfl.lab.bench.measurement import Effort, Figure, Scheme, measure, run_on_cores, select
from shieldfl.lab.bench.others import Peer
from shieldfl.lab.bench.own import UPDATE_SCHEMES, authority_of, own_scheme, own_schemes, paillier_parameters
from shieldfl.settings import Settings, Share, Threads, about

Values = Annotated[int, Meta(ge=1, le=2**31)]
"""Of an update: as many as a mask has positions."""

Measured = tuple[list[Figure], list[str]]
"""Of all schemes, this library's default first; and how to install those that are missing."""


@dataclass(frozen=True)
class UpdateCase(Settings):
    """An update of ``values`` values, of which a random ``share`` is encrypted on ``threads`` threads."""

    values: Values
    share: Share
    threads: Threads
    schemes: Annotated[tuple[str, ...], Meta(min_length=1), about("", choices=UPDATE_SCHEMES)] = (
        UPDATE_SCHEMES
    )

    def __str__(self) -> str:
        return f"{self.values:,} values, share {self.share:g}, threads {self.threads}"

    def measure(self, baselines: bool, effort: Effort) -> Measured:
        """Time our schemes, SEAL, TenSEAL, Flower and a plain copy. Raises WrongSumError."""
        schemes = [scheme for name in self.schemes for scheme in own_schemes(name, self.threads)]
        missing: list[str] = []
        if baselines:
            most = effort.baseline_values
            schemes += others.seal_baselines(self.threads, most)
            found, missing = _installed(
                (others.TENSEAL, lambda: others.tenseal_baselines(self.threads, most)),
                (others.FLOWER, lambda: others.flower_baselines(most)),
            )
            schemes += [*found, others.plain_copy()]
        return measure(schemes, select(self.values, self.share), effort), missing


@dataclass(frozen=True)
class PaillierCase(Settings):
    """A key size and a number of threads."""

    key_bits: KeyBits
    threads: Threads

    def __str__(self) -> str:
        return f"{self.key_bits}-bit keys, threads {self.threads}"

    def measure(self, baselines: bool, effort: Effort) -> Measured:
        """Time Paillier, phe and HEU in a process that is bound to as many cores as threads. Raises WrongSumError."""
        return run_on_cores(self.threads, _measure_on_cores, self, baselines, effort)


Case = TypeVar("Case", UpdateCase, PaillierCase)


@dataclass(frozen=True)
class CaseResult(Generic[Case]):
    """A case and what each scheme took for it; the first figure is that of this library's default parameters."""

    case: Case
    figures: list[Figure]

    @property
    def selected(self) -> int:
        return self.figures[0].values

    def times_own(self, figure: Figure) -> float:
        """How many times as long as the default parameters a scheme takes from values to bytes."""
        return figure.encrypt_and_serialise_ns / self.figures[0].encrypt_and_serialise_ns


@dataclass
class Comparison(Generic[Case]):
    """All cases of one run."""

    machine: dict[str, Any]
    cases: list[CaseResult[Case]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What could not be compared with, and how to install it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, for ``--json``; times are nanoseconds for each value."""
        cases = [
            asdict(result.case)
            | {
                "selected": result.selected,
                "figures": [asdict(one) | {"times_own": result.times_own(one)} for one in result.figures],
            }
            for result in self.cases
        ]
        return {"machine": self.machine, "missing": self.missing, "cases": cases}


def grid(case: Callable[..., Case], *axes: Sequence[Any]) -> list[Case]:
    """Return the cases of every combination. Raises ParameterError for a number out of range."""
    return [case(*combination) for combination in product(*axes)]


def compare(
    cases: Sequence[Case],
    *,
    baselines: bool = True,
    effort: Effort | None = None,
    on_case: Callable[[int, Case], None] = lambda done, case: None,
) -> Comparison[Case]:
    """Measure the cases, all schemes side by side; ``on_case`` is told how many are done, and the next one.

    Raises WrongSumError when a scheme opens a wrong sum.
    """
    comparison: Comparison[Case] = Comparison(describe_machine())
    for done, case in enumerate(cases):
        on_case(done, case)
        figures, comparison.missing = case.measure(baselines, effort or Effort())
        comparison.cases.append(CaseResult(case, figures))
    return comparison


def own_paillier(case: PaillierCase, effort: Effort) -> list[Scheme]:
    """Return this library's Paillier, under three keys; the first one is what others are compared with."""
    single, dense, classical = (
        authority_of(parameters, case.threads)
        for parameters in (
            paillier_parameters(case.key_bits),
            paillier_parameters(case.key_bits, "dense"),
            paillier_parameters(case.key_bits, randomizer="classical"),
        )
    )
    threads, fast = case.threads, effort.fast_ciphertexts
    return [
        own_scheme("single", single, threads, fast),
        own_scheme("single, vartime look-ups", single, threads, fast, lookups_vartime=True),
        own_scheme("dense", dense, threads, fast),
        own_scheme("single, GMP engine", single, threads, effort.medium_ciphertexts, engine="gmp"),
        own_scheme("single, classical", classical, threads, effort.slow_ciphertexts),
    ]


def paillier_baselines(case: PaillierCase, effort: Effort) -> tuple[list[Scheme], list[str]]:
    return _installed(
        (others.PHE, lambda: [others.phe_baseline(case.key_bits, case.threads, effort.slow_ciphertexts)]),
        (others.HEU, lambda: others.heu_baselines(case.key_bits, effort.medium_ciphertexts)),
    )


def measure_paillier(schemes: Sequence[Scheme], effort: Effort) -> list[Figure]:
    """Time schemes of Paillier in turns, each on as many values as it is made for."""
    most_values = max(scheme.most_values or 0 for scheme in schemes)
    return measure(schemes, select(most_values, 1.0), effort, with_clear=True)


def _measure_on_cores(case: PaillierCase, baselines: bool, effort: Effort) -> Measured:
    found, missing = paillier_baselines(case, effort) if baselines else ([], [])
    return measure_paillier([*own_paillier(case, effort), *found], effort), missing


def _installed(*peers: tuple[Peer, Callable[[], Sequence[Scheme]]]) -> tuple[list[Scheme], list[str]]:
    """Make the schemes of those that are there; return how to install the others too."""
    schemes: list[Scheme] = []
    missing: list[str] = []
    for peer, make in peers:
        try:
            schemes += make()
        except ModuleNotFoundError as error:
            if error.name not in peer.packages:
                raise
            missing.append(peer.how_to_install)
    return schemes, missing


def describe_machine() -> dict[str, Any]:
    """Return what a run ran on, as plain JSON types; the load is that before it: 0 where nothing else was running."""
    facts = build_info()
    packages = {"tenseal": "tenseal", "phe": "phe", "gmpy2": "gmpy2", "heu": "sf-heu", "flwr": "flwr"}
    return machine_facts() | {
        "load_average": round(os.getloadavg()[0], 2),
        "paillier_engine": facts["paillier_engine"],
        "seal": facts["seal_version"],
        "gmp": facts["gmp_version"],
        **{name: _version(package) for name, package in packages.items()},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
