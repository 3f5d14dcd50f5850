"""What ``shieldfl run --help`` says of each method, read from its source: importing most takes torch, and seconds."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from typer.core import TyperCommand

from shieldfl.methods.discovery import BUILT_IN, GROUP, method_names

__all__ = ["HelpWithMethods", "method_lines"]


class HelpWithMethods(TyperCommand):
    """A command whose help ends with the methods that there are."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the options, then the methods."""
        super().format_help(ctx, formatter)
        table = Table.grid(padding=(0, 2), expand=True)
        lines = method_lines()
        # What is cut where there is no room is never a name.
        table.add_column(style="bold cyan", no_wrap=True, min_width=max(map(len, lines)))
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for name, line in lines.items():
            table.add_row(name, line)
        title = "Methods: what each is for, and what leaves a client"
        panel = Panel(table, title=title, title_align="left", border_style="dim")
        Console(markup=False, highlight=False).print(panel)


def method_lines() -> dict[str, str]:
    """Return a line for each method: what it is for and what it sends, or at least whose it is."""
    own = {name: EntryPoint(name, place, GROUP) for name, place in BUILT_IN.items()}
    others = {one.name: one for one in sorted(entry_points(group=GROUP), reverse=True)}
    offers = others | own
    return {name: _line(offers[name]) if name in offers else "" for name in method_names()}


def _line(offer: EntryPoint) -> str:
    stated = _stated(offer)
    whose = "" if offer.dist is None else f"of the package {offer.dist.name}"
    if stated is None:
        return whose
    sends, purpose = stated
    return f"{purpose}: {sends}" + (f" ({whose})" if whose else "")


def _stated(offer: EntryPoint) -> tuple[str, str] | None:
    """Return what a method sends and what it is for, where its source says so in plain words."""
    try:
        tree = ast.parse(_source(offer.module).read_text(encoding="utf-8"))
    except (ImportError, OSError, SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _name(node.func) != "NamedMethod":
            continue
        texts = _texts(node)
        if texts.get("name") == offer.name and {"sends", "purpose"} <= texts.keys():
            return texts["sends"], texts["purpose"]
    return None


def _source(module: str) -> Path:
    """Return a module's file; nothing is imported. Raises ImportError where it cannot be told."""
    top, *rest = module.split(".")
    spec: ModuleSpec | None = find_spec(top)
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(module)
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ImportError(module)
    return Path(spec.origin)


_FIELDS: Sequence[str] = ("name", "sends", "purpose")


def _texts(call: ast.Call) -> dict[str, str]:
    """Return the first arguments of a call that are texts, by the fields that they fill."""
    given: dict[str | None, Any] = dict(zip(_FIELDS, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords}
    return {
        field: value.value
        for field in _FIELDS
        if isinstance(value := given.get(field), ast.Constant) and isinstance(value.value, str)
    }


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
