"""What a served authority logs: a line of JSON for each event, and one for many that are alike."""

from __future__ import annotations

import json
import logging
import time

__all__ = ["FewAlike", "LogLines"]

_WINDOW_SECONDS = 10.0
_MOST_ALIKE = 10
"""Refusals and errors of one kind, in a window."""


class LogLines(logging.Formatter):
    """A line of JSON for each event: its time, in seconds since 1970, what happened, and what goes with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class FewAlike(logging.Filter):
    """Lets ten refusals or errors of a kind through in ten seconds; the next one then says how many it left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}
        """By kind, when its window began, and how many there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is logged."""
        fields = getattr(record, "fields", {})
        if record.levelno < logging.WARNING and fields.get("result", "ok") == "ok":
            return True
        # Whose words these are the peer does not choose: so there are few kinds.
        kind = (record.name, record.msg, *map(fields.get, ("call", "result", "reason")))
        now = time.monotonic()
        begun, count = self._seen.get(kind, (now, 0))
        if now - begun > _WINDOW_SECONDS:
            if count > _MOST_ALIKE:
                record.fields = {**fields, "left_out_before": count - _MOST_ALIKE}
            begun, count = now, 0
        self._seen[kind] = begun, count + 1
        return count < _MOST_ALIKE
