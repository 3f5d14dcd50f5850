"""The grid of a comparison: sizes, shares and threads, measured case by case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from shieldfl.benchmarks.machine import describe_machine
from shieldfl.benchmarks.measurement import Effort, Figure, measure
from shieldfl.benchmarks.own_schemes import own_schemes
from shieldfl.benchmarks.scheme import Scheme, select
from shieldfl.benchmarks.seal_peer import seal_peers
from shieldfl.benchmarks.tenseal_peer import HOW_TO_INSTALL, tenseal_peers
from shieldfl.errors import ParameterError

__all__ = ["Case", "CaseResult", "Comparison", "Effort", "compare", "grid"]


_MOST_VALUES = 2**31
"""As many as a mask has positions."""


@dataclass(frozen=True)
class Case:
    """An update of ``values`` values, of which a random ``share`` is encrypted on ``threads`` threads."""

    values: int
    share: float
    threads: int

    def __post_init__(self) -> None:
        if not 1 <= self.values <= _MOST_VALUES:
            raise ParameterError(f"the number of values must be between 1 and 2^31, got {self.values:,}")
        if not 0.0 < self.share <= 1.0:
            raise ParameterError(f"a share must be above 0 and at most 1, got {self.share}")
        if not 1 <= self.threads <= 1024:
            raise ParameterError(f"the number of threads must be between 1 and 1024, got {self.threads}")


@dataclass(frozen=True)
class CaseResult:
    """A case and what each scheme took for it; the first figure is that of this library's default parameters."""

    case: Case
    selected: int
    figures: list[Figure]

    def times_own(self, figure: Figure) -> float:
        """How many times as long as the default parameters a scheme takes from values to bytes."""
        return figure.encrypt_and_serialise_ns / self.figures[0].encrypt_and_serialise_ns


@dataclass
class Comparison:
    """All cases of one run."""

    machine: dict[str, Any]
    cases: list[CaseResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What could not be compared with, and how to install it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, for ``--json``; times are nanoseconds for each value."""
        return {
            "machine": self.machine,
            "missing": self.missing,
            "cases": [
                asdict(result.case)
                | {
                    "selected": result.selected,
                    "figures": [
                        asdict(figure) | {"times_own": result.times_own(figure)} for figure in result.figures
                    ],
                }
                for result in self.cases
            ],
        }


def grid(values: Sequence[int], shares: Sequence[float], threads: Sequence[int]) -> list[Case]:
    """Return every combination. Raises ParameterError for a number out of range."""
    return [Case(*combination) for combination in product(values, shares, threads)]


def compare(
    cases: Sequence[Case],
    *,
    peers: bool = True,
    effort: Effort | None = None,
    on_case: Callable[[int, Case], None] = lambda done, case: None,
) -> Comparison:
    """Measure the cases, all schemes side by side.

    Parameters
    ----------
    peers : whether other libraries are measured beside this one.
    effort : how long each case is measured.
    on_case : called before each case with the number of cases that are done, and the case.

    Raises WrongSumError when a scheme opens a wrong sum.
    """
    effort = effort or Effort()
    comparison = Comparison(describe_machine())
    schemes = {
        threads: _schemes(threads, peers, effort, comparison.missing)
        for threads in {case.threads for case in cases}
    }
    for done, case in enumerate(cases):
        on_case(done, case)
        selection = select(case.values, case.share)
        figures = measure(schemes[case.threads], selection, effort)
        comparison.cases.append(CaseResult(case, selection.values.size, figures))
    return comparison


def _schemes(threads: int, peers: bool, effort: Effort, missing: list[str]) -> list[Scheme]:
    schemes: list[Scheme] = [*own_schemes(threads)]
    if peers:
        schemes += seal_peers(threads, effort.peer_values)
        try:
            schemes += tenseal_peers(threads, effort.peer_values)
        except ModuleNotFoundError as error:
            if error.name != "tenseal":
                raise
            missing[:] = [HOW_TO_INSTALL]
    return schemes
