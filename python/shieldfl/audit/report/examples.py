"""Recovered images beside the client's own and beside others that look alike, as a page shows them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from shieldfl.audit.report.reading import AttackTable, above_chance, figure_text, others_text, word
from shieldfl.audit.result import AuditResult, Cell, Example
from shieldfl.reporting.pixel_images import render_row
from shieldfl.reporting.report_page import data_uri
from shieldfl.simulation.report.findings import joined

__all__ = ["ShownExample", "ShownRow", "shown_examples"]

_PIXELS_A_GAP = 16
"""An image has one pixel of the gap to the next for so many of its own."""


@dataclass(frozen=True)
class ShownRow:
    """Images side by side."""

    label: str
    png: str
    """A data URI."""


@dataclass(frozen=True)
class ShownExample:
    """Images of one method that an attack recovered for one party, below each other with what they are held against."""

    method: str
    caption: str
    word: str
    colour: str
    images: int
    """In each row."""
    rows: tuple[ShownRow, ...]


def shown_examples(result: AuditResult, table: AttackTable) -> list[ShownExample]:
    """Return for each method the images of the party for whom the attack got most; methods without any are left out."""
    shown = []
    for method in table.methods:
        cells = [cell for cell in table.of_method(method) if cell.example is not None]
        if not cells:
            continue
        best = max(cells, key=above_chance)
        example = best.example
        assert example is not None, "those without one are left out"
        rows = _rows(example)
        if rows:
            alike = [cell.party for cell in cells if cell.example is example]
            colour = table.colours[method, best.party]
            caption = _caption(best, alike)
            shown.append(ShownExample(method, caption, word(result, best), colour, len(example.true), rows))
    return shown


def _caption(cell: Cell, parties: list[str]) -> str:
    figures = ", ".join(filter(None, [f"{cell.measured_by} {figure_text(cell)}", others_text(cell)]))
    return f"{joined(parties)}: {cell.form}; {figures}, n={cell.tries}"


def _rows(example: Example) -> tuple[ShownRow, ...]:
    """Return the rows of an example, none where its samples are no images."""
    rows = []
    for label, images in (
        ("recovered", example.recovered),
        ("the client's", example.true),
        ("nearest public", example.neighbour),
    ):
        pixels = _pixels(images, example.value_range)
        if pixels is None:
            return ()
        gap = -(-pixels.shape[2] // _PIXELS_A_GAP)
        rows.append(ShownRow(label, data_uri(render_row(pixels, gap))))
    return tuple(rows)


def _pixels(images: torch.Tensor, value_range: tuple[float, float]) -> NDArray[np.uint8] | None:
    """Return samples as uint8 (k, height, width, 3): what lies outside the range, or is no number, as its ends.

    Samples are (height, width), (1, height, width) or (3, height, width); of any other shape None is returned.
    """
    low, high = value_range
    values = images.detach().cpu().unsqueeze(1) if images.ndim == 3 else images.detach().cpu()
    if values.ndim != 4 or values.shape[1] not in (1, 3) or not values.numel() or not high > low:
        return None
    shares = ((values - low) / (high - low)).nan_to_num(nan=0.0, posinf=1.0, neginf=0.0).clamp(0.0, 1.0)
    coloured = shares.expand(-1, 3, -1, -1).permute(0, 2, 3, 1)
    pixels: NDArray[np.uint8] = (coloured * 255.0).round().to(torch.uint8).numpy()
    return pixels
