"""Fleet files: which clients there are, in TOML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.fleet.fleet import Aggregator, ClientKind, Fleet, Model, Training
from shieldfl.settings import settings_of
from shieldfl.toml_files import parse_toml, read_settings, read_text, table_of, tables_of

__all__ = ["load_fleet", "parse_fleet"]

_SECTIONS = ("name", "model", "training", "aggregator", "client")
_LINKS = ("upload", "download")


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet file; the name of the file is the fleet's where it states none.

    Raises DataError for a file that cannot be read, ParameterError as :func:`parse_fleet`.
    """
    return parse_fleet(read_text(path, "fleet file"), Path(path).stem, Path(path).parent)


def parse_fleet(text: str, default_name: str = "fleet", folder: Path | None = None) -> Fleet:
    """Make a fleet of the text of a fleet file.

    ``[model]``, ``[training]``, ``[aggregator]`` and each ``[[client]]`` have the settings of
    :class:`shieldfl.fleet.fleet.Model`, ``Training``, ``Aggregator`` and ``ClientKind``. A client may state
    ``bandwidth`` for both directions, and need not have a name; its profile's path is relative to ``folder``.

    Raises ParameterError that names the client, the key and what is allowed: for text that is not TOML, unknown or
    missing keys, unknown units, numbers out of range and a fleet without clients.
    """
    document = parse_toml(text, _SECTIONS, "the fleet file")
    clients = tables_of(document, "client")
    if not clients:
        raise ParameterError("the fleet has no clients: add a [[client]] table for each kind")
    name = document.get("name", default_name)
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(f"name must be a text that is not empty, not {name!r}")
    return Fleet(
        name=name,
        model=read_settings(Model, table_of(document, "model"), "[model]"),
        training=read_settings(Training, table_of(document, "training"), "[training]"),
        aggregator=read_settings(Aggregator, table_of(document, "aggregator"), "[aggregator]"),
        kinds=tuple(
            _client(table, number, folder or Path()) for number, table in enumerate(clients, start=1)
        ),
    )


def _client(table: Mapping[str, Any], number: int, folder: Path) -> ClientKind:
    stated = {"name": f"client {number}"} | dict(table)
    where = f"[[client]] {stated['name']!r}"
    if "bandwidth" in stated:
        both = stated.pop("bandwidth")
        settings_of(ClientKind)["upload"].read(both, f"{where} bandwidth: ")
        for link in _LINKS:
            if link in stated:
                raise ParameterError(
                    f"{where} states bandwidth and {link}: give bandwidth, or both directions"
                )
            stated[link] = both
    if isinstance(stated.get("profile"), str):
        stated["profile"] = str(folder / stated["profile"])
    return read_settings(ClientKind, stated, where)
