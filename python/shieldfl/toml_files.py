"""Files that people write: TOML whose tables are settings classes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from shieldfl.errors import DataError, ParameterError
from shieldfl.settings import Settings, settings_of

__all__ = ["parse_toml", "read_settings", "read_text", "refuse_unknown", "table_of", "tables_of"]

S = TypeVar("S", bound=Settings)


def read_text(path: str | Path, what: str) -> str:
    """Return a file's text. Raises DataError for a file that cannot be read, which ``what`` names."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the {what} {path} cannot be read: give the path of a TOML file") from error


def parse_toml(text: str, sections: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return a file's sections. Raises ParameterError for text that is not TOML, and for unknown sections."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"{where} is not valid TOML: {error}") from None
    refuse_unknown(document, sections, where)
    return document


def table_of(document: Mapping[str, Any], name: str, where: str = "") -> Mapping[str, Any]:
    """Return a table, an empty one where there is none. Raises ParameterError for what is no table."""
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ParameterError(f"{where}{name} must be a table: write [{where}{name}]")
    return table


def tables_of(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the tables of an array, maybe none. Raises ParameterError for anything else."""
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ParameterError(f"{name} must be a list of tables: write [[{name}]], with two brackets")
    return tables


def read_settings(kind: type[S], table: Mapping[str, Any], where: str) -> S:
    """Return what a table states, by the names that settings have in files.

    Raises ParameterError that begins with ``where``: for unknown keys, missing ones, and what the class refuses.
    """
    known = settings_of(kind)
    refuse_unknown(table, known, where)
    for key, setting in known.items():
        if setting.default is MISSING and key not in table:
            raise ParameterError(f"{where} lacks {key}")
    values = {known[key].name: known[key].read(value, f"{where} ") for key, value in table.items()}
    try:
        return kind(**values)
    except ParameterError as error:
        raise ParameterError(f"{where} {error}") from None


def refuse_unknown(table: Mapping[str, Any], known: Any, where: str) -> None:
    """Raise ParameterError, which begins with ``where``, for a table with other keys than the known ones."""
    for key in table:
        if key not in known:
            raise ParameterError(f"{where} has the unknown key {key!r}: use {', '.join(known)}")
