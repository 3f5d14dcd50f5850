"""In an authority's store: what it has said of a round beside sums, its first message and one reply for each phase."""

from __future__ import annotations

from typing import NamedTuple

from shieldfl.errors import PolicyError
from shieldfl.roles.store_journal import Journal, Row
from shieldfl.roles.store_records import DIGEST_BYTES, SESSION_BYTES, as_bytes, as_number, checked_purpose

__all__ = ["KeptMessage", "check_replies_are_known", "keep_message", "row_of_message"]


class KeptMessage(NamedTuple):
    """Which message it is: a round's first one, or the reply to a phase. A journal has a row of each that has left."""

    session: bytes
    round: int
    phase: str | None = None
    """None for the round's first message."""

    @property
    def kind(self) -> str:
        """Of the journal's row."""
        return "begin" if self.phase is None else "reply"

    def checked(self) -> KeptMessage:
        """Return it as the journal takes it. Raises ParameterError."""
        phase = None if self.phase is None else checked_purpose(self.phase)
        session = as_bytes(self.session, SESSION_BYTES, "session")
        return KeptMessage(session, as_number(self.round, "round_number"), phase)

    def __str__(self) -> str:
        if self.phase is None:
            return (
                f"round {self.round} was begun with another first message: begin it as it was, or a later one"
            )
        return f"phase {self.phase!r} of round {self.round} came to another reply: ask with the message that had that"


def row_of_message(journal: Journal, message: KeptMessage) -> Row | None:
    """Return the row of a message; None where it was not kept."""
    select = "SELECT * FROM journal WHERE session = ? AND kind = ? AND round = ? AND purpose IS ?"
    place = (message.session, message.kind, message.round, message.phase)
    found = journal.connection.execute(select, place).fetchone()
    return None if found is None else Row(*found)


def keep_message(journal: Journal, message: KeptMessage, digest: bytes) -> None:
    """Write which message it is, unless that was written. Raises PolicyError where it was another one."""
    as_bytes(digest, DIGEST_BYTES, "digest")
    row = row_of_message(journal, message)
    if row is None:
        session, round_number, phase = message
        journal.append(message.kind, session, round_number=round_number, purpose=phase, digest=digest)
    elif row.digest != digest:
        raise PolicyError(str(message))


def check_replies_are_known(journal: Journal, message: KeptMessage, known: int) -> None:
    """Raise PolicyError unless all replies are known that come before a message.

    ``known`` is the number of a row: whoever asks has all replies up to that in its state.
    """
    # By the number alone (a plus keeps the others from choosing an index): rows that are not known are few.
    select = """SELECT number, round FROM journal
        WHERE +session = ? AND +kind = 'reply' AND number > ? ORDER BY number"""
    unknown = journal.connection.execute(select, (message.session, known)).fetchall()
    if message.phase is None:
        # To be asked for again, they need their own round.
        waits = any(round_number < message.round for _, round_number in unknown)
    else:
        own = row_of_message(journal, message)
        waits = bool(unknown) and (own is None or own.number > unknown[0][0])
    if waits:
        raise PolicyError(
            f"the store has {len(unknown)} reply(s) that did not come into the state that this authority goes on from: "
            "pass the same requests on again, in their order, or restore the newest state"
        )
