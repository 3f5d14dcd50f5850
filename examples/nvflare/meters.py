"""What a round takes, at the same places whatever the protection: filters at a client, events at the server."""

from __future__ import annotations

import json
import time
from pathlib import Path

from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.fuel.utils import fobs
from nvflare.widgets.widget import Widget

_ROUND = "meters_round"
_begun: dict[str, float] = {}


def write_figure(folder: str | Path, site: str, what: str, round_number: int, value: float) -> None:
    """Add a figure to those of a site."""
    line = json.dumps({"site": site, "what": what, "round": round_number, "value": value})
    with (Path(folder) / f"{site}.jsonl").open("a") as file:
        file.write(line + "\n")


def read_figures(folder: Path) -> list[dict[str, object]]:
    """Return the figures of all sites."""
    return [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]


class Meter(Filter):
    """Stands before or after a chain of filters: measures their seconds, and in one round what travels, serialised.

    Parameters
    ----------
    chain : "open" or "encrypt", what is between the two meters.
    after : whether it stands behind the chain.
    figures : folder that figures are written to.
    sized_round : in which the bytes are counted that NVFlare's own serialisation makes: of what comes in before "open",
        and what goes out after "encrypt". It takes time itself, so seconds of this round do not count.
    """

    def __init__(self, chain: str, after: bool, figures: str, sized_round: int) -> None:
        super().__init__()
        self.chain = chain
        self.after = after
        self.figures = figures
        self.sized_round = sized_round

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Measure, and return what came."""
        now = time.perf_counter()
        site = fl_ctx.get_identity_name()
        if self.chain == "open":
            fl_ctx.set_prop(
                _ROUND, shareable.get_header(AppConstants.CURRENT_ROUND), private=True, sticky=True
            )
        round_number = fl_ctx.get_prop(_ROUND)
        if self.after:
            write_figure(self.figures, site, f"{self.chain} seconds", round_number, now - _begun[self.chain])
        if round_number == self.sized_round and self.after == (self.chain == "encrypt"):
            direction = "up" if self.after else "down"
            write_figure(self.figures, site, f"bytes {direction}", round_number, len(fobs.dumps(shareable)))
        if not self.after:
            _begun[self.chain] = time.perf_counter()
        return shareable


class RoundClock(Widget):
    """At the server: seconds of a round, and of adding and aggregating in it.

    Parameters
    ----------
    figures : folder that figures are written to.
    """

    _SPANS = (
        ("round", AppEventType.ROUND_STARTED, AppEventType.ROUND_DONE),
        ("add", AppEventType.BEFORE_CONTRIBUTION_ACCEPT, AppEventType.AFTER_CONTRIBUTION_ACCEPT),
        ("aggregate", AppEventType.BEFORE_AGGREGATION, AppEventType.AFTER_SHAREABLE_TO_LEARNABLE),
    )

    def __init__(self, figures: str) -> None:
        super().__init__()
        self.figures = figures
        self._begun: dict[str, float] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Take a span's begin, or write its seconds at its end."""
        for name, begin, end in self._SPANS:
            if event_type == begin:
                self._begun[name] = time.perf_counter()
            elif event_type == end:
                seconds = time.perf_counter() - self._begun[name]
                round_number = fl_ctx.get_prop(AppConstants.CURRENT_ROUND)
                write_figure(self.figures, "server", f"{name} seconds", round_number, seconds)
