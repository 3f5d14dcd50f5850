"""The report of a run: its figures as JSON, plots as PNG, and one page that holds everything."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from shieldfl.errors import ParameterError
from shieldfl.simulation.plots import DARK, LIGHT, PLOTS, render_png
from shieldfl.simulation.quantities import accuracy_text, bytes_text, epsilon_text, seconds_text, share_text
from shieldfl.simulation.results import STAGES, RunResult
from shieldfl.simulation.summary import ZONES, describe_run, summarise

__all__ = ["write_report"]

_TEMPLATE = Path(__file__).with_name("report_page.html.j2")


@dataclass(frozen=True)
class _Picture:
    """A plot as the page shows it: for a light and for a dark screen."""

    title: str
    explanation: str
    light: str
    dark: str


def write_report(result: RunResult, directory: str | Path) -> list[Path]:
    """Write ``result.json``, the plots and ``index.html`` to a folder, which is made where it does not exist.

    Files of an earlier report are replaced. The page needs no other file and nothing from a network.
    Raises ParameterError for a result without a round, OSError.
    """
    if not result.methods or any(not method.rounds for method in result.methods):
        raise ParameterError("the run has no finished round: there is nothing to report")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "result.json"]
    written[0].write_text(json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    pictures = []
    for plot in PLOTS:
        light = render_png(plot.draw(result, LIGHT))
        dark = render_png(plot.draw(result, DARK))
        written.append(folder / f"{plot.name}.png")
        written[-1].write_bytes(light)
        pictures.append(_Picture(plot.title, plot.explanation, _data_uri(light), _data_uri(dark)))
    written.append(folder / "index.html")
    written[-1].write_text(_render_page(result, pictures), encoding="utf-8")
    return written


def _render_page(result: RunResult, pictures: list[_Picture]) -> str:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        accuracy=accuracy_text,
        bytes=bytes_text,
        epsilon=epsilon_text,
        seconds=seconds_text,
        share=share_text,
        setting=_setting_text,
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        headline=describe_run(result),
        result=result,
        sections=summarise(result),
        pictures=pictures,
        stages=STAGES,
        zones=ZONES,
    )


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _setting_text(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "∞" if math.isinf(value) else f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_setting_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_setting_text(item)}" for name, item in value.items())
    return str(value)
