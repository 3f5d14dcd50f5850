"""The figures of a run side by side, as text: one column per method, for the terminal and for the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
    "Value",
    "compared_texts",
    "describe_run",
    "mean_over_rounds",
    "remarks",
    "summarise",
]

ZONES = ("encrypted", "personalised", "noise", "clear")
"""The keys of ``RoundRecord.zone_shares``, most protected first."""


Value = float | int | str | None


@dataclass(frozen=True)
class Row:
    """One figure for every method."""

    label: str
    cells: tuple[str, ...]
    """In the order of ``RunResult.methods``."""
    name: str = ""
    """Of the figure among all, where it is written for machines."""
    values: tuple[Value, ...] = ()
    """What the cells say, as they are: numbers in bytes, seconds and shares, or text; None for what there is not."""


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
    if config.get("classes_per_client") is not None:
        parts.append(f"at most {config['classes_per_client']} classes for each client, in groups")
    return ", ".join(parts)


def mean_over_rounds(method: MethodResult, zone: str) -> float:
    """Return a zone's share of the parameters, a mean over the rounds."""
    return sum(record.zone_shares.get(zone, 0.0) for record in method.rounds) / len(method.rounds)


def summarise(result: RunResult) -> tuple[Section, ...]:
    """Return every figure of the comparison. Every method must have at least one round."""
    methods, timings = result.methods, compare_timings(result.methods)

    def row(
        label: str, name: str, value: Callable[[MethodResult], Value], text: Callable[[Any], str] = str
    ) -> Row:
        values = tuple(map(value, methods))
        return Row(label, tuple(MISSING if one is None else text(one) for one in values), name, values)

    def cost(label: str, name: str, value: Callable[[Timing], float], text: Callable[[float], str]) -> Row:
        values = tuple(map(value, timings))
        return Row(label, tuple(map(text, values)), name, values)

    def compared(
        label: str, name: str, value: Callable[[Timing], float], text: Callable[[float], str]
    ) -> Row:
        plain = cost(label, name, value, text)
        return replace(plain, cells=compared_texts([value(timing) for timing in timings], text))

    def once(size: float) -> str:
        return bytes_text(size) if size else MISSING

    return (
        *(_measured(methods, name) for name in result.metrics),
        Section(
            "Convergence of the global model",
            (row("converged in round", "converged_in_round", lambda method: method.converged_in_round),),
        ),
        Section(
            "Model",
            (
                row(
                    "trained parameters",
                    "trained_parameters",
                    lambda method: method.parameters,
                    "{:,}".format,
                ),
                row("encrypted by", "encrypted_by", lambda method: method.scheme),
                row("opened by", "opened_by", lambda method: method.opened_by),
            ),
        ),
        Section(
            "Share of parameters, mean over rounds",
            tuple(
                row(zone, f"share_{zone}", partial(mean_over_rounds, zone=zone), share_text) for zone in ZONES
            ),
        ),
        Section(
            "Seconds a round, sum over clients",
            (
                cost("train", "seconds_train", lambda timing: timing.train_seconds, seconds_text),
                *(
                    cost(stage, f"seconds_{stage}", partial(_own_stage, stage), seconds_text)
                    for stage in STAGES
                    if stage != "train"
                ),
                cost("other", "seconds_other", lambda timing: timing.other_seconds, seconds_text),
                compared(
                    "all but training",
                    "seconds_protection",
                    lambda timing: timing.protection_seconds,
                    seconds_text,
                ),
                compared("whole round", "seconds_round", lambda timing: timing.round_seconds, seconds_text),
                cost("set-up, once", "seconds_setup", lambda timing: timing.setup_seconds, seconds_text),
            ),
        ),
        Section(
            "Bytes a round and client",
            (
                compared("up", "bytes_up", lambda timing: timing.bytes_up, bytes_text),
                compared("down", "bytes_down", lambda timing: timing.bytes_down, bytes_text),
                cost("up, once in addition", "bytes_up_once", lambda timing: timing.setup_bytes_up, once),
                cost(
                    "down, once in addition", "bytes_down_once", lambda timing: timing.setup_bytes_down, once
                ),
            ),
        ),
        Section(
            "Privacy, all rounds",
            (
                replace(
                    row("hidden from the aggregator", "hidden_share", lambda method: method.hidden_share),
                    cells=tuple(map(_hidden_text, methods)),
                ),
                row("ε", "epsilon", lambda method: method.last.epsilon, epsilon_text),
                row("privacy unit", "privacy_unit", lambda method: method.privacy_unit),
                row("against", "privacy_adversary", lambda method: method.privacy_adversary, _first_words),
                row(
                    "of the noise alone",
                    "epsilon_of_noise",
                    lambda method: method.last.epsilon_of_noise,
                    epsilon_text,
                ),
                *(
                    (
                        row(
                            "noise of σ·√K, if K was true",
                            "epsilon_if_participants_true",
                            _second_epsilon,
                            epsilon_text,
                        ),
                    )
                    if any(map(_has_second, methods))
                    else ()
                ),
                *(
                    (
                        row(
                            "ε against outsiders alone",
                            "epsilon_if_participation_hidden",
                            _hidden_epsilon,
                            epsilon_text,
                        ),
                    )
                    if any(map(_has_hidden, methods))
                    else ()
                ),
                row("at δ", "delta", lambda method: method.delta, epsilon_text),
            ),
        ),
    )


def _measured(methods: Sequence[MethodResult], name: str) -> Section:
    own = [method.last.measured(name) for method in methods]
    of_clients = [method.last.measured_by_clients(name) for method in methods]

    def row(label: str, key: str, values: Sequence[float]) -> Row:
        return Row(label, tuple(metric_text(value, name) for value in values), key, tuple(values))

    return Section(
        f"{name[:1].upper()}{name[1:]} after the last round",
        (
            row("global model", name, own),
            row("personalised, mean of clients", f"personalised_{name}", of_clients),
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


def _second_epsilon(method: MethodResult) -> float:
    return method.last.epsilon_if_participants_true if _has_second(method) else math.nan


def _has_hidden(method: MethodResult) -> bool:
    return method.last.epsilon_if_participation_hidden < method.last.epsilon


def _hidden_epsilon(method: MethodResult) -> float:
    return method.last.epsilon_if_participation_hidden if _has_hidden(method) else math.nan


def _first_words(text: str) -> str:
    return text.partition(",")[0]


def compared_texts(values: Sequence[float], text: Callable[[float], str]) -> tuple[str, ...]:
    """Write values, all but the first with how many times the first they are; times vary, and get two digits."""
    cells = [text(value) for value in values]
    for i in range(1, len(values)):
        if ratio := ratio_text(values[i], values[0], 2 if text is seconds_text else 3):
            cells[i] = f"{cells[i]} ({ratio})"
    return tuple(cells)


def _own_stage(stage: str, timing: Timing) -> float:
    return timing.stage_seconds.get(stage, 0.0)
