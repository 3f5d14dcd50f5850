"""Files that people write: texts, and TOML whose tables are settings classes."""

from __future__ import annotations

import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from shieldfl.errors import DataError, ParameterError
from shieldfl.settings import Settings, settings_of

__all__ = ["parse_toml", "read_settings", "read_text", "refuse_unknown", "table_of", "tables_of"]

S = TypeVar("S", bound=Settings)


def read_text(path: str | Path, what: str) -> str:
    """Return a file's text without a byte-order mark. Raises DataError, with what it is and the path."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(
            f"the {what} {path} cannot be read: look whether it is there, and its permissions"
        ) from error
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in content:
        raise DataError(f"the {what} {path} is UTF-16, or no text: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"the {what} {path} is not UTF-8: save it as that") from error


def parse_toml(text: str, sections: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return a file's sections. Raises ParameterError for text that is not TOML, and for unknown sections."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"{where} is not valid TOML: {error}") from None
    except RecursionError:
        raise ParameterError(f"{where} has brackets in brackets, too many to read") from None
    except ValueError:  # of int()
        raise ParameterError(f"{where} has a whole number with too many digits to read") from None
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
