"""Experiment files: a run, its methods and what a paper measured, in TOML."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from shieldfl.errors import DataError, ParameterError
from shieldfl.methods.discovery import BUILT_IN, checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.report.paper_figures import PaperFigure

__all__ = ["Experiment", "load_experiment", "parse_experiment"]

_SECTIONS = ("title", "methods", "run", "settings", "paper")
_PAPER_KEYS = ("source", "method", "figure", "value", "against", "note")


@dataclass(frozen=True)
class Experiment:
    """What an experiment file says."""

    title: str
    config: RunConfig
    methods: tuple[str, ...]
    settings: MethodSettings
    paper: tuple[PaperFigure, ...] = ()


def load_experiment(path: str | Path) -> Experiment:
    """Read an experiment file.

    Raises DataError for a file that cannot be read, ParameterError as :func:`parse_experiment`, with the file's name.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the experiment file {path} cannot be read: give the path of a TOML file") from error
    try:
        return parse_experiment(text)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


def parse_experiment(text: str) -> Experiment:
    """Make an experiment of the text of an experiment file.

    ``methods`` lists names of methods, or is ``"all"`` for those of this package. ``title`` may say what it is.
    ``[run]`` may have the fields of :class:`shieldfl.simulation.config.RunConfig`, ``alpha = "iid"`` among them.
    ``[settings.METHOD]`` may have that method's settings. Each ``[[paper]]`` has ``source``, ``method``, ``figure``
    (out of :data:`shieldfl.simulation.report.paper_figures.FIGURES`) and ``value``, a number or the two ends of a
    range, and may have ``against`` and ``note``: see :class:`shieldfl.simulation.report.paper_figures.PaperFigure`.

    Raises ParameterError that names the table and the key: for text that is not TOML, unknown or missing keys,
    unknown methods, and values of another type or out of range.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"not valid TOML: {error}") from None
    _refuse_unknown(document, _SECTIONS, "the file")
    methods = _methods(document)
    settings = MethodSettings()
    for name, values in _table(document, "settings").items():
        if not isinstance(values, dict):
            raise ParameterError(f"settings.{name} must be a table: write [settings.{name}]")
        try:
            settings = settings.changed(name, values)
        except ParameterError as error:
            raise ParameterError(f"[settings.{name}] {error}") from None
    papers = document.get("paper", [])
    if not isinstance(papers, list) or not all(isinstance(one, dict) for one in papers):
        raise ParameterError("figures of papers are written as [[paper]], with two brackets")
    return Experiment(
        title=_text(document, "title", "the file") if "title" in document else "",
        config=_config(_table(document, "run")),
        methods=methods,
        settings=settings,
        paper=tuple(_paper(table, number, methods) for number, table in enumerate(papers, start=1)),
    )


def _methods(document: Mapping[str, Any]) -> tuple[str, ...]:
    methods = document.get("methods")
    if methods == "all":
        return tuple(BUILT_IN)
    if not isinstance(methods, list) or not methods:
        raise ParameterError('the file lacks methods: write methods = ["fedavg", ...] above the first table')
    return checked_methods(methods)


def _config(table: Mapping[str, Any]) -> RunConfig:
    defaults = {one.name: one.default for one in fields(RunConfig)}
    _refuse_unknown(table, defaults, "[run]")
    values = {key: _fitted(key, value, defaults[key]) for key, value in table.items()}
    try:
        return RunConfig(**values)
    except ParameterError as error:
        raise ParameterError(f"[run] {error}") from None


_TYPES_WITHOUT_DEFAULT = {"data_dir": str, "model": str, "synthetic_data": str, "threads": int}


def _fitted(key: str, value: Any, default: Any) -> Any:
    """Return the value in its field's type; whole numbers become floats where that is one."""
    kind = _TYPES_WITHOUT_DEFAULT.get(key) or type(default)
    if key == "alpha" and value == "iid":
        return math.inf
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ParameterError(f"[run] {key} must be of the type {kind.__name__}, not {type(value).__name__}")
    return value


def _paper(table: Mapping[str, Any], number: int, methods: tuple[str, ...]) -> PaperFigure:
    where = f"[[paper]] {number}"
    _refuse_unknown(table, _PAPER_KEYS, where)
    against = _text(table, "against", where) if "against" in table else None
    method = _text(table, "method", where)
    for name in (method, against):
        if name is not None and name not in methods:
            raise ParameterError(f"{where} is about the method {name!r}, which methods does not name")
    value = table.get("value")
    ends: list[Any] = value if isinstance(value, list) else [value, value]
    if len(ends) != 2 or not all(type(end) in (int, float) for end in ends):
        raise ParameterError(f"{where} value must be a number, or the two ends of a range")
    try:
        return PaperFigure(
            source=_text(table, "source", where),
            method=method,
            figure=_text(table, "figure", where),
            least=float(ends[0]),
            most=float(ends[1]),
            against=against,
            note=_text(table, "note", where) if "note" in table else "",
        )
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ParameterError(f"{name} must be a table: write [{name}]")
    return table


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"{where} lacks {key}, or it is no text")
    return value


def _refuse_unknown(table: Mapping[str, Any], known: Any, where: str) -> None:
    for key in table:
        if key not in known:
            raise ParameterError(f"{where} has the unknown key {key!r}: use {', '.join(known)}")
