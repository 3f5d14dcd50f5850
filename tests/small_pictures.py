"""Pictures of a ninth of the dots, for tests of what is in them and where they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from shieldfl.reporting import figure_style

__all__ = ["small_pictures"]

_DOTS_AN_INCH = 54


@contextlib.contextmanager
def small_pictures() -> Iterator[None]:
    """Within it, pictures are drawn with fewer dots; their layout in inches stays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure_style, "_DOTS_AN_INCH", _DOTS_AN_INCH)
        yield
