"""``bench/lattice_estimates.py`` as a module."""

from __future__ import annotations

import functools
import importlib.util
import sys
from types import ModuleType

import pytest

from documentation_pages import ROOT

SCRIPT = ROOT / "bench" / "lattice_estimates.py"


@functools.cache
def lattice_estimates() -> ModuleType:
    """Load the script; skip the test where what it prints with is not installed."""
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    spec = importlib.util.spec_from_file_location("lattice_estimates", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
