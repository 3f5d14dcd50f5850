"""What roles report of a round, and what a run comes to by that: privacy spent, remarks, seconds by stage."""

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
    """Which of a model's P parameters left a client, and protected how.

    The three masks are of P positions and disjoint; what is in none of them stayed with the client.
    """

    encrypted: Mask
    noised: Mask
    clear: Mask
    parts: tuple[str, ...] = ()
    """Names of further message parts that depend on the client's data and are unprotected, such as a mask."""
    buffers: Literal["local", "encrypted", "noised", "clear"] = "local"
    synthetic: bool = False
    """Whether the values come from training on synthetic data alone.

    They then tell no more than those data and the model that it began with.
    """
    noise: Noise | None = None
    """Of the noised values, the noise that is charged for; None for none, or where no proof covers it."""
    encrypts_noised: bool = False
    """Whether the encrypted parameters have that noise too; where it is None, a share of their sum's."""

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
    """A remark for whoever reads the results; said twice, it stands there once."""

    text: str
    subject: str | None = None
    """A later note on the same subject takes its place; None where there is no other."""
    round: int = 0
    """That it tells of: one of an earlier round, which comes late, takes nobody's place."""
    counts: tuple[int, int] | None = None
    """How many were affected, of how many: added up over roles and rounds, "3 of 1,024" before the text."""


@dataclass(frozen=True)
class Report:
    events: tuple[PrivacyEvent, ...] = ()
    """What has left it, or was opened by it, in that order."""
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
    """Return what :func:`named` was given, from plain data.

    Raises WireFormatError for what is of none of the kinds.
    """
    try:
        return [msgspec.convert(fields, type=kinds[kind]) for kind, fields in named]
    except (KeyError, msgspec.MsgspecError, ParameterError) as error:
        raise WireFormatError("a state holds an event that is of no kind") from error


class Reporter:
    """Base of roles: what was not reported yet, and a state with which a new object goes on in its place.

    A state holds what the object has changed since it was made; who restores it has made an object of the
    same role first, from the same public set-up. It is as secret as what the role holds. It cannot tell that
    it is an old one. Keep the newest alone, written down before what a step returned is sent: a client that
    goes back to an older one and trains anew answers a round twice, with other data, and a key authority that
    does opens a second total of one round.
    """

    changes: ClassVar[Mapping[str, object]] = {"_untold": list[tuple[str, Any]]}

    needs_sealing: bool = False
    """Whether a state holds secret keys, and is given under a key alone."""
    opened_event: ClassVar[type[OpenedSum] | type[ReadSum] | None] = None
    """What it tells where it opens a sum; None where the authority tells it, for all clients."""

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
        """Say whose states the object's are; no mask in a state has more than so many ``positions``."""
        self._positions = positions
        self._owner = setup_digest + hmac.digest(shared_secret or b"", role.encode(), "sha256")

    def state(self, key: bytes | None = None) -> bytes:
        """Return what has changed since the object was made; ``key``, 32 random bytes, seals it."""
        if self.needs_sealing and key is None:
            raise PolicyError("the state holds secret keys: pass a key to seal it with")
        with self._lock:
            return pack_state(self._bound(), encode_record(self.changed(), self.clock.seconds()), key)

    def restore(self, state: Buffer, key: bytes | None = None) -> None:
        """Go on where an object of the same set-up, role, index and weights gave this state.

        Raises KeyMismatchError, WireFormatError, ParameterError for a key that is missing or too many,
        DataError for an authority's store that is an old copy or in use. Then nothing has changed.
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
        """Take what another object of this kind changed, whoever's states it gives: it is not used again."""
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
        """Raise PolicyError for a total of clients that were not invited: the authority alone looks at it."""


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
