"""Experiment files: a run, its methods and what a paper measured, in TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.discovery import BUILT_IN, checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.report.paper_figures import PaperFigure
from shieldfl.toml_files import parse_toml, read_settings, read_text, table_of, tables_of

__all__ = ["Experiment", "load_experiment", "parse_experiment"]

_SECTIONS = ("title", "methods", "run", "settings", "paper")


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
    text = read_text(path, "experiment file")
    try:
        return parse_experiment(text)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


def parse_experiment(text: str) -> Experiment:
    """Make an experiment of the text of an experiment file.

    ``methods`` lists names of methods, or is ``"all"`` for those of this package. ``title`` may say what it is.
    ``[run]`` may have the settings of :class:`shieldfl.simulation.config.RunConfig`, ``[settings.METHOD]`` that
    method's, and each ``[[paper]]`` has those of :class:`shieldfl.simulation.report.paper_figures.PaperFigure`.

    Raises ParameterError that names the table and the key: for text that is not TOML, unknown or missing keys,
    unknown methods, and values of another type or out of range.
    """
    document = parse_toml(text, _SECTIONS, "the file")
    methods = _methods(document)
    settings = MethodSettings()
    tables = table_of(document, "settings")
    for name in tables:
        try:
            settings = settings.changed(name, table_of(tables, name, "settings."))
        except ParameterError as error:
            raise ParameterError(f"[settings.{name}] {error}") from None
    title = document.get("title", "")
    if not isinstance(title, str):
        raise ParameterError(f"title must be a text, not {title!r}")
    return Experiment(
        title=title,
        config=read_settings(RunConfig, table_of(document, "run"), "[run]"),
        methods=methods,
        settings=settings,
        paper=tuple(
            _paper(table, f"[[paper]] {number}", methods)
            for number, table in enumerate(tables_of(document, "paper"), start=1)
        ),
    )


def _methods(document: Mapping[str, Any]) -> tuple[str, ...]:
    methods = document.get("methods")
    if methods == "all":
        return tuple(BUILT_IN)
    if not isinstance(methods, list) or not methods:
        raise ParameterError('the file lacks methods: write methods = ["fedavg", ...] above the first table')
    return checked_methods(methods)


def _paper(table: Mapping[str, Any], where: str, methods: tuple[str, ...]) -> PaperFigure:
    paper = read_settings(PaperFigure, table, where)
    for name in (paper.method, paper.against):
        if name is not None and name not in methods:
            raise ParameterError(f"{where} is about the method {name!r}, which methods does not name")
    return paper
