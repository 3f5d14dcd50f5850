"""Fleet files: which clients there are, in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shieldfl.errors import DataError, ParameterError
from shieldfl.fleet.fleet import INSTRUCTION_SETS, Aggregator, ClientKind, Fleet, Model, Training
from shieldfl.fleet.units import as_bytes_per_second, as_count, as_number, as_seconds

__all__ = ["load_fleet", "parse_fleet"]

Reader = Callable[[Any, str], Any]


def _share(value: Any, what: str) -> float:
    return as_number(value, what, above=0.0, most=1.0)


def _probability(value: Any, what: str) -> float:
    return as_number(value, what, least=0.0, most=1.0)


def _positive(value: Any, what: str) -> float:
    return as_number(value, what, above=0.0)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"{what} must be a text that is not empty")
    return value


def _instruction_set(value: Any, what: str) -> str:
    if value not in INSTRUCTION_SETS:
        raise ParameterError(f"{what} must be one of {', '.join(INSTRUCTION_SETS)}, not {value!r}")
    return str(value)


_MODEL: dict[str, Reader] = {
    "name": _text,
    "parameters": as_count,
    "train_core_seconds_per_sample": _positive,
}
_TRAINING: dict[str, Reader] = {"local_epochs": as_count, "min_clients": as_count}
_AGGREGATOR: dict[str, Reader] = {"cores": _positive}
_CLIENT: dict[str, Reader] = {
    "name": _text,
    "count": as_count,
    "cluster": _text,
    "cores": _positive,
    "cpu_share": _share,
    "core_speed": _positive,
    "bandwidth": as_bytes_per_second,
    "upload": as_bytes_per_second,
    "download": as_bytes_per_second,
    "latency": as_seconds,
    "samples": as_count,
    "dropout": _probability,
    "idle": as_seconds,
    "simd": _instruction_set,
    "profile": _text,
}
_FIELD_OF = {
    "upload": "upload_bytes_per_second",
    "download": "download_bytes_per_second",
    "latency": "latency_seconds",
    "dropout": "dropout_probability",
    "idle": "idle_seconds",
}
_SECTIONS = ("name", "model", "training", "aggregator", "client")


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet file; the name of the file is the fleet's where it states none.

    Raises DataError for a file that cannot be read, ParameterError as :func:`parse_fleet`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the fleet file {path} cannot be read: give the path of a TOML file") from error
    return parse_fleet(text, Path(path).stem, Path(path).parent)


def parse_fleet(text: str, default_name: str = "fleet", folder: Path | None = None) -> Fleet:
    """Make a fleet of the text of a fleet file.

    ``[model]`` has ``parameters`` and may have ``name`` and ``train_core_seconds_per_sample``; ``[training]`` may
    have ``local_epochs`` and ``min_clients``; ``[aggregator]`` may have ``cores``. Each ``[[client]]`` has ``cores``,
    ``samples`` and ``bandwidth``, or ``upload`` and ``download``, and may have ``name``, ``count``, ``cluster``,
    ``cpu_share``, ``core_speed``, ``latency``, ``dropout``, ``idle``, ``simd`` and ``profile``, a path relative to
    ``folder``: see :class:`shieldfl.fleet.fleet.ClientKind`.

    Raises ParameterError that names the client, the key and what is allowed: for text that is not TOML, unknown or
    missing keys, unknown units, numbers out of range and a fleet without clients.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"the fleet file is not valid TOML: {error}") from None
    _refuse_unknown(document, _SECTIONS, "the fleet file")
    tables = document.get("client", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ParameterError("clients are written as [[client]], with two brackets")
    if not tables:
        raise ParameterError("the fleet has no clients: add a [[client]] table for each kind")
    return Fleet(
        name=_text(document.get("name", default_name), "name"),
        model=_section(document, "model", _MODEL, Model, ("parameters",)),
        training=_section(document, "training", _TRAINING, Training),
        aggregator=_section(document, "aggregator", _AGGREGATOR, Aggregator),
        kinds=tuple(_client(table, number, folder or Path()) for number, table in enumerate(tables, start=1)),
    )


def _section(
    document: Mapping[str, Any],
    name: str,
    readers: Mapping[str, Reader],
    make: Callable[..., Any],
    needed: tuple[str, ...] = (),
) -> Any:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ParameterError(f"{name} must be a table: write [{name}]")
    return make(**_read(table, readers, needed, f"[{name}]"))


def _client(table: Mapping[str, Any], number: int, folder: Path) -> ClientKind:
    stated = table.get("name")
    name = stated if isinstance(stated, str) and stated.strip() else f"client {number}"
    where = f"[[client]] {name!r}"
    links = ("upload", "download")
    needed = ("cores", "samples", *(("bandwidth",) if "bandwidth" in table else links))
    values = _read(table, _CLIENT, needed, where)
    if "bandwidth" in values:
        both = values.pop("bandwidth")
        for link in links:
            if link in values:
                raise ParameterError(
                    f"{where} states bandwidth and {link}: give bandwidth, or both directions"
                )
            values[link] = both
    values.setdefault("name", name)
    if "profile" in values:
        values["profile"] = str(folder / values["profile"])
    return ClientKind(**{_FIELD_OF.get(key, key): value for key, value in values.items()})


def _read(
    table: Mapping[str, Any], readers: Mapping[str, Reader], needed: tuple[str, ...], where: str
) -> dict[str, Any]:
    _refuse_unknown(table, readers, where)
    for key in needed:
        if key not in table:
            raise ParameterError(f"{where} lacks {key}")
    return {key: readers[key](value, f"{where} {key}") for key, value in table.items()}


def _refuse_unknown(table: Mapping[str, Any], known: Any, where: str) -> None:
    for key in table:
        if key not in known:
            raise ParameterError(f"{where} has the unknown key {key!r}: use {', '.join(known)}")
