"""What measures a table's rows: a module for each kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.settings import refuse_unknown

__all__ = ["KINDS", "Kind", "Measured", "check_keys", "kind_named"]

Measured = dict[str, float]
"""Figures of one row by name."""

KINDS = {
    "accounting": "epsilon by the noise multiplier, without training",
    "ciphertexts": "bytes and seconds of ciphertexts",
    "federation": "a run of one method, as shieldfl.run makes it",
    "label-attack": "labels that an attack counts in what an aggregator got",
    "label-distributions": "distances between clients' labels",
    "selection": "what one client's selection encrypts, and what that leaves to read",
}
"""By name, which is the module's with dashes."""


@dataclass(frozen=True)
class Kind:
    """How rows are measured: a module with ``FIGURES``, ``check`` and ``measure``, some with ``SOURCES``."""

    name: str
    figures: tuple[str, ...]
    check: Callable[[Mapping[str, Any]], None]
    """Raises ParameterError for settings that a row cannot be measured with."""
    measure: Callable[[Mapping[str, Any]], Measured]
    """Measures a row by its settings."""
    sources: tuple[Path, ...]
    """Files beside the package that decide what it measures."""


def kind_named(name: str) -> Kind:
    """Return a kind. Raises ParameterError for an unknown one."""
    if name not in KINDS:
        raise ParameterError(f"unknown kind {name!r}: choose one of {', '.join(KINDS)}")
    module = importlib.import_module(f"papers.kinds.{name.replace('-', '_')}")
    sources = Path(str(module.__file__)), *getattr(module, "SOURCES", ())
    return Kind(name, tuple(module.FIGURES), module.check, module.measure, sources)


def check_keys(
    settings: Mapping[str, Any], known: Iterable[str], kind: str, needed: Iterable[str] | None = None
) -> None:
    """Raise ParameterError for settings that a kind does not have, or without those that it needs: None for all."""
    known = tuple(known)
    refuse_unknown(settings, known, kind)
    lacking = [key for key in (known if needed is None else needed) if key not in settings]
    if lacking:
        raise ParameterError(f"{kind} lacks {', '.join(lacking)}")
