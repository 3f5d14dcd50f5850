"""What a run has come to, by its roles' reports: privacy spent, remarks, seconds by stage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.protocol.reports import Note, Report, Tally
from shieldfl.privacy.events import DataRelease, Noise, PrivacyEvents, PrivacySpent
from shieldfl.profiling.stages import StageClock

__all__ = ["Account"]


class Account:
    """Adds up reports; it never looks at a role. What noise costs is for methods that have some: see :meth:`_of_noise`.

    Parameters
    ----------
    notes : what is known before the first round.
    delta : what an epsilon belongs to; NaN for a method without noise.
    """

    def __init__(self, notes: Iterable[str] = (), delta: float = math.nan) -> None:
        self.events = PrivacyEvents()
        """What has left the clients, and what was opened."""
        self.clock = StageClock()
        """Seconds that were reported, and those that whoever drives the rounds adds."""
        self.delta = delta
        self._draws = 0
        self._remarks: dict[str, str] = {}
        self._tallies: dict[str, tuple[int, int]] = {}
        for text in notes:
            self.note(text)

    @property
    def rounds(self) -> int:
        """How many have been charged: draws of clients."""
        return self._draws

    @property
    def notes(self) -> list[str]:
        """What a reader of the results must know."""
        return list(self._remarks.values())

    def take(self, report: Report) -> None:
        """Add what a role tells."""
        for event in report.events:
            self.events.add(event)
        for note in report.notes:
            self._add_note(note)
        self.clock.add(report.seconds)

    def note(self, text: str) -> None:
        """Add a remark of whoever drives the rounds."""
        self._add_note(Note(text))

    def _add_note(self, note: Note | Tally) -> None:
        if isinstance(note, Note):
            self._remarks[note.subject or note.text] = note.text
            return
        affected, counted = self._tallies.get(note.what, (0, 0))
        affected, counted = affected + note.affected, counted + note.counted
        self._tallies[note.what] = affected, counted
        if affected:
            self._remarks[note.what] = f"{affected:,} of {counted:,} {note.what}"

    def charge_draw(self, participants: int) -> None:
        """Count a draw of clients, also one that was too small and is drawn again."""
        self._draws += 1

    def charge_release(self, noise_multiplier: float) -> None:
        """Count the release, with this multiplier, of what synthetic data were made from."""
        self.events.add(DataRelease(Noise(noise_multiplier, "sample")))

    def spent(self) -> PrivacySpent:
        """Return what the rounds so far have spent. Raises ParameterError for an epsilon without a delta."""
        of_noise, if_participants_true = self._of_noise()
        if not math.isnan(of_noise) and math.isnan(self.delta):
            raise ParameterError("an epsilon needs its delta: give the account one")
        return self.events.spent(of_noise, if_participants_true, self.delta, self.rounds)

    def _of_noise(self) -> tuple[float, float]:
        """Return what the noise alone was charged, and what if the stated numbers of participants were true; or NaN."""
        return math.nan, math.nan

    def settings(self) -> dict[str, Any]:
        """Return what was charged, as plain data for reports."""
        return {}
