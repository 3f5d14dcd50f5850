"""``shieldfl run --help`` lists the methods, those of other packages among them, and imports none."""

from __future__ import annotations

import sys
from importlib import invalidate_caches
from pathlib import Path

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from shieldfl.cli.app import app
from shieldfl.cli.run.method_list import method_lines
from shieldfl.methods import discovery
from shieldfl.methods.discovery import BUILT_IN, GROUP, named_method

_STATED = """
raise ImportError("nobody is to import this")
class Stated:
    names = (NamedMethod("stated", sends="every second value", purpose="half the bytes", source="none"),)
"""


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with one method that says in plain words what it is, and one whose words are computed."""
    package = tmp_path / "other_methods"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('nobody is to import this')")
    (package / "stated.py").write_text(_STATED)
    (package / "computed.py").write_text("class Computed:\n    names = (NamedMethod('computed', *TEXTS),)\n")
    metadata = tmp_path / "other_methods-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-methods\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{GROUP}]\nstated = other_methods.stated:Stated\ncomputed = other_methods.computed:Computed\n"
        "gone = no_such_package:Gone\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(discovery, "_offers", discovery._offers.__wrapped__)
    invalidate_caches()


def test_a_line_says_what_the_class_says():
    pytest.importorskip("opacus")
    said = {name: named_method(name) for name in BUILT_IN}
    lines = method_lines()
    assert {name: lines[name] for name in BUILT_IN} == {
        name: f"{one.purpose}: {one.sends}" for name, one in said.items()
    }


def test_methods_of_other_packages_are_told_without_importing_them(offered: None):
    lines = method_lines()
    assert lines["stated"] == "half the bytes: every second value (of the package other-methods)"
    assert lines["computed"] == lines["gone"] == "of the package other-methods"
    assert "other_methods" not in sys.modules


def test_help_has_a_line_for_each_method(offered: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["run", "--help"])
    assert result.exit_code == 0
    lines = [line.strip("│ ") for line in result.stdout.splitlines()]
    assert max(map(len, result.stdout.splitlines())) <= 80
    for name, line in method_lines().items():
        (listed,) = (one for one in lines if one.split()[:1] == [name])
        shown = listed.removeprefix(name).strip().removesuffix("…").strip()
        assert shown, name
        assert line.startswith(shown)
