"""What roles report of a round, and a run's sums: privacy spent, remarks, seconds by stage."""

from __future__ import annotations

import hmac
import math
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import msgspec

from shieldfl.array_view import Buffer
from shieldfl.authority.role_state import pack_state, unpack_state
from shieldfl.build_info import require
from shieldfl.errors import (
    DataError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    ShieldError,
    WireFormatError,
)
from shieldfl.learning.local_update import StageClock
from shieldfl.masks import Mask
from shieldfl.privacy.book import PrivacyBook, PrivacySpent
from shieldfl.privacy.events import (
    ClientsDrawn,
    DataRelease,
    Noise,
    OpenedSum,
    PrivacyEvent,
    ReadSum,
    SummedUploads,
)
from shieldfl.stateful import (
    changed,
    decode_record,
    encode_record,
    refuse_unless,
    revived,
    take_changed,
)


@dataclass(frozen=True)
class Disclosure:
    """Which of a model's P parameters left a client, and how they were protected.

    The three masks have P positions and are disjoint; parameters in none of them stayed with the client.
    """

    encrypted: Mask
    noised: Mask
    clear: Mask
    parts: tuple[str, ...] = ()
    """Names of further message parts that depend on the client's data and are unprotected, such as a mask."""
    buffers: Literal["local", "encrypted", "noised", "clear"] = "local"
    synthetic: bool = False
    """Whether the values come from training on synthetic data alone.

    They then tell no more than those data and the model that training started from.
    """
    noise: Noise | None = None
    """Noise of the noised values that is charged; None if there is none, or if no proof covers it."""
    encrypts_noised: bool = False
    """Whether encrypted parameters have ``noise`` too or, if that is None, a share of their sum's noise."""

    @classmethod
    def of_nothing(cls, size: int) -> Disclosure:
        nothing = Mask.empty(size)
        return cls(nothing, nothing, nothing)

    @classmethod
    def of_zone(
        cls,
        zone: Mask,
        size: int,
        *,
        rest: Literal["local", "noised", "clear"] = "clear",
        parts: tuple[str, ...] = (),
        synthetic: bool = False,
        noise: Noise | None = None,
    ) -> Disclosure:
        """State an update of ``size`` parameters and then buffers, which count as encrypted if all are."""
        encrypted, nothing = zone.resized(size), Mask.empty(size)
        all_buffers = zone.count - encrypted.count == zone.size - size
        return cls(
            encrypted,
            ~encrypted if rest == "noised" else nothing,
            ~encrypted if rest == "clear" else nothing,
            parts,
            "encrypted" if all_buffers else rest,
            synthetic,
            noise,
            encrypts_noised=noise is not None,
        )

    @property
    def kept(self) -> Mask:
        return ~(self.encrypted | self.noised | self.clear)

    def is_of(self, size: int) -> bool:
        masks = (self.encrypted, self.noised, self.clear)
        if any(one.size != size for one in masks):
            return False
        return sum(one.count for one in masks) == (self.encrypted | self.noised | self.clear).count

    def shares(self) -> dict[str, float]:
        """Return parameters' shares, in sum 1, by what was done with them (see RoundRecord.zone_shares)."""
        size = self.encrypted.size
        encrypted, noised, clear = self.encrypted.count, self.noised.count, self.clear.count
        counts = {
            "encrypted": encrypted,
            "personalised": size - encrypted - noised - clear,
            "noise": noised,
            "clear": clear,
        }
        return {name: count / size for name, count in counts.items()}


@dataclass(frozen=True)
class Note:
    """A remark for readers of the results; a repeated one appears once."""

    text: str
    subject: str | None = None
    """Subject of the note; a later note on it replaces this one. None if no other note does."""
    round: int = 0
    """Round of the note. A late note of an earlier round replaces no other."""
    counts: tuple[int, int] | None = None
    """Numbers of affected ones and of all. Roles and rounds are added up, as "3 of 1,024" before the text."""


@dataclass(frozen=True)
class Report:
    events: tuple[PrivacyEvent, ...] = ()
    """Events of what left the role, or was opened by it, in order of time."""
    notes: tuple[Note, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(PrivacyEvent)}
_KINDS = {
    kind.__name__: kind
    for kind in (*_EVENTS.values(), Note)
    if kind not in (ClientsDrawn, DataRelease)  # which no role tells, but who draws and who releases
}


def named(told: Iterable[PrivacyEvent | Note]) -> list[tuple[str, Any]]:
    return [(type(one).__name__, one) for one in told]


def told_of(named: Iterable[tuple[str, Any]], kinds: Mapping[str, Any] = _EVENTS) -> list[Any]:
    """Return the events and notes that :func:`named` was given, from plain data.

    Raises WireFormatError for an unknown kind.
    """
    try:
        return [msgspec.convert(fields, type=kinds[kind]) for kind, fields in named]
    except (KeyError, msgspec.MsgspecError, ParameterError) as error:
        raise WireFormatError("a state holds an event of no known kind") from error


class Reporter:
    """Base of roles: what was not reported yet, and a state from which a new object continues.

    A state holds what the object has changed since it was made. To restore it, first make an object of the
    same role from the same public set-up. A state is as secret as what the role holds, and cannot tell that
    it is old. Keep only the newest, and write it down before you send what a step returned. A client that
    returns to an older state and trains anew answers a round twice, with other data. A key authority that
    returns to one opens a second total of a round.
    """

    changes: ClassVar[Mapping[str, object]] = {"_untold": list[tuple[str, Any]]}

    needs_sealing: bool = False
    """Whether a state holds secret keys, so that it is only given sealed under a key."""
    opened_event: ClassVar[type[OpenedSum] | type[ReadSum] | None] = None
    """Event that the role records when it opens a sum; None if the authority records it, for all clients."""

    def __init__(self) -> None:
        self.clock = StageClock()
        self._lock = threading.RLock()
        self._owner: bytes | None = None
        self._positions = 0
        self._events: list[PrivacyEvent] = []
        self._notes: list[Note] = []

    def report(self) -> Report:
        with self._lock:
            events, self._events = self._events, []
            notes, self._notes = self._notes, []
            return Report(tuple(events), tuple(notes), self.clock.take())

    @property
    def _untold(self) -> list[tuple[str, Any]]:
        return named((*self._events, *self._notes))

    @_untold.setter
    def _untold(self, untold: list[tuple[str, Any]]) -> None:
        told = told_of(untold, _KINDS)
        self._notes = [one for one in told if isinstance(one, Note)]
        self._events = [one for one in told if not isinstance(one, Note)]

    def changed(self) -> dict[str, Any]:
        return changed(self)

    def take_changed(self, record: Mapping[str, Any]) -> None:
        take_changed(self, record)

    def _check_untold(self, rounds: int, clients: Collection[int]) -> None:
        for event in self._events:
            number = getattr(event, "round", None)
            refuse_unless(number is None or 1 <= number <= rounds)
            refuse_unless(getattr(event, "client", None) in (None, *clients))
            refuse_unless(not isinstance(event, SummedUploads) or 1 <= event.clients <= len(clients))
        for note in self._notes:
            refuse_unless(note.counts is None or 0 <= note.counts[0] <= note.counts[1])

    def bind(
        self, setup_digest: bytes, role: str, positions: int, shared_secret: bytes | None = None
    ) -> None:
        """Bind the object's states to set-up and role; no mask in a state is of more than ``positions``."""
        self._positions = positions
        self._owner = setup_digest + hmac.digest(shared_secret or b"", role.encode(), "sha256")

    def state(self, key: bytes | None = None) -> bytes:
        """Return what has changed since the object was made; ``key``, 32 random bytes, seals it."""
        if self.needs_sealing and key is None:
            raise PolicyError("the state holds secret keys: pass a key to seal it with")
        with self._lock:
            return self._packed(key)

    def _packed(self, key: bytes | None) -> bytes:
        record = encode_record(self.changed(), self.clock.seconds())
        try:
            return pack_state(self._bound(), record, key)
        finally:
            record[:] = bytes(len(record))

    def restore(self, state: Buffer, key: bytes | None = None) -> None:
        """Continue from a state that an object of the same set-up, role, index and weights gave.

        Raises KeyMismatchError, WireFormatError, ParameterError for a missing or needless key. Then nothing
        has changed.
        """
        with self._lock:
            content = unpack_state(self._bound(), state, key)
            try:
                other, seconds = self._revived(content)
                refuse_unless(all(0.0 <= spent < math.inf for spent in seconds.values()))
            except (WireFormatError, KeyMismatchError, DataError):
                raise
            except ShieldError as error:
                raise WireFormatError("the state holds values that no step of this role leaves") from error
            self.__dict__.update(other.__dict__)
            self.clock.take()
            self.clock.add(seconds)

    def go_on_from(self, other: Reporter) -> None:
        """Take over what another object of this kind changed, of any owner; do not use that object again."""
        with self._lock:
            record = encode_record(other.changed(), {})
            try:
                again, _ = self._revived(bytes(record))
            finally:
                record[:] = bytes(len(record))
            self.__dict__.update(again.__dict__)

    def _revived(self, content: Buffer) -> tuple[Reporter, dict[str, float]]:
        masks = partial(Mask.from_bytes, most_positions=self._positions)
        record, seconds = decode_record(content, self, {Mask: masks})
        return revived(self, record, type(self).take_changed), seconds

    def _bound(self) -> bytes:
        if self._owner is None:
            raise PolicyError("the role belongs to no set-up: make it by a method, or bind it")
        return self._owner

    def pending(self) -> tuple[int, int]:
        return len(self._events), len(self._notes)

    def remarks_after(self, count: int) -> tuple[Note, ...]:
        return tuple(self._notes[count:])

    def take_back(self, pending: tuple[int, int]) -> None:
        events, notes = pending
        del self._events[events:]
        del self._notes[notes:]

    def record(self, event: PrivacyEvent) -> None:
        self._events.append(event)

    def note(self, note: Note) -> None:
        self._notes.append(note)

    def check_list(self, round_number: int, clients: Iterable[int]) -> None:
        """Raise PolicyError for a total of clients that were not invited: only the authority checks it."""


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

    ``per_draw`` is the noise that every client is charged for each draw of clients; None if only uploads are
    charged. ``target_epsilon`` is the most that all noise may be charged.
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
        """Count a draw of clients out of ``drawn_from``, also one that was too small and is repeated.

        Raises PolicyError, and counts nothing, if a target epsilon would be exceeded.
        """
        draw = ClientsDrawn(participants, self._per_draw, drawn_from)
        if self._target_epsilon is not None:
            done = self.spent().rounds
            # Uploads of rounds that nobody told of count, too: the one that comes is beyond them.
            untold = done + 1 - sum(isinstance(event, ClientsDrawn) for event in self.book.all)
            ahead = PrivacyBook([*self.book.all, *[draw] * untold])
            if ahead.spent(self.delta).of_noise > self._target_epsilon:
                raise PolicyError(
                    f"the privacy budget of epsilon = {self._target_epsilon:g} is spent after {done} draws: "
                    "no further round is started"
                )
        self.book.add(draw)

    def charge_release(self, noise_multiplier: float) -> None:
        self.book.add(DataRelease(Noise(noise_multiplier, "sample")))

    def note_given_synthetic_data(self) -> None:
        self.note(
            "synthetic data were given: they spend no epsilon here; what they tell of the data that they "
            "were made from is for their maker to account for"
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
        """Continue from the state of another account that was made with the same arguments.

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
