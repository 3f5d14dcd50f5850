"""The figures of a run side by side, a column for each method: all, and those that people compare methods by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from shieldfl.lab.report.output_files import csv_text
from shieldfl.lab.report.run_timing import compare_timings
from shieldfl.lab.simulation.results import STAGES, MethodResult, RoundRecord
from shieldfl.lab.simulation.run_result import RunResult
from shieldfl.quantities import (
    MISSING,
    bytes_text,
    epsilon_text,
    metric_text,
    ratio_text,
    seconds_text,
    share_text,
)

ZONES = ("encrypted", "personalised", "noise", "clear")
"""The keys of ``RoundRecord.zone_shares``, most protected first."""

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
_MOST_NAMED = 4
"""Methods; of more only some are named."""


@dataclass(frozen=True)
class Row:
    """One figure for every method."""

    label: str
    cells: tuple[str, ...]
    """In the order of ``RunResult.methods``."""
    name: str
    """Of the figure among all, where it is written for machines."""
    values: tuple[float | int | str | None, ...] = ()
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


def compared_texts(values: Sequence[float], text: Callable[[float], str]) -> tuple[str, ...]:
    """Write values, all but the first with how many times the first they are; times vary, and get two digits."""
    cells = [text(value) for value in values]
    for i in range(1, len(values)):
        if ratio := ratio_text(values[i], values[0], 2 if text is seconds_text else 3):
            cells[i] = f"{cells[i]} ({ratio})"
    return tuple(cells)


def summarise(result: RunResult) -> tuple[Section, ...]:
    """Return every figure of the comparison. Every method must have at least one round."""
    methods, timings = result.methods, compare_timings(result.methods)

    def row(label: str, name: str, values: Iterable[Any], text: Callable[[Any], str] = str) -> Row:
        told = tuple(values)
        return Row(label, tuple(MISSING if one is None else text(one) for one in told), name, told)

    def fact(
        label: str, name: str, text: Callable[[Any], str] = str, of: str = "", last: bool = False
    ) -> Row:
        return row(label, name, map(attrgetter(f"{'last.' if last else ''}{of or name}"), methods), text)

    def cost(label: str, name: str, text: Callable[[float], str], of: str = "") -> Row:
        return row(label, name, map(attrgetter(of or name), timings), text)

    def compared(label: str, name: str, text: Callable[[float], str], of: str = "") -> Row:
        plain = cost(label, name, text, of)
        return replace(plain, cells=compared_texts([float(one or 0.0) for one in plain.values], text))

    def stage(name: str) -> Row:
        return row(
            name, f"seconds_{name}", (one.stage_seconds.get(name, 0.0) for one in timings), seconds_text
        )

    def measured(name: str) -> Section:
        def text(value: float) -> str:
            return metric_text(value, name)

        own = row("global model", name, (one.last.measured(name) for one in methods), text)
        of_clients = (one.last.measured_by_clients(name) for one in methods)
        merged = row("personalised, mean of clients", f"personalised_{name}", of_clients, text)
        return Section(f"{name[:1].upper()}{name[1:]} after the last round", (own, merged))

    hidden = fact("hidden from the aggregator", "hidden_share")
    privacy = [
        replace(hidden, cells=tuple(map(_hidden_text, methods))),
        fact("ε", "epsilon", epsilon_text, last=True),
        fact("privacy unit", "privacy_unit"),
        fact("against", "privacy_adversary", lambda text: text.partition(",")[0]),
        fact("of the noise alone", "epsilon_of_noise", epsilon_text, last=True),
    ]
    second, outsiders = list(map(_second_epsilon, methods)), list(map(_outsiders_epsilon, methods))
    if not all(map(math.isnan, second)):
        label = "noise of σ·√K, if K was true"
        privacy.append(row(label, "epsilon_if_participants_true", second, epsilon_text))
    if not all(map(math.isnan, outsiders)):
        label = "ε against outsiders alone"
        privacy.append(row(label, "epsilon_if_participation_hidden", outsiders, epsilon_text))
    privacy.append(fact("at δ", "delta", epsilon_text))

    sections: dict[str, Sequence[Row]] = {
        "Convergence of the global model": [fact("converged in round", "converged_in_round")],
        "Model": [
            fact("trained parameters", "trained_parameters", "{:,}".format, "parameters"),
            fact("encrypted by", "encrypted_by", of="scheme"),
            fact("opened by", "opened_by"),
        ],
        "Share of parameters, mean over rounds": [
            row(zone, f"share_{zone}", (mean_over_rounds(one, zone) for one in methods), share_text)
            for zone in ZONES
        ],
        "Seconds a round, sum over clients": [
            cost("train", "seconds_train", seconds_text, "train_seconds"),
            *(stage(name) for name in STAGES if name != "train"),
            cost("other", "seconds_other", seconds_text, "other_seconds"),
            compared("all but training", "seconds_protection", seconds_text, "protection_seconds"),
            compared("whole round", "seconds_round", seconds_text, "round_seconds"),
            cost("set-up, once", "seconds_setup", seconds_text, "setup_seconds"),
        ],
        "Bytes a round and client": [
            compared("up", "bytes_up", bytes_text),
            compared("down", "bytes_down", bytes_text),
            cost("up, once in addition", "bytes_up_once", _once, "setup_bytes_up"),
            cost("down, once in addition", "bytes_down_once", _once, "setup_bytes_down"),
        ],
        "Privacy, all rounds": privacy,
    }
    others = (Section(title, tuple(rows)) for title, rows in sections.items())
    return (*map(measured, result.metrics), *others)


def _once(size: float) -> str:
    return bytes_text(size) if size else MISSING


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


def _second_epsilon(method: MethodResult) -> float:
    # NaN, where there is no noise, is not below anything.
    lower = any(record.epsilon_if_participants_true < record.epsilon_of_noise for record in method.rounds)
    return method.last.epsilon_if_participants_true if lower else math.nan


def _outsiders_epsilon(method: MethodResult) -> float:
    last = method.last
    hidden = last.epsilon_if_participation_hidden
    return hidden if hidden < last.epsilon else math.nan


def compared_rows(result: RunResult) -> tuple[Row, ...]:
    """Return the rows that decide, without those that say nothing of any method: twelve at most.

    Every method must have a round.
    """
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
        chosen.append(Row("  by chance", tuple(map(_chance_text, cells)), "labels_by_chance"))
    rows["epsilon"] = replace(rows["epsilon"], cells=tuple(map(_epsilon_text, result.methods)))
    chosen += [replace(rows[figure], label=label) for figure, label in _COMPARED.items()]
    return tuple(row for row in chosen if not all(cell in (MISSING, "nobody") for cell in row.cells))


def _read_text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return MISSING
    if cell["status"] != "attacked":
        return "nothing" if cell["status"] == "nothing received" else str(cell["status"])
    figure = f"{100 * cell['figure']:.0f} %"
    return figure if cell["low"] is None else f"{figure} ({100 * cell['low']:.0f}–{100 * cell['high']:.0f})"


def _chance_text(cell: Mapping[str, Any] | None) -> str:
    return MISSING if cell is None or cell["chance"] is None else f"{100 * cell['chance']:.0f} %"


def _epsilon_text(method: MethodResult) -> str:
    epsilon = method.last.epsilon
    text = epsilon_text(epsilon)
    return f"{text} for a {method.privacy_unit}" if math.isfinite(epsilon) and method.privacy_unit else text


def what_happened(method: MethodResult) -> list[str]:
    """Return a method's notes without the one that says how its ε is to be read, which its page says as well."""
    return method.notes[1:]


def footnotes(result: RunResult) -> list[tuple[str, str]]:
    """Return one line for each method that needs one, after the names of the methods that have the same one.

    It says whom a finite ε protects and against whom, and the newest of the notes.
    """
    methods_of: dict[str, list[str]] = {}
    for method in result.methods:
        parts = []
        if math.isfinite(method.last.epsilon) and method.privacy_unit:
            whom = (method.privacy_adversary or "an adversary that its page names").partition(",")[0]
            parts.append(
                f"ε of {epsilon_text(method.last.epsilon)} at δ = {method.delta:g} protects a {method.privacy_unit} "
                f"in all rounds together, against {whom}"
            )
        notes = what_happened(method)
        if notes:
            parts.append(notes[-1] + (f" ({len(notes) - 1} more in the notes)" if len(notes) > 1 else ""))
        if parts:
            methods_of.setdefault("; ".join(parts), []).append(method.method)
    return [(", ".join(names), note) for note, names in methods_of.items()]


def remarks(result: RunResult) -> list[tuple[str, str]]:
    """Return every note once, after the names of the methods that it is about, or of what it is about."""
    timings = compare_timings(result.methods)
    groups = dict.fromkeys(one.trained_alike for one in timings if len(one.trained_alike) > 1)
    same = "train alike: the median of their training stands for each"
    once = "time and bytes are of one round alone, with what a first round does once"
    methods_of: dict[str, list[str]] = {}
    for method, timing in zip(result.methods, timings, strict=True):
        for note in (*(() if timing.first_round_apart else (once,)), *method.notes):
            methods_of.setdefault(note, []).append(method.method)
    return [
        *((", ".join(names), same) for names in groups),
        *((", ".join(names), note) for note, names in methods_of.items()),
    ]


def findings(result: RunResult) -> list[str]:
    """Say what models reached, what protection cost, and who keeps a finite ε, in a sentence each.

    Every method must have at least one round.
    """
    return [_models(result), _costs(result.methods), _privacy(result.methods)]


def joined(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """Return "a, b and c", or how many there are beyond the first few."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} others"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _models(result: RunResult) -> str:
    """Say between what the first metric ends: of a user's own, nobody has said whether more of it is better."""
    name = result.metrics[0]
    known = [(value, one) for one in result.methods if math.isfinite(value := one.last.measured(name))]
    if not known:
        return f"No model's {name} could be measured."
    (least, lowest), (most, highest) = min(known, key=_first), max(known, key=_first)
    low, high = metric_text(least, name), metric_text(most, name)
    head = f"{name[:1].upper()}{name[1:]} after {_rounds([one for _, one in known])}"
    if low == high:
        return f"{head} is {high} under {joined([one.method for _, one in known])}."
    between = f"{head} is between {low} under {lowest.method} and {high} under {highest.method}"
    samples = _test_samples(result)
    # 1.96 standard errors of such a difference, samples drawn anew.
    noise = 1.96 * math.sqrt((least * (1 - least) + most * (1 - most)) / samples) if samples else 0.0
    if name == "accuracy" and most - least <= noise:
        return f"{between}: {samples:,} test samples cannot tell these apart."
    return f"{between}."


def _first(pair: tuple[float, MethodResult]) -> float:
    return pair[0]


def _rounds(methods: Sequence[MethodResult]) -> str:
    counts = sorted({len(one.rounds) for one in methods})
    return f"{' to '.join(map(str, {counts[0]: 0, counts[-1]: 0}))} round{'' if counts == [1] else 's'}"


def _test_samples(result: RunResult) -> int:
    _, _, last = result.dataset.removesuffix(" test)").rpartition(" ")
    return int(last.replace(",", "")) if last.replace(",", "").isdigit() else 0


def _costs(methods: Sequence[MethodResult]) -> str:
    """Say what a round costs beside the first method; where that one has no encryption, of what encrypts all."""
    timings = compare_timings(methods)
    base, *others = zip(methods, timings, strict=True)
    if not others:
        up, down = bytes_text(base[1].bytes_up), bytes_text(base[1].bytes_down)
        time = seconds_text(base[1].round_seconds)
        return f"In a round a client sends {up} and receives {down}; all roles together take {time}."
    whole = [one for one in others if one[0].hidden_share == 1.0 and methods[0].hidden_share == 0.0]
    # Noise that goes with it has costs of its own.
    whole = [one for one in whole if math.isnan(one[0].last.epsilon)] or whole
    told = []
    for name, text, digits in (("bytes_up", bytes_text, 3), ("round_seconds", seconds_text, 2)):
        cost = attrgetter(name)
        ranked = sorted(whole or others, key=lambda one: cost(one[1]))
        ratios = [ratio_text(cost(one), cost(base[1]), digits) for _, one in ranked]
        ends = [
            f"{text(cost(one))}{f' ({ratio})' if ratio else ''}"
            for (_, one), ratio in zip(ranked, ratios, strict=True)
        ]
        told.append(" to ".join(dict.fromkeys((ends[0], ends[-1]))))
    subject = "Encrypting everything makes" if whole else f"{joined([one.method for one, _ in others])} make"
    subject += "s" if not whole and len(others) == 1 else ""
    size, time = told
    return (
        f"{subject} a client send {size} in a round and a round take {time}, compared with {base[0].method}."
    )


def _privacy(methods: Sequence[MethodResult]) -> str:
    finite = [f"{one.method} ({_epsilon_text(one)})" for one in methods if math.isfinite(one.last.epsilon)]
    silent = [one.method for one in methods if math.isnan(one.last.epsilon)]
    if len(silent) == len(methods):
        return "Nothing readable was sent, so there is no ε."
    kept = f"A finite ε is kept by {joined(finite)}" if finite else "No method keeps a finite ε"
    send = "sends" if len(silent) == 1 else "send"
    return (
        f"{kept}{f'; {joined(silent)} {send} nothing readable, and encryption has no ε' if silent else ''}."
    )


def summary_csv(result: RunResult) -> str:
    """Return a line for each method with every figure, under a line of names."""
    rows = [row for section in summarise(result) for row in section.rows]
    return csv_text(
        {"method": method.method}
        | {row.name: row.values[index] for row in rows}
        | {"readable_parts": ", ".join(method.readable_parts)}
        for index, method in enumerate(result.methods)
    )


def rounds_csv(result: RunResult) -> str:
    """Return a line for each method and round."""
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
