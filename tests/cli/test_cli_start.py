"""The command line by itself: what to begin with, and completion in a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")
import typer
from typer.testing import CliRunner

from shieldfl.cli.app import app


def test_without_arguments_it_says_what_to_begin_with():
    result = CliRunner().invoke(app, [])
    said = result.stdout + result.stderr
    named = [line.strip(" │") for line in said.splitlines()]
    for command in ("shieldfl doctor ", "shieldfl run --rounds 2 "):
        assert any(line.startswith(command) for line in named)
    for command in ("run", "audit", "doctor", "inspect", "bench", "profile", "authority", "flower"):
        assert any(line.split()[:1] == [command] for line in named)


@pytest.mark.parametrize(
    ("typed", "meant"), [(["doctr"], "doctor"), (["profil"], "profile"), (["authority", "rotat"], "rotate")]
)
def test_a_command_that_is_mistyped_is_guessed(typed: list[str], meant: str):
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 2
    assert f"'{meant}'" in result.stderr


def test_every_command_is_where_it_is_imported_from():
    commands = dict(typer.main.get_command(app).commands)
    for group in ("profile", "authority", "flower"):
        commands |= {f"{group} {name}": one for name, one in commands.pop(group).commands.items()}
    assert len(commands) == 17
    for name, one in commands.items():
        assert one.name == name.split()[-1]
        assert one.help, name


def test_commands_can_be_added_replaced_and_taken_away_as_in_any_group():
    commands = typer.main.get_command(app).commands
    commands["try"] = commands["inspect"]
    del commands["doctor"]
    assert next(iter(commands)) == "run"
    assert {"try", "run"} <= set(commands)
    assert len(commands) == len([*commands])
    assert commands.get("doctor") is None


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The command as a file, whatever is installed."""
    path = tmp_path / "shieldfl"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shieldfl "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "offered"), [("shieldfl d", {"doctor"}), ("shieldfl authority r", {"revoke", "rotate"})]
)
def test_bash_completes_with_what_the_command_prints(command: Path, typed: str, offered: set[str]):
    # Otherwise the shell is told by the processes above this one.
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = f"""
eval "$('{command}' --show-completion bash)" || exit 1
complete -p shieldfl > /dev/null || exit 2
COMP_WORDS=({typed}) COMP_CWORD={len(typed.split()) - 1}
_shieldfl_completion '{command}'
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == offered
