"""The settings of all methods, so that a run of several has one argument for them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from shieldfl.errors import ParameterError
from shieldfl.methods.discovery import named_method

__all__ = ["MethodSettings"]


class MethodSettings:
    """An entry for each method that has settings of its own; what is not given is the method's default.

    Parameters
    ----------
    entries : by method, hyphens of its name as underscores: ``MethodSettings(sense_crypt=SenseCryptSettings(...))``.
        Raises ParameterError for an unknown method, and for settings of another one.
    """

    def __init__(self, **entries: Any) -> None:
        self._entries: dict[str, Any] = {}
        for key, entry in entries.items():
            name = key.replace("_", "-")
            default = named_method(name).settings
            if default is None or type(entry) is not type(default):
                raise ParameterError(
                    f"{type(entry).__name__} is not what the settings of {name} are given by"
                )
            if entry != default:
                self._entries[name] = entry

    def __eq__(self, other: object) -> bool:
        """Say whether every method has the same settings."""
        return isinstance(other, MethodSettings) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def of(self, method: str) -> Any:
        """Return a method's entry; None for one without settings. Raises ParameterError for an unknown one."""
        return self._entries[method] if method in self._entries else named_method(method).settings

    def replaced(self, method: str, entry: Any) -> MethodSettings:
        """Return settings in which one method has this entry."""
        return MethodSettings(
            **{key.replace("-", "_"): one for key, one in {**self._entries, method: entry}.items()}
        )

    def changed(self, name: str, values: Mapping[str, Any]) -> MethodSettings:
        """Return settings in which some fields of one entry have other values.

        Lists and single values become tuples, and whole numbers floats, where the field's type says so: values can
        come from TOML.
        Raises ParameterError for an unknown method or field, a value of another type, and what the entry refuses.
        """
        entry = self.of(name)
        if entry is None:
            raise ParameterError(f"{name} has no settings")
        known = get_type_hints(type(entry))
        for key in values:
            if key not in known:
                raise ParameterError(f"{name} has no setting {key!r}: choose from {', '.join(known)}")
        fitted = {key: _fitted(f"{name}.{key}", value, known[key]) for key, value in values.items()}
        return self.replaced(name, replace(entry, **fitted))


def _fitted(what: str, value: Any, declared: Any) -> Any:
    """Return the value in the first type of the declared ones that it fits."""
    for kind in get_args(declared) if isinstance(declared, UnionType) else (declared,):
        with suppress(TypeError, OverflowError):
            return _as_type(value, kind)
    name = declared.__name__ if isinstance(declared, type) else str(declared)
    raise ParameterError(f"{what} must be of the type {name}, not {value!r}")


def _as_type(value: Any, kind: Any) -> Any:
    """Raise TypeError for a value of another type, OverflowError for a whole number that no float holds."""
    if get_origin(kind) is tuple:
        items = value if isinstance(value, list | tuple) else (value,)
        return tuple(_as_type(item, get_args(kind)[0]) for item in items)
    if kind is float and type(value) is int:
        return float(value)
    # Exactly: a bool is no int here.
    if type(value) is not kind:
        raise TypeError
    return value
