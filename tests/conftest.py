"""What all tests share: folders of data and of temporary files, torch threads, no width of output, no limits of time.

And a process that starts others which need not import torch, see :mod:`warm_python`. What is imported and collected
before the first test lives to the end: it is left out of collections of garbage.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from files_in_memory import memory_folder
from left_out import note_left_out
from warm_python import WarmPython, warm_python

# No test may depend on how busy the machine is.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# Where pytest makes the folders that it gives to tests, unless told otherwise.
if (_memory := memory_folder()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_memory))

# Until all tests are collected: half a million objects, none of them garbage.
gc.disable()


def _case(item: pytest.Function) -> str:
    return item.name.removeprefix(item.originalname)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the cases that ``every_run`` does not name to `make check`."""
    named = item.get_closest_marker("every_run")
    if named and not any(part in _case(item) for part in named.args):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a part of ``every_run`` that is in no case's name, or in those of slow ones alone."""
    if any("::" in argument for argument in config.args):
        return  # not all cases are here
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("every_run"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, cases in tests.items():
        run = [_case(item) for item in cases if not item.get_closest_marker("slow")]
        for part in cases[0].get_closest_marker("every_run").args:
            if not any(part in case for case in run):
                raise pytest.UsageError(f"{test}: no case that is always run has {part!r} in its name")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage again, among what tests make; also where other processes have collected them."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Note what was left out, where the Makefile asks for it."""
    path = os.environ.get("SHIELDFL_LEFT_OUT")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:  # which has a summary that nobody sees
        note_left_out(terminalreporter.stats.get("skipped", ()), Path(path))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data sets; tests that need it are skipped where it is not set."""
    folder = os.environ.get("SHIELDFL_DATA")
    if not folder:
        pytest.skip("SHIELDFL_DATA is not set: this test needs the real data sets")
    if not Path(folder).is_dir():
        pytest.fail(f"SHIELDFL_DATA names {folder}, which is no folder")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def _no_stated_columns() -> Iterator[None]:
    """Forget the width that workers are told, so that what is printed into a pipe has the width of a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    """Keep torch at one thread, so that results do not depend on the machine and tests can run side by side."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


@pytest.fixture(scope="session", name="warm_python")
def _warm_python() -> Iterator[WarmPython]:
    """What starts processes that have imported torch and the command line already."""
    with warm_python() as warm:
        yield warm
