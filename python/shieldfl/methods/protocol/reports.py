"""What a role tells of its part in a run, as data: what became readable, what a reader must know, where its time went.

Roles share nothing that changes: whoever keeps a run's account (:class:`~shieldfl.methods.protocol.account.Account`)
takes their reports, a round's in any order but for a key authority's, which comes after those of the clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shieldfl.privacy.events import PrivacyEvent
from shieldfl.profiling.stages import StageClock

__all__ = ["Note", "Report", "Reporter", "Tally"]


@dataclass(frozen=True)
class Note:
    """A remark for whoever reads the results; said twice, it stands there once."""

    text: str
    subject: str | None = None
    """A later note on the same subject takes its place; None where there is no other."""


@dataclass(frozen=True)
class Tally:
    """That so many of so many were affected: those of all roles and rounds are one remark, once there is one at all."""

    affected: int
    counted: int
    what: str
    """What the remark says of them, after "3 of 1,024"."""


@dataclass(frozen=True)
class Report:
    """What a role has to tell since its last report."""

    events: tuple[PrivacyEvent, ...] = ()
    """What has left it, or was opened by it, in that order."""
    notes: tuple[Note | Tally, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage."""


class Reporter:
    """A role's side: what it has not reported yet."""

    def __init__(self) -> None:
        self.clock = StageClock()
        self._events: list[PrivacyEvent] = []
        self._notes: list[Note | Tally] = []

    def report(self) -> Report:
        """Return what there is to tell since the last report."""
        events, self._events = self._events, []
        notes, self._notes = self._notes, []
        return Report(tuple(events), tuple(notes), self.clock.take())

    def pending(self) -> tuple[int, int]:
        """Say how much the next report tells already."""
        return len(self._events), len(self._notes)

    def take_back(self, pending: tuple[int, int]) -> None:
        """Tell no more than at that time: what came since has not happened."""
        events, notes = pending
        del self._events[events:]
        del self._notes[notes:]

    def record(self, event: PrivacyEvent) -> None:
        """Have the next report tell that something became readable, or was opened."""
        self._events.append(event)

    def note(self, note: Note | Tally) -> None:
        """Have the next report tell a remark."""
        self._notes.append(note)
