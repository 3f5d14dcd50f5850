"""Pictures of a ninth of the dots, for tests of what is in them and where they are; and one alone for all of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from shieldfl.lab.report import page

__all__ = ["ONE_PICTURE", "one_picture", "small_pictures"]

_DOTS_AN_INCH = 54
ONE_PICTURE = f"""
from shieldfl.lab.report import page, run_report
page._DOTS_AN_INCH, run_report.PLOTS = {_DOTS_AN_INCH}, run_report.PLOTS[:1]
"""
"""What a process of its own begins with, for reports as within :func:`one_picture`."""


@contextlib.contextmanager
def small_pictures() -> Iterator[None]:
    """Within it, pictures are drawn with fewer dots; their layout in inches stays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_DOTS_AN_INCH", _DOTS_AN_INCH)
        yield


@contextlib.contextmanager
def one_picture() -> Iterator[None]:
    """Within it, a report of a run has the first of its pictures alone, and a small one: they take longest of it."""
    from shieldfl.lab.report import run_report

    with small_pictures(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_report, "PLOTS", run_report.PLOTS[:1])
        yield
