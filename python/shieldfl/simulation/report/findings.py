"""What came out of a run, in a few sentences that are read off its figures.

A higher accuracy is better. Of a user's own metric nobody has said whether more or less of it is, so its values are
told and not judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from shieldfl.reporting.quantities import (
    bytes_text,
    epsilon_text,
    metric_text,
    ratio_text,
    seconds_text,
)
from shieldfl.simulation.report.comparison import audited
from shieldfl.simulation.report.timing import Timing, compare_timings
from shieldfl.simulation.results import MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = ["findings", "joined"]

_TEST_SAMPLES = re.compile(r"([\d,]+) test\)")
"""In ``RunResult.dataset``."""
_MOST_NAMED = 4
"""Methods; of more only the ends of their range are named."""


def findings(result: RunResult) -> list[str]:
    """Return sentences on what models reached, what protection cost, and who keeps a finite ε.

    Every method must have at least one round.
    """
    attacked = _attacked(result)
    privacy = _privacy(result.methods)
    return [_models(result), *_costs(result.methods), f"{attacked} {privacy}" if attacked else privacy]


def joined(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """Return "a, b and c", or how many there are beyond the first few."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} others"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _models(result: RunResult) -> str:
    name = result.metrics[0]
    measured = [(method.last.measured(name), method) for method in result.methods]
    known = [(value, method) for value, method in measured if math.isfinite(value)]
    without = [method.method for value, method in measured if not math.isfinite(value)]
    unknown = f" There is no {name} of {joined(without)}." if without and known else ""
    if not known:
        return f"No model's {name} could be measured."
    if len(known) == 1:
        ((value, method),) = known
        return f"{method.method} reaches {_named(name, value)} after {_rounds(method)}.{unknown}"
    if len({len(method.rounds) for _, method in known}) > 1:
        unknown += " Not all have run the same number of rounds."
    if name != "accuracy":
        return _values(name, known) + unknown
    return _ranking(result, known) + _own_models(known) + unknown


def _named(name: str, value: float) -> str:
    return (
        f"{metric_text(value, name)} accuracy" if name == "accuracy" else f"{name} {metric_text(value, name)}"
    )


def _rounds(method: MethodResult) -> str:
    return f"{len(method.rounds)} round{'' if len(method.rounds) == 1 else 's'}"


def _values(name: str, known: Sequence[tuple[float, MethodResult]]) -> str:
    texts = [metric_text(value, name) for value, _ in known]
    if len(set(texts)) == 1:
        return f"All {len(known)} methods end with {name} {texts[0]}."
    if len(known) <= _MOST_NAMED:
        each = [f"{text} under {method.method}" for text, (_, method) in zip(texts, known, strict=True)]
        return f"After the last round {name} is {joined(each)}."
    ranked = sorted(known, key=lambda pair: pair[0])
    (low, lowest), (high, highest) = ranked[0], ranked[-1]
    return (
        f"After the last round {name} is between {metric_text(low, name)} under {lowest.method} and "
        f"{metric_text(high, name)} under {highest.method}."
    )


def _ranking(result: RunResult, known: Sequence[tuple[float, MethodResult]]) -> str:
    ranked = sorted(known, key=lambda pair: -pair[0])
    (top, leader), (bottom, last) = ranked[0], ranked[-1]
    best = metric_text(top, "accuracy")
    same = [method.method for value, method in ranked if metric_text(value, "accuracy") == best]
    if len(same) == len(known):
        return f"{'Both' if len(same) == 2 else f'All {len(same)}'} methods end at {best} accuracy."
    samples = _test_samples(result)
    near = [method.method for value, method in ranked if _indistinct(value, top, samples)]
    if len(near) == len(known):
        return (
            f"Accuracy ends between {best} under {joined(same)} and {metric_text(bottom, 'accuracy')} under "
            f"{last.method}: {samples:,} test samples cannot tell these apart."
        )
    first = f"{joined(same)} end{'s' if len(same) == 1 else ''} with the highest accuracy, {best}"
    worst = f"; {last.method}'s is {'the lowest' if len(known) > 2 else 'lower'}, {metric_text(bottom, 'accuracy')}"
    close = [name for name in near if name not in same]
    doubt = f" {samples:,} test samples cannot tell {joined(close)} from {leader.method}." if close else ""
    return f"{first}{worst}.{doubt}"


def _test_samples(result: RunResult) -> int:
    found = _TEST_SAMPLES.search(result.dataset)
    return int(found[1].replace(",", "")) if found else 0


def _indistinct(one: float, other: float, samples: int) -> bool:
    """Whether two accuracies differ by no more than 1.96 standard errors of such a difference, samples drawn anew."""
    if samples == 0:
        return one == other
    return abs(one - other) <= 1.96 * math.sqrt((one * (1.0 - one) + other * (1.0 - other)) / samples)


def _own_models(known: Sequence[tuple[float, MethodResult]]) -> str:
    """Say where the clients' merged models are better than every global one."""
    top = max(value for value, _ in known)
    value, method = max(
        ((method.last.personalised_accuracy, method) for _, method in known), key=lambda pair: pair[0]
    )
    if not value > top or metric_text(value, "accuracy") == metric_text(top, "accuracy"):
        return ""
    return f" The clients' own models under {method.method} reach {metric_text(value, 'accuracy')}, a mean."


def _costs(methods: Sequence[MethodResult]) -> list[str]:
    timings = compare_timings(methods)
    base = timings[0]
    if len(methods) == 1:
        text = f"In a round a client sends {bytes_text(base.bytes_up)} and receives {bytes_text(base.bytes_down)}"
        return [f"{text}; all roles together take {seconds_text(base.round_seconds)}."]
    others = list(zip(methods, timings, strict=True))[1:]
    # What encryption costs is seen beside a method that has none.
    whole = [pair for pair in others if pair[0].hidden_share == 1.0 and methods[0].hidden_share == 0.0]
    # Noise that goes with it has costs of its own.
    whole = [pair for pair in whole if math.isnan(pair[0].last.epsilon)] or whole
    compared = whole or others
    size = _range(compared, lambda timing: timing.bytes_up, base, bytes_text)
    time = _range(compared, lambda timing: timing.round_seconds, base, seconds_text)
    if whole:
        subject = f"Encrypting everything{f', by {whole[0][0].method},' if len(whole) == 1 else ''} makes"
    else:
        subject = "The other methods make" if len(others) > 1 else f"{others[0][0].method} makes"
    against = methods[0].method
    return [f"{subject} a client send {size} in a round and a round take {time}, compared with {against}."]


def _range(
    compared: Sequence[tuple[MethodResult, Timing]],
    value: Callable[[Timing], float],
    base: Timing,
    text: Callable[[float], str],
) -> str:
    """Return the least and the most of a cost, with how many times the first method's they are, and whose they are."""

    def told(pair: tuple[MethodResult, Timing], named: bool) -> str:
        ratio = ratio_text(value(pair[1]), value(base), 2 if text is seconds_text else 3)
        parts = [ratio, pair[0].method if named else ""]
        words = ", ".join(filter(None, parts))
        return f"{text(value(pair[1]))} ({words})" if words else text(value(pair[1]))

    ranked = sorted(compared, key=lambda pair: value(pair[1]))
    if text(value(ranked[0][1])) == text(value(ranked[-1][1])):
        return told(ranked[0], named=False)
    return f"{told(ranked[0], named=True)} to {told(ranked[-1], named=True)}"


def _privacy(methods: Sequence[MethodResult]) -> str:
    finite = [method for method in methods if math.isfinite(method.last.epsilon)]
    silent = [method.method for method in methods if math.isnan(method.last.epsilon)]
    none = (
        f"; {joined(silent)} send{'s' if len(silent) == 1 else ''} nothing readable, and encryption has no ε"
    )
    tail = f"{none if silent else ''}."
    if not finite:
        if len(silent) == len(methods):
            return "Nothing readable was sent, so there is no ε."
        return (
            f"No method keeps a finite ε{tail}"
            if len(methods) > 1
            else "ε is ∞: nothing bounds what was sent."
        )
    if len(finite) > _MOST_NAMED:
        # Figures for different units cannot be compared.
        units = dict.fromkeys(method.privacy_unit for method in finite)
        ranges = [_epsilons([method for method in finite if method.privacy_unit == unit]) for unit in units]
        return f"{len(finite)} of {len(methods)} methods keep a finite ε: {joined(ranges)}{tail}"
    return f"A finite ε is kept by {joined([_epsilon(method) for method in finite])}{tail}"


def _attacked(result: RunResult) -> str:
    """Say what an attack read from what the aggregator receives; nothing without an audit."""
    cells = [(method.method, cell) for method in result.methods if (cell := audited(result, method))]
    read = [(name, cell) for name, cell in cells if cell["status"] == "attacked"]
    empty = [name for name, cell in cells if cell["status"] == "nothing received"]
    told = [
        f"in {100 * cell['figure']:.0f} % of the classes under {name} (chance {100 * cell['chance']:.0f} %)"
        for name, cell in read
    ]
    parts = [f"an attack counts a client's labels right {joined(told)}"] if told else []
    parts += [f"there is nothing to attack under {joined(empty)}"] if empty else []
    return f"In what the aggregator receives, {'; '.join(parts)}." if parts else ""


def _epsilons(methods: Sequence[MethodResult]) -> str:
    """Return the least and the largest ε of methods whose unit is the same."""
    ranked = sorted(methods, key=lambda method: method.last.epsilon)
    ends = [_epsilon(method) for method in (ranked[0], ranked[-1])]
    return " to ".join(ends if len(ranked) > 1 else ends[:1])


def _epsilon(method: MethodResult) -> str:
    unit = f" for a {method.privacy_unit}" if method.privacy_unit else ""
    return f"{method.method} ({epsilon_text(method.last.epsilon)}{unit})"
