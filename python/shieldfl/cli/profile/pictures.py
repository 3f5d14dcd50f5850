"""The single pictures of ``shieldfl profile simulate``: their options, and drawing them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from shieldfl.fleet.simulate.fleet_simulation import FleetSimulation

__all__ = ["PictureFiles", "picture_option"]


def picture_option(text: str) -> Any:
    """Return an option that takes the name of a PNG file; None draws nothing."""
    return typer.Option(
        metavar="FILE.png", callback=_checked_picture, rich_help_panel="Pictures", help=text, dir_okay=False
    )


def _checked_picture(path: Path | None) -> Path | None:
    """Refuse a folder that does not exist, and a name that promises another format, before the work is done."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}")
    if path is not None and path.suffix.lower() != ".png":
        raise typer.BadParameter("pictures are PNG files: give a name that ends in .png")
    return path


@dataclass(frozen=True)
class PictureFiles:
    """Where each picture goes; None for one that nobody asked for."""

    gantt: Path | None
    straggler_index: Path | None
    round_times: Path | None

    def check(self, fleets: int, schemes: int) -> None:
        """Refuse pictures that show one fleet or scheme where there are several."""
        if fleets > 1 and (self.gantt or self.straggler_index):
            raise typer.BadParameter(
                "--gantt and --straggler-index draw one fleet: give one file, or --report"
            )
        if schemes > 1 and (self.gantt or self.round_times):
            raise typer.BadParameter(
                "--gantt and --round-times draw one scheme: give --scheme NAME, or --report"
            )

    def draw(self, simulation: FleetSimulation) -> None:
        """Write the pictures. Raises OSError."""
        from shieldfl.fleet.report import pictures

        first, scheme = simulation.fleets[0], simulation.schemes[0]
        if self.gantt is not None:
            pictures.write_png(pictures.draw_gantt(first.runs[scheme]), self.gantt)
        if self.straggler_index is not None:
            indices = simulation.straggler_indices(first.fleet)
            pictures.write_png(pictures.draw_straggler_index(indices), self.straggler_index)
        if self.round_times is not None:
            names = [one.fleet.name for one in simulation.fleets]
            figure = pictures.draw_round_times(names, simulation.round_seconds(scheme))
            pictures.write_png(figure, self.round_times)
