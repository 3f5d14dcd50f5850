"""Which code measured: what results are kept under, and the commit and machine that pages name."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import copyfile

__all__ = ["ROOT", "code_digest", "commit"]

ROOT = Path(__file__).resolve().parents[2]
CODE = ("python/shieldfl", "cpp")
"""What every figure is measured by."""


def _git(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@cache
def _trees() -> str:
    """Return the trees of the code as it lies there, changes that are not committed included; "" without git."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder) / "index"
            kept = Path(_git("rev-parse", "--git-path", "index"))
            copyfile(ROOT / kept, index)
            _git("add", "--all", "--", *CODE, GIT_INDEX_FILE=str(index))
            tree = _git("write-tree", GIT_INDEX_FILE=str(index))
        return " ".join(_git("rev-parse", f"{tree}:{path}") for path in CODE)
    except (OSError, subprocess.CalledProcessError):
        return ""


def code_digest(*sources: Path) -> str | None:
    """Return what results of a kind are kept under: git's trees of the code, and the kind's own files.

    None where git does not know the code, so that nothing can be said to be the same.
    """
    if not _trees():
        return None
    own = [sha256(source.read_bytes()).hexdigest() for source in sources]
    return sha256(" ".join([_trees(), *own]).encode()).hexdigest()


@cache
def commit() -> str:
    """Return the commit that is checked out, and whether the code differs from it."""
    if not _trees():
        return "unknown"
    same = _trees() == " ".join(_git("rev-parse", f"HEAD:{path}") for path in CODE)
    return _git("rev-parse", "--short=7", "HEAD") + ("" if same else ", changed")
