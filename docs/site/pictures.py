"""Draws four pictures of docs/images from tables of pages and from an example: ``python docs/site/pictures.py``.

Figures stand in tables alone, so a changed table redraws its picture. Each picture has its colours
twice, for light pages and for dark ones.
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from html import escape
from itertools import dropwhile, pairwise, takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"

# What a class of elements has: an attribute, its value on light pages, its value on dark ones.
COLOURS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "text": (("fill", "#1d2430", "#e8ecf4"),),
    ".faint": (("fill", "#4b5563", "#b4bcc9"),),
    ".grid": (("stroke", "#c9ced8", "#454d5c"),),
    ".line": (("stroke", "#5a6270", "#a9b2c0"),),
    ".tip": (("fill", "#5a6270", "#a9b2c0"),),
    ".aggregator, .opener": (("fill", "#e8edff", "#222b4b"), ("stroke", "#4f5d95", "#8fa0e8")),
    ".client, .condition": (("fill", "#fff2dc", "#3a2c12"), ("stroke", "#b26a00", "#e0a94a")),
    ".authority, .safe": (("fill", "#e2f4e8", "#15301f"), ("stroke", "#2e7d4f", "#6cc48d")),
    ".read": (("fill", "#fde3e1", "#451d1c"), ("stroke", "#b3261e", "#f28b82")),
    ".nothing": (("fill", "#eceef2", "#2a2f38"), ("stroke", "#7a828f", "#9aa3b1")),
    ".ours": (("fill", "#2f5fd0", "#7ea6ff"), ("stroke", "#2f5fd0", "#7ea6ff")),
    ".others": (("fill", "#7a828f", "#9aa3b1"), ("stroke", "#7a828f", "#9aa3b1")),
    ".central": (("stroke", "#2e7d4f", "#6cc48d"),),
    ".local": (("fill", "#b26a00", "#e0a94a"), ("stroke", "#b26a00", "#e0a94a")),
}
SHAPES = """
    text { stroke: none }
    .name { font-weight: bold }
    .small { font-size: 12px }
    .box { stroke-width: 1.4 }
    .line, .series { fill: none; stroke-width: 1.8 }
    .bare { fill: none; stroke-width: 2.2 }
    .dashed { stroke-dasharray: 5 5 }
    .arrow { marker-end: url(#tip) }
  """
TIP = """<defs>
    <marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
      <path class="tip" d="M0 0 8 4 0 8z"/>
    </marker>
  </defs>"""


def picture(width: float, height: float, title: str, parts: list[str]) -> str:
    """Return the file of a picture: a title, colours for light and dark pages, and the parts."""
    light, dark = (
        "".join(
            f"\n    {name} {{ {'; '.join(f'{rule[0]}: {rule[column]}' for rule in rules)} }}"
            for name, rules in COLOURS.items()
        )
        for column in (1, 2)
    )
    style = f"{light}\n    @media (prefers-color-scheme: dark) {{{dark}\n    }}{SHAPES}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
    body = "\n  ".join([f"<title>{escape(title)}</title>", f"<style>{style}</style>", TIP, *parts])
    return f'{head} font-family="sans-serif" font-size="14">\n  {body}\n</svg>\n'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words, quote=False)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, corner: float = 5) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="box {kind}" {place} rx="{corner:g}"/>'


def path(points: list[tuple[float, float]], kind: str) -> str:
    return f'<path class="{kind}" d="M{" ".join(f"{x:.4g} {y:.4g}" for x, y in points)}"/>'


def table(page: str, heading: str) -> list[dict[str, str]]:
    """Return the first table below a heading, row by row, without the marks of Markdown."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    below = dropwhile(lambda line: not line.startswith("|"), lines[lines.index(heading) :])
    rows = []
    for line in takewhile(lambda line: line.startswith("|"), below):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line).replace("`", "").replace("**", "")
        rows.append([cell.strip() for cell in plain.strip("|").split("|")])
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


# One round.

EXAMPLE = "examples/one_round.py"
PARTIES = {"client": "Each client", "aggregator": "Aggregator", "authority": "Key authority"}
# Of each message of the example: what it carries.
CARRIED = {
    "public key": "the session's parameters, no secret",
    "identity": "keys that clients and aggregator pin",
    "request for enrolment": "the client's own secret, sealed",
    "grant": "the key that opens answers",
    "encrypted update": "the aggregator cannot read it",
    "list of clients, digest of the total": "neither an update nor the sum",
    "answer": "one-time sum key: opens this sum alone",
    "encrypted total": "the sum of the updates, encrypted",
}
# What the sender of a message does before, and a client at the end.
STEPS = {
    "encrypted update": "trains, encrypts",
    "list of clients, digest of the total": "adds ciphertexts",
    "answer": "checks the list",
    "": "opens the sum",
}
STAGES = {"public key": "Once: enrolment", "encrypted update": "Each round"}


def messages() -> Iterator[tuple[str, list[str], str]]:
    """Yield sender, receivers and name of each message, in the order in which the example sends them."""
    tree = ast.parse((ROOT / EXAMPLE).read_text(encoding="utf-8"))
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "sent"]
    for call in sorted(calls, key=lambda one: one.lineno):
        way = ast.unparse(call.args[0]).strip("f'").replace("{name}", "client").replace("clients", "client")
        sender, receiver = way.split(" > ")
        receivers = ["aggregator", "client"] if receiver == "all" else [receiver]
        yield sender, receivers, ast.literal_eval(call.args[1])


def one_round() -> str:
    """Draw the messages of one round between the three roles."""
    at = dict(zip(PARTIES, (110, 430, 750), strict=True))
    parts, y = [], 62.0
    for sender, receivers, name in [*messages(), ("client", [], "")]:
        if name in STAGES:
            parts.append(path([(20, y + 12), (840, y + 12)], "grid dashed"))
            parts.append(text(122, y + 30, STAGES[name], "name faint"))
            y += 36
        if name in STEPS:
            parts.append(box(at[sender] - 72, y + 6, 144, 30, sender))
            parts.append(text(at[sender], y + 26, STEPS[name], anchor="middle"))
            y += 40
        if not name:
            break
        for receiver in receivers:
            gap = -7 if at[receiver] < at[sender] else 7
            parts.append(path([(at[sender], y + 28), (at[receiver] - gap / 3.5, y + 28)], "line arrow"))
        middle = 590 if "authority" in (sender, *receivers) else 270
        parts.append(text(middle, y + 21, name, "name", "middle"))
        parts.append(text(middle, y + 45, CARRIED[name], "faint", "middle"))
        y += 54
    lines = [path([(x, 60), (x, y + 8)], "grid") for x in at.values()]
    heads = [box(at[party] - 90, 16, 180, 44, party) for party in PARTIES]
    names = [text(at[party], 43, PARTIES[party], "name", "middle") for party in PARTIES]
    return picture(860, y + 16, "The messages of one round", [*lines, *heads, *names, *parts])


# Time and bytes beside other libraries.

COSTS = ("docs/explanation/benchmark-results.md", "## Beside other libraries")
TIME, BYTES = "both", "bytes"
# Rows begin with one of these.
OURS = ("kahe 24/64", "ckks 24/64")
SHOWN = (*OURS, "plain", "Flower SecAgg+", "TenSEAL", "SEAL 2048")


def axis(ticks: list[float], place: Callable[[float], float], bottom: float) -> list[str]:
    """Return lines from top to bottom, with what they stand for below."""
    lines = [path([(place(tick), 62), (place(tick), bottom)], "grid") for tick in ticks]
    return lines + [text(place(tick), bottom + 18, f"{tick:,g}", "faint small", "middle") for tick in ticks]


def beside_peers() -> str:
    """Draw the time and the bytes of a value, ours and others'."""
    rows = [row for row in table(*COSTS) if row["scheme"].startswith(SHOWN)]
    rows.sort(key=lambda row: number(row[TIME]))
    bottom = 66.0 + 34 * len(rows)

    def time(value: float) -> float:
        return 220 + 56 * (math.log10(value) + 1)

    def size(value: float) -> float:
        return 590 + 1.9 * value

    parts = axis([0.1, 1, 10, 100, 1000, 10000], time, bottom) + axis([0, 50, 100], size, bottom)
    for left, what, how in (
        (220, "ns a value to encrypt and serialise", "logarithmic scale"),
        (590, "bytes a value", "on the wire"),
    ):
        parts += [text(left, 26, what, "name"), text(left, 45, how, "faint small")]
    for place, row in enumerate(rows):
        y = 83.0 + 34 * place
        kind, bold, name = "others", "", row["scheme"]
        if name.startswith(OURS):
            kind, bold, name = "ours", "name", f"shieldfl {name}"
        took, sent = time(number(row[TIME])), size(number(row[BYTES]))
        parts.append(path([(220, y), (took, y)], f"{kind} bare"))
        parts.append(f'<circle class="{kind}" cx="{took:.4g}" cy="{y:g}" r="6"/>')
        parts.append(box(590, y - 8, sent - 590, 16, kind, 0))
        for x, cell in ((208, name), (556, row[TIME]), (846, row[BYTES])):
            parts.append(text(x, y + 5, cell, bold, "end"))
    return picture(860, bottom + 30, "Time and bytes of a value", parts)


# Accuracy over epsilon.

ACCURACY = "docs/reference/methods/ddp-fedavg-results.md"
PANELS = {
    "## A thousand clients, a tenth in each round": "a convolution, 4,010 parameters",
    "### A model that learns at ε = 1": "a linear model, 500 parameters",
}
SERIES = {
    "central-dp-fedavg": ("central", "a trusted server reads updates and adds noise"),
    "ddp-fedavg": ("ours", "each client adds a share of the noise and encrypts"),
    "dp-fedavg": ("local", "each client adds noise for itself alone"),
}
# The page's first paragraphs have all of the claim.
CLAIM = ("ε: one client zeroed out, δ = 1e-5;", "against whom: see the text below")


def mark(x: float, y: float, kind: str) -> str:
    """Return a point: a ring, a square or a triangle, so that points in one place all show."""
    if kind == "central":
        return f'<circle class="central bare" cx="{x:.4g}" cy="{y:.4g}" r="8"/>'
    if kind == "ours":
        return f'<rect class="ours" x="{x - 4:.4g}" y="{y - 4:.4g}" width="8" height="8"/>'
    return f'<path class="{kind}" d="M{x - 6:.4g} {y + 5:.4g}h12l-6 -11z"/>'


def accuracy_over_epsilon() -> str:
    """Draw what noise for one epsilon costs in accuracy, by who adds it."""
    page = (ROOT / ACCURACY).read_text(encoding="utf-8")
    parts = []
    for place, (method, (kind, words)) in enumerate(SERIES.items()):
        parts += [mark(34, 22 + 24 * place, kind), text(52, 27 + 24 * place, method, "name")]
        parts.append(text(210, 27 + 24 * place, words, "faint"))
    parts += [path([(560, 22), (596, 22)], "line dashed"), text(606, 27, "fedavg", "name")]
    for place, words in enumerate(("no noise, no ε", *CLAIM)):
        parts.append(text(670 if place == 0 else 560, 27 + 24 * place, words, "faint"))
    for left, (heading, model) in zip((60, 470), PANELS.items(), strict=True):
        parts.append(text(left, 118, f"Accuracy in %: {model}", "name"))
        parts += panel(left, table(ACCURACY, heading), page.partition(heading)[2])
    return picture(860, 420, "Accuracy over ε", parts)


def panel(left: float, rows: list[dict[str, str]], below: str) -> Iterator[str]:
    def across(epsilon: float) -> float:
        return left + 40 + 90 * math.log2(epsilon)

    def up(accuracy: float) -> float:
        return 370 - 2.3 * accuracy

    for tick in range(0, 101, 20):
        yield path([(left, up(tick)), (left + 350, up(tick))], "grid")
        yield text(left - 8, up(tick) + 4, str(tick), "faint small", "end")
    for row in rows:
        yield text(across(number(row["ε"])), 390, f"ε = {row['ε']}", "faint small", "middle")
    said = re.search(r"`fedavg` has ([\d.]+)±", below)
    assert said, "the page says not what fedavg has"
    yield path([(left, up(number(said[1]))), (left + 350, up(number(said[1])))], "line dashed")
    for method, (kind, _) in SERIES.items():
        points = []
        for row in rows:
            mean, deviation = map(number, row[method].split("±"))
            x = across(number(row["ε"]))
            points.append((x, up(mean)))
            yield path([(x, up(mean - deviation)), (x, up(mean + deviation))], f"{kind} series")
        yield path(points, f"{kind} series")
        yield from (mark(*point, kind) for point in points)


# Who sees what.

PARTIES_SEE = ("docs/explanation/threat-model.md", "## Who gets what, by scheme")
LEVELS = {
    "nothing": "no such party",
    "safe": "no single update",
    "opener": "depends on the opener",
    "condition": "updates, on a condition",
    "read": "single updates",
}


def level(cell: str) -> str:
    """Return how much a cell of the page says is read; the worst, where no rule says less."""
    if cell == "–":
        return "nothing"
    if cell.startswith("no update unless it opens"):
        return "opener"
    if not re.search(r"(?<!no )\bupdates?\b|\bkeys?\b(?! alone)", cell):
        return "safe"
    return "condition" if re.search(r"whose ciphertexts? it reads|once it knows", cell) else "read"


def resolved(row: dict[str, str]) -> Iterator[str]:
    """Yield a row's cells, where "the same" stands for the cell before and "as X" for that of scheme X."""
    before = ""
    for cell in list(row.values())[1:]:
        named = next((row[scheme] for scheme in row if re.match(rf"as {scheme.split(',')[0]}$", cell)), cell)
        before = before if cell == "the same" else named
        yield before


def who_sees_what() -> str:
    """Draw the page's matrix of parties and schemes, with the beginning of each cell."""
    rows = table(*PARTIES_SEE)
    lefts = (155, 340, 560, 775, 990)
    parts = [
        text((left + right) / 2, 28, name, "name", "middle")
        for name, (left, right) in zip(list(rows[0])[1:], pairwise(lefts), strict=True)
    ]
    y = 42.0
    for row in rows:
        cells = []
        for cell, (left, right) in zip(resolved(row), pairwise(lefts), strict=True):
            said = "" if cell == "–" else re.split(r"[.:]", cell)[0]
            cells.append((level(cell), textwrap.wrap(said, int((right - left) / 7.8)), left, right))
        party = textwrap.wrap(row["party"], 19)
        height = 36 + 17 * max(len(party) - 1, *(len(cell[1]) for cell in cells))
        parts += [text(10, y + 20 + 17 * place, words) for place, words in enumerate(party)]
        for kind, words, left, right in cells:
            parts.append(box(left + 3, y, right - left - 6, height - 4, kind))
            parts.append(text(left + 12, y + 20, LEVELS[kind], "name"))
            parts += [text(left + 12, y + 38 + 17 * place, one) for place, one in enumerate(words)]
        y += height
    return picture(1000, y + 4, "What each party can read", parts)


PICTURES = {
    "round.svg": one_round,
    "beside-peers.svg": beside_peers,
    "accuracy-over-epsilon.svg": accuracy_over_epsilon,
    "who-sees-what.svg": who_sees_what,
}


def main() -> None:
    """Write every picture anew."""
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
