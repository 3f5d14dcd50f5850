"""What ``shieldfl run`` is asked to say of a run, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shieldfl.simulation.report.paper_figures import PaperFigure

__all__ = ["Output"]


@dataclass(frozen=True)
class Output:
    """Where figures are written, and which of them are printed."""

    json_file: Path | None = None
    report: Path | None = None
    """Folder of the page."""
    all_figures: bool = False
    audit: bool = False
    """Whether attacks follow the run."""
    papers: tuple[PaperFigure, ...] = ()
    """What was published of such runs: ours are printed beside them."""
