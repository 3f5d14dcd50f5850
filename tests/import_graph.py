"""What imports what: files of the package, its rooms (folders and single files), and the floor of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "shieldfl"
CPP = ROOT / "cpp"
GENERATED = "_core"
"""The compiled module: Python's ground, and what C++ is bound in."""

Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def import_graph() -> Graph:
    """Which files of the package each file imports, also in functions; what the package itself gathers is no way.

    All files are read once: nobody changes what is returned.
    """
    files = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    del files["shieldfl"]
    known = files.keys() | {f"shieldfl.{GENERATED}"}
    graph: Graph = {}
    for name, path in files.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= (whole & known) or {node.module}
        graph[name] = found & known - {name}
    return graph


def python_rooms() -> Graph:
    """Which parts of the package each part uses."""
    rooms: Graph = {}
    for name, used in import_graph().items():
        room = name.split(".")[1]
        rooms.setdefault(room, set()).update({other.split(".")[1] for other in used} - {room})
    return rooms


def cpp_rooms() -> Graph:
    """Which folders of the core each folder includes."""
    folders = sorted(path.name for path in CPP.iterdir() if path.is_dir() and path.name != "tests")
    rooms: Graph = {}
    for folder in folders:
        text = "".join(path.read_text(encoding="utf-8") for path in sorted((CPP / folder).rglob("*.*")))
        found = {include.split("/")[0] for include in re.findall(r'#\s*include\s+"([^"]+)"', text)}
        rooms[folder] = found & set(folders) - {folder}
    return rooms


def floors(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return each room's floor: one above all that it uses, 1 for what uses nothing. The graph has no circle."""

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(used) for used in graph[room] if used in graph), default=0)

    return {room: floor(room) for room in graph}


def without_shortcuts(graph: Mapping[str, set[str]]) -> Graph:
    """Drop every arrow between two rooms that other arrows lead between as well."""

    @cache
    def below(room: str) -> frozenset[str]:
        used = graph.get(room, set())
        return frozenset(used).union(*(below(one) for one in used))

    return {
        room: {one for one in used if not any(one in below(other) for other in used)}
        for room, used in graph.items()
    }
