"""Nothing is executed of the folder that the package is called in, which others may have written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.piece import Processes
from shieldfl.methods.registry import MethodSettings

EXECUTED = "executed"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: it has modules of the names that new processes import first, and they leave a trace."""
    here = tmp_path / "of others"
    here.mkdir()
    for name in ("json", "multiprocessing"):
        (here / f"{name}.py").write_text(f"open({str(here / EXECUTED)!r}, 'w').close()\n")
    monkeypatch.chdir(here)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return here


@pytest.mark.slow  # torch and a data set are read
def test_processes_of_an_audit(folder):
    begun = Processes(1, (AuditConfig(), ("ilrg",), ("aggregator",), MethodSettings()))
    try:
        assert begun.idle[0][1].result()
    finally:
        begun.stop()
    assert not (folder / EXECUTED).exists()
    assert "PYTHONSAFEPATH" not in os.environ


def test_processes_that_a_command_starts(folder, tmp_path):
    script = tmp_path / "command.py"
    script.write_text(
        "import sys\nfrom multiprocessing import get_context\nfrom shieldfl.cli.main import main\n"
        "if __name__ == '__main__':\n    sys.argv[1:] = ['--version']\n    try:\n        main()\n"
        "    except SystemExit:\n        pass\n"
        "    process = get_context('spawn').Process(target=print, args=('it began',))\n"
        "    process.start()\n    process.join()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert not (folder / EXECUTED).exists()
    assert done.stdout.endswith("it began\n"), done.stderr
