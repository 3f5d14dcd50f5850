"""The figures of a run side by side, as text: one column per method, for the terminal and for the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from shieldfl.reporting.quantities import (
    MISSING,
    bytes_text,
    epsilon_text,
    metric_text,
    ratio_text,
    seconds_text,
    share_text,
)
from shieldfl.simulation.report.timing import Timing, compare_timings
from shieldfl.simulation.results import STAGES, MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = [
    "ZONES",
    "Row",
    "Section",
    "compared_texts",
    "describe_run",
    "mean_over_rounds",
    "remarks",
    "summarise",
]

ZONES = ("encrypted", "personalised", "noise", "clear")
"""The keys of ``RoundRecord.zone_shares``, most protected first."""


@dataclass(frozen=True)
class Row:
    """One figure for every method."""

    label: str
    cells: tuple[str, ...]
    """In the order of ``RunResult.methods``."""


@dataclass(frozen=True)
class Section:
    """Figures of one kind."""

    title: str
    rows: tuple[Row, ...]


def describe_run(result: RunResult) -> str:
    """Say in one line what was trained on what."""
    config = result.config
    parts = [result.dataset, result.model, f"{result.parameters:,} parameters"]
    for name in ("clients", "rounds"):
        if name in config:
            parts.append(f"{config[name]} {name if config[name] != 1 else name[:-1]}")
    alpha = config.get("alpha")
    if isinstance(alpha, (int, float)):
        parts.append("iid partition" if math.isinf(alpha) else f"Dirichlet α = {alpha:g}")
    return ", ".join(parts)


def mean_over_rounds(method: MethodResult, zone: str) -> float:
    """Return a zone's share of the parameters, a mean over the rounds."""
    return sum(record.zone_shares.get(zone, 0.0) for record in method.rounds) / len(method.rounds)


def summarise(result: RunResult) -> tuple[Section, ...]:
    """Return every figure of the comparison. Every method must have at least one round."""
    methods = result.methods

    def row(label: str, cell: Callable[[MethodResult], str]) -> Row:
        return Row(label, tuple(cell(method) for method in methods))

    def compared(label: str, value: Callable[[Timing], float], text: Callable[[float], str]) -> Row:
        return Row(label, compared_texts([value(timing) for timing in timings], text))

    def row_of(label: str, seconds: Callable[[Timing], float]) -> Row:
        return Row(label, tuple(seconds_text(seconds(timing)) for timing in timings))

    def once(label: str, value: Callable[[Timing], float], text: Callable[[float], str]) -> Row:
        return Row(label, tuple(text(value(timing)) if value(timing) else MISSING for timing in timings))

    timings = compare_timings(methods)
    return (
        *(_measured(methods, name) for name in result.metrics),
        Section(
            "Convergence of the global model",
            (row("converged in round", lambda method: str(method.converged_in_round or "–")),),
        ),
        Section(
            "Model",
            (
                row("trained parameters", lambda method: f"{method.parameters:,}"),
                row("encrypted by", lambda method: method.scheme or MISSING),
                row("opened by", lambda method: method.opened_by),
            ),
        ),
        Section(
            "Share of parameters, mean over rounds",
            tuple(
                Row(zone, tuple(share_text(mean_over_rounds(method, zone)) for method in methods))
                for zone in ZONES
            ),
        ),
        Section(
            "Seconds a round, sum over clients",
            (
                row_of("train", lambda timing: timing.train_seconds),
                *(row_of(stage, partial(_own_stage, stage)) for stage in STAGES if stage != "train"),
                row_of("other", lambda timing: timing.other_seconds),
                compared("all but training", lambda timing: timing.protection_seconds, seconds_text),
                compared("whole round", lambda timing: timing.round_seconds, seconds_text),
                once("set-up, once", lambda timing: timing.setup_seconds, seconds_text),
            ),
        ),
        Section(
            "Bytes a round and client",
            (
                compared("up", lambda timing: timing.bytes_up, bytes_text),
                compared("down", lambda timing: timing.bytes_down, bytes_text),
                once("up, once in addition", lambda timing: timing.setup_bytes_up, bytes_text),
                once("down, once in addition", lambda timing: timing.setup_bytes_down, bytes_text),
            ),
        ),
        Section(
            "Privacy, all rounds",
            (
                row("hidden from the aggregator", _hidden_text),
                row("ε", lambda method: epsilon_text(method.last.epsilon)),
                row("privacy unit", lambda method: method.privacy_unit or MISSING),
                row("against", lambda method: (method.privacy_adversary or MISSING).partition(",")[0]),
                row("of the noise alone", lambda method: epsilon_text(method.last.epsilon_of_noise)),
                *(
                    (row("noise of σ·√K, if K was true", _second_epsilon),)
                    if any(map(_has_second, methods))
                    else ()
                ),
                row("at δ", lambda method: epsilon_text(method.delta)),
            ),
        ),
    )


def _measured(methods: Sequence[MethodResult], name: str) -> Section:
    lasts = [method.last for method in methods]
    return Section(
        f"{name[:1].upper()}{name[1:]} after the last round",
        (
            Row("global model", tuple(metric_text(last.measured(name), name) for last in lasts)),
            Row(
                "personalised, mean of clients",
                tuple(metric_text(last.measured_by_clients(name), name) for last in lasts),
            ),
        ),
    )


def remarks(result: RunResult) -> list[tuple[str, str]]:
    """Return every note once, after the names of the methods that it is about, or of what it is about."""
    methods_of: dict[str, list[str]] = {}
    for method in result.methods:
        for note in method.notes:
            methods_of.setdefault(note, []).append(method.method)
    notes = [(", ".join(names), note) for note, names in methods_of.items()]
    return [*_remarks_on_timing(result), *notes]


def _remarks_on_timing(result: RunResult) -> list[tuple[str, str]]:
    timings = compare_timings(result.methods)
    single = [
        method.method
        for method, timing in zip(result.methods, timings, strict=True)
        if not timing.first_round_apart
    ]
    groups = dict.fromkeys(timing.trained_alike for timing in timings if len(timing.trained_alike) > 1)
    alike = [
        (", ".join(names), "train alike: the median of their training stands for each") for names in groups
    ]
    once = "time and bytes are of one round alone, with what a first round does once"
    return [*alike, *([(", ".join(single), once)] if single else [])]


def _hidden_text(method: MethodResult) -> str:
    """Say how much of what was sent the aggregator could not read, and what else it could."""
    share = method.hidden_share
    if math.isnan(share):
        return MISSING
    if share == 0.0:
        return "nothing"
    # A share that is not all must not be rounded to all.
    readable = ", ".join(method.readable_parts)
    if share == 1.0:
        return f"all but {readable}" if readable else "all"
    shown = share_text(share) if share < 0.9999 else ">99.99 %"
    return f"{shown}, {readable} readable" if readable else shown


def _has_second(method: MethodResult) -> bool:
    # NaN, where there is no noise, is not below anything.
    return any(record.epsilon_if_participants_true < record.epsilon_of_noise for record in method.rounds)


def _second_epsilon(method: MethodResult) -> str:
    return epsilon_text(method.last.epsilon_if_participants_true) if _has_second(method) else MISSING


def compared_texts(values: Sequence[float], text: Callable[[float], str]) -> tuple[str, ...]:
    """Write values, all but the first with how many times the first they are; times vary, and get two digits."""
    cells = [text(value) for value in values]
    for i in range(1, len(values)):
        if ratio := ratio_text(values[i], values[0], 2 if text is seconds_text else 3):
            cells[i] = f"{cells[i]} ({ratio})"
    return tuple(cells)


def _own_stage(stage: str, timing: Timing) -> float:
    return timing.stage_seconds.get(stage, 0.0)
