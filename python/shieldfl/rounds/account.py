"""What a run has come to, by its roles' reports: privacy spent, remarks, seconds by stage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from shieldfl.build_info import require
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.learning.local_update import StageClock
from shieldfl.privacy.book import PrivacyBook, PrivacySpent
from shieldfl.privacy.events import ClientsDrawn, DataRelease, Noise
from shieldfl.rounds.reports import Note, Report, named, told_of

_State = msgspec.defstruct(
    "_State",
    [
        ("told", list[tuple[str, Any]]),
        ("remarks", dict[str, str]),
        ("rounds_of_remarks", dict[str, int]),
        ("tallies", dict[str, tuple[int, int]]),
        ("seconds", dict[str, float]),
    ],
)


class Account:
    """Adds up reports.

    ``per_draw`` is what every client is charged for each draw of clients, None where what they send is
    charged alone; ``target_epsilon`` what the noise may be charged in all.
    """

    def __init__(
        self,
        notes: Iterable[str] = (),
        delta: float = math.nan,
        *,
        per_draw: Noise | None = None,
        target_epsilon: float | None = None,
    ) -> None:
        self.delta = delta
        if not math.isnan(delta):
            # Missing it is told before anything runs.
            require("dp_accounting")
        self.book = PrivacyBook()
        self.clock = StageClock()
        self._per_draw = per_draw
        self._target_epsilon = target_epsilon
        self._remarks: dict[str, str] = {}
        self._rounds_of_remarks: dict[str, int] = {}
        self._tallies: dict[str, tuple[int, int]] = {}
        for text in notes:
            self.note(text)

    @property
    def notes(self) -> list[str]:
        return list(self._remarks.values())

    def take(self, report: Report) -> None:
        for event in report.events:
            self.book.add(event)
        for note in report.notes:
            self._add_note(note)
        self.clock.add(report.seconds)

    def note(self, text: str) -> None:
        self._add_note(Note(text))

    def _add_note(self, note: Note) -> None:
        subject = note.subject or note.text
        if note.counts is not None:
            before = self._tallies.get(subject, (0, 0))
            affected, counted = before[0] + note.counts[0], before[1] + note.counts[1]
            self._tallies[subject] = affected, counted
            if affected:
                self._remarks[subject] = f"{affected:,} of {counted:,} {note.text}"
        elif note.round >= self._rounds_of_remarks.get(subject, 0):
            self._rounds_of_remarks[subject] = note.round
            self._remarks[subject] = note.text

    def charge_draw(self, participants: int, drawn_from: int | None = None) -> None:
        """Count a draw of clients, of ``drawn_from``, also one that was too small and is drawn again.

        Raises PolicyError, and counts nothing, when a target epsilon would be exceeded.
        """
        draw = ClientsDrawn(participants, self._per_draw, drawn_from)
        if self._target_epsilon is not None:
            done = self.spent().rounds
            # Uploads of rounds that nobody told of count, too: the one that comes is beyond them.
            untold = done + 1 - sum(isinstance(event, ClientsDrawn) for event in self.book.all)
            ahead = PrivacyBook([*self.book.all, *[draw] * untold])
            if ahead.spent(self.delta).of_noise > self._target_epsilon:
                raise PolicyError(
                    f"the privacy budget of epsilon = {self._target_epsilon:g} is spent after {done} draws: no "
                    "further round is started"
                )
        self.book.add(draw)

    def charge_release(self, noise_multiplier: float) -> None:
        self.book.add(DataRelease(Noise(noise_multiplier, "sample")))

    def note_given_synthetic_data(self) -> None:
        self.note(
            "synthetic data were given: they spend no epsilon here; what they tell of the data that they were made "
            "from is for their maker to account for"
        )

    def spent(self) -> PrivacySpent:
        return self.book.spent(self.delta)

    def settings(self) -> dict[str, Any]:
        if math.isnan(self.delta):
            return {}
        spent = self.spent()
        return {
            "delta": self.delta,
            "epsilon_of_what_was_charged": spent.of_noise,
            "most_steps_charged_to_a_client": spent.steps,
        }

    def state(self) -> bytes:
        return msgspec.msgpack.encode(
            _State(
                named(self.book.all),
                self._remarks,
                self._rounds_of_remarks,
                self._tallies,
                self.clock.seconds(),
            )
        )

    def restore(self, state: bytes | memoryview) -> None:
        """Go on where another account, made with the same arguments, stood.

        Raises WireFormatError, ParameterError.
        """
        try:
            found: Any = msgspec.msgpack.decode(state, type=_State)
        except msgspec.MsgspecError as error:
            raise WireFormatError("these bytes are no account that this version can read") from error
        self.book = PrivacyBook(told_of(found.told))
        self._remarks, self._rounds_of_remarks = found.remarks, found.rounds_of_remarks
        self._tallies = found.tallies
        self.clock.take()
        self.clock.add(found.seconds)
