"""``shieldfl run --help`` lists the methods, those of other packages among them."""

from __future__ import annotations

from importlib import invalidate_caches
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("opacus")
from typer.testing import CliRunner

from shieldfl.cli.app import app
from shieldfl.methods import discovery
from shieldfl.methods.discovery import BUILT_IN, GROUP, named_method


def test_help_has_a_line_for_each_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also for one that cannot be loaded, which says why."""
    metadata = tmp_path / "other_methods-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-methods\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\ngone = no_such_package:Gone\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(discovery, "_offers", discovery._offers.__wrapped__)
    invalidate_caches()
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["run", "--help"])
    assert result.exit_code == 0
    lines = [line.strip("│ ") for line in result.stdout.splitlines()]
    assert max(map(len, result.stdout.splitlines())) <= 80
    said = {name: f"{one.purpose}: {one.sends}" for name in BUILT_IN for one in [named_method(name)]}
    for name, line in (said | {"gone": "the method 'gone', no_such_package:Gone of other-methods"}).items():
        (listed,) = (one for one in lines if one.split()[:1] == [name])
        shown = listed.removeprefix(name).strip().removesuffix("…").strip()
        assert shown, name
        assert shown.startswith(line[: len(shown)])
