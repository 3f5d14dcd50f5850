"""What a run of several methods measured, and as what it is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from shieldfl.errors import DataError
from shieldfl.lab.report.run_timing import compare_timings
from shieldfl.lab.simulation.results import MethodResult, RoundRecord

NO_RUN = "this is no run: give what `shieldfl run --json FILE` wrote, read by json"
"""What is wrong with other files."""


@dataclass(frozen=True)
class Interruption:
    """Where a run was stopped from outside, or ended by an error."""

    method: str
    round: int
    """Which was not finished, or just so; 0 is before a method's first, where there was an error."""
    not_begun: tuple[str, ...]
    """Methods that were to come."""
    error: str | None = None
    """What it says."""

    def __str__(self) -> str:
        """Say it in a few words, without the error's."""
        where = f"in round {self.round} of" if self.round else "before the first round of"
        later = f", before {', '.join(self.not_begun)}" if self.not_begun else ""
        return f"{'interrupted' if self.error is None else 'failed'} {where} {self.method}{later}"


@dataclass(frozen=True)
class RunResult:
    """All methods of one call, on the same data, partition and initial model."""

    dataset: str
    """Description of the data, sizes included."""
    model: str
    config: dict[str, Any]
    environment: dict[str, Any]
    """Versions, processor, threads."""
    parameters: int
    """P, of the plain model."""
    methods: list[MethodResult] = field(default_factory=list)
    metrics: tuple[str, ...] = ("accuracy",)
    """What models are measured by; the first stands for a model where there is room for one figure."""
    interrupted: Interruption | None = None
    """Where the run was stopped: then some methods have fewer rounds, and others are missing."""
    audit: dict[str, Any] | None = None
    """What attacks on federations of the same methods got, as ``AuditResult.to_json`` says it; None without any."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: an undefined number becomes None, an infinite one the text ``"Infinity"``.

        JSON has neither; Python's ``float`` and JavaScript's ``Number`` read that text as infinity. Each method has its
        ``timing``, see :class:`shieldfl.lab.report.run_timing.Timing`; for this each must have a round.
        """
        cleaned = plain_json(asdict(self))
        assert isinstance(cleaned, dict)
        timings = compare_timings(self.methods)
        for entry, method, timing in zip(cleaned["methods"], self.methods, timings, strict=True):
            entry["hidden_share"] = plain_json(method.hidden_share)
            entry["timing"] = plain_json(timing.to_json())
        if self.interrupted is not None and self.interrupted.error is None:
            del cleaned["interrupted"]["error"]
        return cleaned

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> RunResult:
        """Return what :meth:`to_json` wrote. Raises DataError for anything else."""
        try:
            known = {one.name: facts[one.name] for one in fields(cls) if one.name != "audit"}
            known["audit"] = facts.get("audit")
            stopped = known["interrupted"]
            if stopped is not None:
                known["interrupted"] = Interruption(**{**stopped, "not_begun": tuple(stopped["not_begun"])})
            known["metrics"] = tuple(known["metrics"])
            known["methods"] = [_method(entry) for entry in known["methods"]]
            return cls(**known)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(NO_RUN) from error


def _method(entry: Mapping[str, Any]) -> MethodResult:
    """Return a method of a file: what follows from its rounds, which stands there too, is worked out again."""
    read = {one.name: entry[one.name] for one in fields(MethodResult)}
    read["delta"] = _number(read["delta"])
    rounds = [{name: _number(value) for name, value in record.items()} for record in read["rounds"]]
    return MethodResult(**{**read, "rounds": [RoundRecord(**record) for record in rounds]})


def _number(value: Any) -> Any:
    """Return the number, or the numbers by name, that :func:`plain_json` wrote."""
    if isinstance(value, dict):
        return {name: _number(one) for name, one in value.items()}
    if isinstance(value, str):
        return float(value)
    return math.nan if value is None else value


@dataclass(frozen=True)
class EndedRuns:
    """What was finished when an error or Ctrl-C ended a run."""

    result: RunResult
    """Of the seed that ran: its methods have a round at least, and there may be none; ``interrupted`` says where."""
    earlier: tuple[RunResult, ...] = ()
    """The runs of the seeds before, where there are several."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C while methods ran: ``ended`` has what was finished by then, as that of errors; so have the attributes."""

    def __init__(self, ended: EndedRuns) -> None:
        super().__init__(str(ended.result.interrupted))
        self.ended = ended
        self.result, self.earlier = ended.result, ended.earlier


def plain_json(value: Any) -> Any:
    """Return what JSON can say of a value: an undefined number is None, an infinite one the text ``"Infinity"``."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' * (value < 0.0)}Infinity"
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return value
