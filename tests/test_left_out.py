"""What `make test` leaves out is said, with the reason, and is there in `make check`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.report.headless_browser import open_browser

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_what_needs_a_browser_is_left_out_where_there_is_none_and_fails_where_it_must_be_there(
    monkeypatch, tmp_path, required, outcome
):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("SHIELDFL_REQUIRE_BROWSER", required)
    with pytest.raises(outcome, match="apt install chromium"), open_browser(tmp_path):
        pass


def test_a_failed_step_says_what_repeats_it_and_another_says_nothing():
    def step(command: str) -> subprocess.CompletedProcess[str]:
        words = [ROOT / ".ci" / "quietly", "Installing it", "part", "sh", "-c", command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    done = step("echo WARNING: ignored; echo more >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Installing it\n", "")
    done = step("echo no index; exit 3")
    said = "shieldfl: a step failed for the reason above: Installing it. Repeat it by: make part\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "Installing it\n", f"no index\n{said}")
