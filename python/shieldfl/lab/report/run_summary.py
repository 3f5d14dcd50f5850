"""The figures of a run side by side, a column for each method: all, and those that people compare methods by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
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
"""Labels of what methods are compared by, in their order, by name among all figures."""


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[str, ...]
    name: str
    """Of the figure among all, where it is written for machines."""
    values: tuple[float | int | str | None, ...] = ()
    """What the cells say, as they are: numbers in bytes, seconds and shares, or text; None for what there is not."""


@dataclass(frozen=True)
class Section:
    title: str
    rows: tuple[Row, ...]


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
    """Write values, all but the first with how many times the first they are; times vary, and get two digits."""
    cells = [text(value) for value in values]
    for i in range(1, len(values)):
        if ratio := ratio_text(values[i], values[0], 2 if text is seconds_text else 3):
            cells[i] = f"{cells[i]} ({ratio})"
    return tuple(cells)


def _once(size: float) -> str:
    return bytes_text(size) if size else MISSING


class _Of(NamedTuple):
    method: MethodResult
    timing: Timing


class _Figure(NamedTuple):
    label: str
    name: str
    read: Callable[[_Of], Any]
    text: Callable[[Any], str] = str
    compared: bool = False
    """Whether cells say how many times the first method's they are."""


def _zone(name: str) -> Callable[[_Of], float]:
    return lambda one: one.method.zone_share(name)


def _stage(name: str) -> Callable[[_Of], float]:
    return lambda one: one.timing.stage_seconds.get(name, 0.0)


def _second_epsilon(one: _Of) -> float:
    # NaN, where there is no noise, is not below anything.
    rounds = one.method.rounds
    lower = any(record.epsilon_if_participants_true < record.epsilon_of_noise for record in rounds)
    return rounds[-1].epsilon_if_participants_true if lower else math.nan


def _outsiders_epsilon(one: _Of) -> float:
    hidden = one.method.last.epsilon_if_participation_hidden
    return hidden if hidden < one.method.last.epsilon else math.nan


_get = attrgetter
_FIGURES = {
    "Convergence of the global model": (
        _Figure("converged in round", "converged_in_round", _get("method.converged_in_round")),
    ),
    "Model": (
        _Figure("trained parameters", "trained_parameters", _get("method.parameters"), "{:,}".format),
        _Figure("encrypted by", "encrypted_by", _get("method.scheme")),
        _Figure("opened by", "opened_by", _get("method.opened_by")),
    ),
    "Share of parameters, mean over rounds": tuple(
        _Figure(zone, f"share_{zone}", _zone(zone), share_text) for zone in ZONES
    ),
    "Seconds a round, sum over clients": (
        _Figure("train", "seconds_train", _get("timing.train_seconds"), seconds_text),
        *(_Figure(one, f"seconds_{one}", _stage(one), seconds_text) for one in STAGES if one != "train"),
        _Figure("other", "seconds_other", _get("timing.other_seconds"), seconds_text),
        _Figure(
            "all but training", "seconds_protection", _get("timing.protection_seconds"), seconds_text, True
        ),
        _Figure("whole round", "seconds_round", _get("timing.round_seconds"), seconds_text, True),
        _Figure("set-up, once", "seconds_setup", _get("timing.setup_seconds"), seconds_text),
    ),
    "Bytes a round and client": (
        _Figure("up", "bytes_up", _get("timing.bytes_up"), bytes_text, True),
        _Figure("down", "bytes_down", _get("timing.bytes_down"), bytes_text, True),
        _Figure("up, once in addition", "bytes_up_once", _get("timing.setup_bytes_up"), _once),
        _Figure("down, once in addition", "bytes_down_once", _get("timing.setup_bytes_down"), _once),
    ),
    "Privacy, all rounds": (
        _Figure("hidden from the aggregator", "hidden_share", _get("method.hidden_share")),
        _Figure("ε", "epsilon", _get("method.last.epsilon"), epsilon_text),
        _Figure("privacy unit", "privacy_unit", _get("method.privacy_unit")),
        _Figure(
            "against",
            "privacy_adversary",
            _get("method.privacy_adversary"),
            lambda one: one.partition(",")[0],
        ),
        _Figure("of the noise alone", "epsilon_of_noise", _get("method.last.epsilon_of_noise"), epsilon_text),
        _Figure(
            "noise of σ·√K, if K was true", "epsilon_if_participants_true", _second_epsilon, epsilon_text
        ),
        _Figure(
            "ε against outsiders alone", "epsilon_if_participation_hidden", _outsiders_epsilon, epsilon_text
        ),
        _Figure("at δ", "delta", _get("method.delta"), epsilon_text),
    ),
}
_LEFT_OUT = ("epsilon_if_participants_true", "epsilon_if_participation_hidden")


def summarise(result: RunResult) -> tuple[Section, ...]:
    pairs = list(map(_Of, result.methods, compare_timings(result.methods)))
    sections = []
    for name in result.metrics:
        text = partial(metric_text, name=name)
        own = [one.last.measured(name) for one in result.methods]
        merged = [one.last.measured_by_clients(name) for one in result.methods]
        measured = (
            Row("global model", tuple(map(text, own)), name, tuple(own)),
            Row(
                "personalised, mean of clients",
                tuple(map(text, merged)),
                f"personalised_{name}",
                tuple(merged),
            ),
        )
        sections.append(Section(f"{name[:1].upper()}{name[1:]} after the last round", measured))
    for title, figures in _FIGURES.items():
        found = [_row(figure, pairs) for figure in figures]
        rows = tuple(row for row in found if row.name not in _LEFT_OUT or set(row.cells) != {MISSING})
        sections.append(Section(title, rows))
    return tuple(sections)


def _row(figure: _Figure, pairs: Sequence[_Of]) -> Row:
    values = tuple(map(figure.read, pairs))
    cells = tuple(MISSING if one is None else figure.text(one) for one in values)
    if figure.compared:
        cells = compared_texts(values, figure.text)
    if figure.name == "hidden_share":
        cells = tuple(_hidden_text(one.method) for one in pairs)
    return Row(figure.label, cells, figure.name, values)


def _hidden_text(method: MethodResult) -> str:
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


def compared_rows(result: RunResult) -> tuple[Row, ...]:
    """Return the rows that decide, twelve at most, without those that say nothing of any method."""
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
            whom = (method.privacy_adversary or "an adversary that its page names").partition(",")[0]
            parts.append(
                f"ε of {epsilon_text(method.last.epsilon)} at δ = {method.delta:g} protects a {method.privacy_unit} "
                f"in all rounds together, against {whom}"
            )
        if notes := method.notes[1:]:
            parts.append(notes[-1] + (f" ({len(notes) - 1} more in the notes)" if len(notes) > 1 else ""))
        notes_of[method.method] = ["; ".join(parts)] if parts else []
    return _together(notes_of)


def remarks(result: RunResult) -> list[tuple[str, str]]:
    """Return every note once, after the names of the methods that it is about, or of what it is about."""
    timings = compare_timings(result.methods)
    groups = dict.fromkeys(one.trained_alike for one in timings if len(one.trained_alike) > 1)
    same = "train alike: the median of their training stands for each"
    once = "time and bytes are of one round alone, with what a first round does once"
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


def joined(names: Sequence[str]) -> str:
    """Return "a, b and c", or how many there are beyond the first three."""
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} others"]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def findings(result: RunResult) -> list[str]:
    """Say between what the first metric ends, and whether the test samples tell that apart.

    Of a user's own metric nobody has said whether more of it is better. Every method must have at least one
    round.
    """
    name = result.metrics[0]
    known = [(value, one) for one in result.methods if math.isfinite(value := one.last.measured(name))]
    if not known:
        return [f"No model's {name} could be measured."]
    (least, lowest), (most, highest) = (end(known, key=lambda pair: pair[0]) for end in (min, max))
    low, high = metric_text(least, name), metric_text(most, name)
    counts = sorted({len(one.rounds) for _, one in known})
    rounds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    head = f"{name[:1].upper()}{name[1:]} after {rounds} round{'' if counts == [1] else 's'}"
    if low == high:
        return [f"{head} is {high} under {joined([one.method for _, one in known])}."]
    between = f"{head} is between {low} under {lowest.method} and {high} under {highest.method}"
    last = result.dataset.removesuffix(" test)").rpartition(" ")[2].replace(",", "")
    samples = int(last) if last.isdigit() else 0
    # 1.96 standard errors of such a difference, samples drawn anew.
    noise = 1.96 * math.sqrt((least * (1 - least) + most * (1 - most)) / samples) if samples else 0.0
    if name == "accuracy" and most - least <= noise:
        return [f"{between}: {samples:,} test samples cannot tell these apart."]
    return [f"{between}."]


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
    """Return a round's figures without dicts in it: what is in one has its name, or a head that says of what it is."""
    heads = {"metrics": "", "personalised_metrics": "personalised_", "zone_shares": "share_"}
    heads["stage_seconds"] = "seconds_"
    flat: dict[str, Any] = {}
    for name, value in vars(record).items():
        flat |= {f"{heads[name]}{key}": one for key, one in value.items()} if name in heads else {name: value}
    return flat
