"""All figures of a run, and the figures to compare methods by, with a column for each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from shieldfl.lab.report.output_files import csv_text
from shieldfl.lab.simulation.results import (
    STAGES,
    ZONES,
    MethodResult,
    RoundRecord,
    RunResult,
    Timing,
    compare_timings,
)
from shieldfl.quantities import (
    MISSING,
    bytes_text,
    epsilon_text,
    metric_text,
    ratio_text,
    seconds_text,
    share_text,
)

_COMPARED = {
    "hidden_share": "hidden from the aggregator",
    "epsilon": "ε",
    "seconds_round": "time a round",
    "bytes_up": "bytes up, a client",
    "bytes_down": "bytes down, a client",
    "encrypted_by": "encrypted by",
    "opened_by": "sums opened by",
}
"""Labels of the figures that methods are compared by, in order, by name of the figure."""


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[str, ...]
    name: str
    """Name of the figure in files for machines."""
    values: tuple[float | int | str | None, ...] = ()
    """Raw values of the cells: bytes, seconds or shares as numbers, or text; None where there is no value."""


class Section(NamedTuple):
    title: str
    rows: list[Row]


def describe_run(result: RunResult) -> str:
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


def compared_texts(values: Sequence[float], text: Callable[[float], str]) -> tuple[str, ...]:
    """Write values, all but the first with their ratio to the first.

    Times vary, so their ratios have two digits.
    """
    cells = [text(value) for value in values]
    for i in range(1, len(values)):
        if ratio := ratio_text(values[i], values[0], 2 if text is seconds_text else 3):
            cells[i] = f"{cells[i]} ({ratio})"
    return tuple(cells)


def _once(size: float) -> str:
    return bytes_text(size) if size else MISSING


class _Figure(NamedTuple):
    label: str
    name: str
    read: str | Callable[[MethodResult], Any]
    """Attribute of the method's result, its ``last`` round or its ``timing``; or a function of the result."""
    text: Callable[[Any], str] = str
    compared: bool = False
    """Whether cells also have their ratio to the first method's."""


def _second_epsilon(method: MethodResult) -> float:
    # NaN, where there is no noise, is not below anything.
    rounds = method.rounds
    lower = any(record.epsilon_if_participants_true < record.epsilon_of_noise for record in rounds)
    return rounds[-1].epsilon_if_participants_true if lower else math.nan


def _outsiders_epsilon(method: MethodResult) -> float:
    hidden = method.last.epsilon_if_participation_hidden
    return hidden if hidden < method.last.epsilon else math.nan


_FIGURES = {
    "Convergence of the global model": (
        _Figure("converged in round", "converged_in_round", "converged_in_round"),
    ),
    "Model": (
        _Figure("trained parameters", "trained_parameters", "parameters", "{:,}".format),
        _Figure("encrypted by", "encrypted_by", "scheme"),
        _Figure("opened by", "opened_by", "opened_by"),
    ),
    "Share of parameters, mean over rounds": tuple(
        _Figure(zone, f"share_{zone}", partial(MethodResult.zone_share, zone=zone), share_text)
        for zone in ZONES
    ),
    "Seconds a round, sum over clients": (
        _Figure("train", "seconds_train", "timing.train_seconds", seconds_text),
        *(
            _Figure(one, f"seconds_{one}", partial(MethodResult.stage_seconds, stage=one), seconds_text)
            for one in STAGES
            if one != "train"
        ),
        _Figure("other", "seconds_other", "timing.other_seconds", seconds_text),
        _Figure("all but training", "seconds_protection", "timing.protection_seconds", seconds_text, True),
        _Figure("whole round", "seconds_round", "timing.round_seconds", seconds_text, True),
        _Figure("set-up, once", "seconds_setup", "timing.setup_seconds", seconds_text),
    ),
    "Bytes a round and client": (
        _Figure("up", "bytes_up", "timing.bytes_up", bytes_text, True),
        _Figure("down", "bytes_down", "timing.bytes_down", bytes_text, True),
        _Figure("up, once in addition", "bytes_up_once", "timing.setup_bytes_up", _once),
        _Figure("down, once in addition", "bytes_down_once", "timing.setup_bytes_down", _once),
    ),
    "Privacy, all rounds": (
        _Figure("hidden from the aggregator", "hidden_share", "hidden_share"),
        _Figure("ε", "epsilon", "last.epsilon", epsilon_text),
        _Figure("privacy unit", "privacy_unit", "privacy_unit"),
        _Figure("against", "privacy_adversary", "privacy_adversary"),
        _Figure("of the noise alone", "epsilon_of_noise", "last.epsilon_of_noise", epsilon_text),
        _Figure(
            "noise of σ·√K, if K was true", "epsilon_if_participants_true", _second_epsilon, epsilon_text
        ),
        _Figure(
            "ε against outsiders alone", "epsilon_if_participation_hidden", _outsiders_epsilon, epsilon_text
        ),
        _Figure("at δ", "delta", "delta", epsilon_text),
    ),
}
_LEFT_OUT = ("epsilon_if_participants_true", "epsilon_if_participation_hidden")


def summarise(result: RunResult) -> list[Section]:
    methods, sections = result.methods, []
    for name in result.metrics:
        text = partial(metric_text, name=name)
        own = tuple(one.last.measured(name) for one in methods)
        merged = tuple(one.last.measured_by_clients(name) for one in methods)
        rows = [
            Row("global model", tuple(map(text, own)), name, own),
            Row("personalised, mean of clients", tuple(map(text, merged)), f"personalised_{name}", merged),
        ]
        sections.append(Section(f"{name[:1].upper()}{name[1:]} after the last round", rows))
    timings = compare_timings(methods)
    for title, figures in _FIGURES.items():
        rows = [_row(figure, methods, timings) for figure in figures]
        shown = [row for row in rows if row.name not in _LEFT_OUT or set(row.cells) != {MISSING}]
        sections.append(Section(title, shown))
    return sections


def _row(figure: _Figure, methods: Sequence[MethodResult], timings: Sequence[Timing]) -> Row:
    values = tuple(_read(figure.read, *both) for both in zip(methods, timings, strict=True))
    cells = tuple(MISSING if one is None else figure.text(one) for one in values)
    if figure.compared:
        cells = compared_texts(values, figure.text)
    if figure.name == "hidden_share":
        cells = tuple(map(_hidden_text, methods))
    return Row(figure.label, cells, figure.name, values)


def _read(figure: str | Callable[[MethodResult], Any], method: MethodResult, timing: Timing) -> Any:
    if callable(figure):
        return figure(method)
    head, _, name = figure.rpartition(".")
    return getattr({"last": method.last, "timing": timing}.get(head, method), name)


def _hidden_text(method: MethodResult) -> str:
    share = method.hidden_share
    if math.isnan(share):
        return MISSING
    if share == 0.0:
        return "nothing"
    # A share that is not all must not be rounded to all.
    sums = ("sums",) if method.opened_by == "aggregator" else ()
    readable = ", ".join((*method.readable_parts, *sums))
    if share == 1.0:
        return f"all but {readable}" if readable else "all"
    shown = share_text(share) if share < 0.9999 else ">99.99 %"
    return f"{shown}, {readable} readable" if readable else shown


def compared_rows(result: RunResult) -> tuple[Row, ...]:
    """Return the rows to compare methods by, twelve at most, without rows that have no value."""
    rows = {row.name: row for section in summarise(result) for row in section.rows}
    name = result.metrics[0]
    chosen = [replace(rows[name], label=f"{name}, global model")]
    own = rows[f"personalised_{name}"]
    if own.cells != chosen[0].cells:
        chosen.append(replace(own, label=f"{name}, merged models"))
    if result.audit is not None:
        found = {cell["method"]: cell for cell in result.audit["cells"]}
        cells = [found.get(method.method) for method in result.methods]
        chosen.append(Row("labels an attack reads", tuple(map(_read_text, cells)), "labels_read"))
        chance = tuple(_percent(cell and cell["chance"]) for cell in cells)
        chosen.append(Row("  by chance", chance, "labels_by_chance"))
    rows["epsilon"] = replace(rows["epsilon"], cells=tuple(map(_epsilon_text, result.methods)))
    chosen += [replace(rows[figure], label=label) for figure, label in _COMPARED.items()]
    return tuple(row for row in chosen if not all(cell in (MISSING, "nobody") for cell in row.cells))


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f} %"


def _read_text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return MISSING
    if cell["status"] != "attacked":
        return "nothing" if cell["status"] == "nothing received" else str(cell["status"])
    figure = _percent(cell["figure"])
    return figure if cell["low"] is None else f"{figure} ({100 * cell['low']:.0f}–{100 * cell['high']:.0f})"


def _epsilon_text(method: MethodResult) -> str:
    epsilon = method.last.epsilon
    text = epsilon_text(epsilon)
    return f"{text} for a {method.privacy_unit}" if math.isfinite(epsilon) and method.privacy_unit else text


def footnotes(result: RunResult) -> list[tuple[str, str]]:
    """Return whom a finite ε protects and the newest note, each once, after the names of its methods."""
    notes_of = {}
    for method in result.methods:
        parts = []
        if math.isfinite(method.last.epsilon) and method.privacy_unit:
            whom = method.privacy_adversary or "an adversary that its page names"
            parts.append(
                f"ε of {epsilon_text(method.last.epsilon)} at δ = {method.delta:g} protects a "
                f"{method.privacy_unit} in all rounds together, against {whom}"
            )
        if notes := method.notes[1:]:
            parts.append(notes[-1] + (f" ({len(notes) - 1} more in the notes)" if len(notes) > 1 else ""))
        notes_of[method.method] = ["; ".join(parts)] if parts else []
    return _together(notes_of)


def remarks(result: RunResult) -> list[tuple[str, str]]:
    """Return every note once, after the names of the methods that it is about."""
    timings = compare_timings(result.methods)
    groups = dict.fromkeys(one.trained_alike for one in timings if len(one.trained_alike) > 1)
    same = "train alike: the median of their training stands for each"
    once = "time and bytes are from a single round and include the set-up"
    notes_of = {
        method.method: [*(() if timing.first_round_apart else (once,)), *method.notes]
        for method, timing in zip(result.methods, timings, strict=True)
    }
    return [*((", ".join(names), same) for names in groups), *_together(notes_of)]


def _together(notes_of: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    names_of: dict[str, list[str]] = {}
    for name, notes in notes_of.items():
        for note in notes:
            names_of.setdefault(note, []).append(name)
    return [(", ".join(names), note) for note, names in names_of.items()]


def findings(result: RunResult) -> list[str]:
    """Return a sentence if the test samples cannot tell the methods' last accuracies apart, else nothing."""
    ends = [one.last.accuracy for one in result.methods if math.isfinite(one.last.accuracy)]
    last = result.dataset.removesuffix(" test)").rpartition(" ")[2].replace(",", "")
    if result.metrics[0] != "accuracy" or not last.isdigit() or len(set(ends)) < 2:
        return []
    # 1.96 standard errors of such a difference, samples drawn anew.
    low, high, samples = min(ends), max(ends), int(last)
    if high - low > 1.96 * math.sqrt((low * (1 - low) + high * (1 - high)) / samples):
        return []
    return [f"{samples:,} test samples cannot tell these accuracies apart."]


def summary_csv(result: RunResult) -> str:
    rows = [row for section in summarise(result) for row in section.rows]
    return csv_text(
        {"method": method.method}
        | {row.name: row.values[index] for row in rows}
        | {"readable_parts": ", ".join(method.readable_parts)}
        for index, method in enumerate(result.methods)
    )


def rounds_csv(result: RunResult) -> str:
    return csv_text(
        {"method": method.method, **flat_record(record)}
        for method in result.methods
        for record in method.rounds
    )


def flat_record(record: RoundRecord) -> dict[str, Any]:
    """Return a round's figures in one flat dict. An inner figure keeps its name or gets its dict's prefix."""
    heads = {"metrics": "", "personalised_metrics": "personalised_", "zone_shares": "share_"}
    heads["stage_seconds"] = "seconds_"
    flat: dict[str, Any] = {}
    for name, value in vars(record).items():
        flat |= {f"{heads[name]}{key}": one for key, one in value.items()} if name in heads else {name: value}
    return flat
