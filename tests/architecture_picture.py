"""Draws the picture of docs/explanation/architecture.md from imports: ``python tests/architecture_picture.py``."""

from __future__ import annotations

import ast
import math
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from import_graph import GENERATED, PACKAGE, ROOT, Graph, cpp_rooms, floors, python_rooms, without_shortcuts

PICTURE = ROOT / "docs" / "images" / "architecture.svg"
_WIDTH = 13.0
_GAP = 0.14
_FOLDER, _FILE, _CORE, _BEHIND = "#dbe7f5", "#f2f2f2", "#f7e6d0", "#fbf6ee"
_ON_DARK_PAGES = {_FOLDER: "#22304a", _FILE: "#2a2f38", _CORE: "#46351a", _BEHIND: "#1d1912"}


@dataclass(frozen=True)
class _Box:
    """Where a room stands, in inches."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


def arrows() -> dict[str, Graph]:
    """Return what the picture shows: the arrows of both languages, by room."""
    return {"python": without_shortcuts(python_rooms()), "cpp": without_shortcuts(cpp_rooms())}


def arrow_id(language: str, room: str, used: str) -> str:
    """Return the name under which an arrow stands in the file."""
    return f"{language}: {room} uses {used}"


def purpose(room: str) -> str:
    """Return the first sentence of what a part of the package says of itself."""
    folder = PACKAGE / room / "__init__.py"
    path = folder if folder.is_file() else PACKAGE / f"{room}.py"
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"\.\s|\n\n", said, maxsplit=1)[0].replace("\n", " ").replace("`", "").rstrip(".")


def draw() -> Figure:
    core = _placed(cpp_rooms(), bottom=0.15, height=0.34, row=0.66)
    middle = max(box.bottom for box in core.values()) + 0.85
    package = _placed(python_rooms(), bottom=middle + 0.15, height=0.66, row=1.04)
    height = max(box.bottom for box in package.values()) + 0.9
    figure = Figure((_WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(0, height))
    axes.axis("off")
    axes.axhspan(0, middle - 0.1, color=_BEHIND, linewidth=0, zorder=0)
    axes.text(0.15, middle - 0.4, "cpp/, compiled to _core", fontsize=11, style="italic")
    axes.text(0.15, height - 0.35, "python/shieldfl/", fontsize=11, style="italic")
    for room, box in package.items():
        is_folder = (PACKAGE / room).is_dir()
        _draw_room(axes, box, room + "/" * is_folder, purpose(room), _FOLDER if is_folder else _FILE)
    for room, box in core.items():
        _draw_room(axes, box, f"{room}/", "", _CORE)
    for (language, shown), boxes in zip(arrows().items(), (package, core), strict=True):
        for room, used in shown.items():
            for one in sorted(used - {GENERATED}):
                _draw_arrow(axes, boxes[room], boxes[one], arrow_id(language, room, one))
    return figure


def _placed(graph: Graph, bottom: float, height: float, row: float) -> dict[str, _Box]:
    """Return a box for each room: floors as rows, each room near the middle of those that it uses."""
    floor_of, boxes = floors(graph), dict[str, _Box]()
    for floor in range(1, max(floor_of.values()) + 1):

        def place(room: str) -> tuple[float, str]:
            below = [boxes[used].middle for used in graph[room] if used in boxes]
            # Exact, so that rooms with equal sums stand in one order whatever order sets have.
            return (math.fsum(below) / len(below) if below else _WIDTH / 2, room)

        rooms = sorted((room for room in graph if floor_of[room] == floor), key=place)
        width = min(2.6, (_WIDTH - 0.3) / len(rooms) - _GAP)
        left = (_WIDTH - len(rooms) * (width + _GAP) + _GAP) / 2
        for column, room in enumerate(rooms):
            boxes[room] = _Box(left + column * (width + _GAP), bottom + row * (floor - 1), width, height)
    return boxes


def _draw_room(axes: Axes, box: _Box, name: str, said: str, colour: str) -> None:
    shape = FancyBboxPatch((box.left, box.bottom), box.width, box.height, "round,pad=0.02")
    shape.set(facecolor=colour, edgecolor="#666666", zorder=2)
    axes.add_patch(shape)
    top = box.bottom + box.height
    lines = "\n".join(textwrap.wrap(said, int(box.width * 15.5)))
    axes.text(box.middle, top - 0.06, name, ha="center", va="top", fontsize=10, weight="bold", zorder=3)
    axes.text(box.middle, top - 0.26, lines, ha="center", va="top", fontsize=6.5, zorder=3)


def _draw_arrow(axes: Axes, upper: _Box, lower: _Box, name: str) -> None:
    ends = (upper.middle, upper.bottom - 0.02), (lower.middle, lower.bottom + lower.height + 0.03)
    arrow = FancyArrowPatch(
        *ends, arrowstyle="-|>", mutation_scale=8, color="#8899aa", linewidth=0.8, zorder=1
    )
    arrow.set_gid(name)
    axes.add_patch(arrow)


def main(path: Path = PICTURE) -> None:
    with mpl.rc_context({"svg.hashsalt": "shieldfl", "svg.fonttype": "none"}):
        draw().savefig(path, metadata={"Date": None}, transparent=True)
    dark = (f'[style*="{one}"] {{ fill: {other} !important }}' for one, other in _ON_DARK_PAGES.items())
    rules = " ".join([*dark, "text { fill: #e8ecf4 }"])
    style = f"<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>"
    path.write_text(path.read_text("utf-8").replace("</defs>", f"{style}</defs>", 1), encoding="utf-8")


if __name__ == "__main__":
    main()
