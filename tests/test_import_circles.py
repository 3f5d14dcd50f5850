"""No file of the package imports, by any way, one that imports it: also not inside functions, or for types alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "python" / "shieldfl"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Which files of the package each file imports; what the package itself gathers is not a way."""
    files = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    del files["shieldfl"]
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= (whole & files.keys()) or {node.module}
        graph[name] = found & files.keys() - {name}
    return graph


def check_no_circle(graph: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


def test_no_file_imports_one_that_imports_it():
    check_no_circle(import_graph())


def test_a_circle_would_be_found():
    graph = import_graph()
    assert "shieldfl.errors" in graph["shieldfl.masks"]
    with pytest.raises(pytest.fail.Exception, match=r"shieldfl\.masks"):
        check_no_circle(graph | {"shieldfl.errors": {"shieldfl.masks"}})
