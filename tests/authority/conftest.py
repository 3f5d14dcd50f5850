"""A folder for stores, and what makes their disk fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from authority.store_cases import begun

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def cheap_passphrases():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shieldfl.authority.authority_secrets._SCRYPT_COST", 2**4)
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    """An authority's."""
    with begun(path) as store:
        yield store


@pytest.fixture
def folder(tmp_path):
    """In memory where that can be: thousands of transactions, of which none has to outlive this machine."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and Linux")
    library = tmp_path_factory.mktemp("faults") / "disk_faults.so"
    source = HERE / "disk_faults.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    return str(library)
