"""Whether all of a client's store is what its journal says: read as a whole whenever the file is opened."""

from __future__ import annotations

from shieldfl.roles.client_tables import read_enrolment, read_frame, read_key
from shieldfl.roles.store_journal import Journal, Row, refuse_altered

__all__ = ["check_client_store"]


def check_client_store(journal: Journal) -> None:
    """Verify the chain of the journal, then every other table against it. Raises WireFormatError that names the row."""
    replayed = _Replay(journal)
    for row in journal.rows():
        replayed.take(row)
    replayed.check_tables()


class _Replay:
    """Goes through the journal again, and keeps which row wrote last what the other tables have."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._keys: dict[bytes, Row] = {}
        self._enrolments: dict[bytes, Row] = {}
        self._frames: dict[int, Row] = {}

    def take(self, row: Row) -> None:
        match row.kind, row.session, row.round:
            case "enrol", bytes(session), int():
                self._keys[session] = self._enrolments[session] = row
            case "grant", bytes(session), None:
                self._enrolments[session] = row
            case "frame", bytes(session), int(round_number):
                self._keys[session] = row
                self._frames = {
                    number: one
                    for number, one in self._frames.items()
                    if one.session != session or (one.round or 0) >= round_number
                }
                self._frames[row.number] = row
            case "close", bytes(session), int():
                self._keys[session] = row
            case "restore", None, int():
                for one in (self._keys, self._enrolments, self._frames):
                    one.clear()
            case _:
                refuse_altered(
                    f"row {row.number} of the journal is of a kind that this version does not know"
                )

    def check_tables(self) -> None:
        """Check what has to be there once all rows were taken, and that there is nothing else."""
        self._check_keys()
        self._check_enrolments()
        self._check_frames()
        for left in (*self._keys.values(), *self._enrolments.values(), *self._frames.values()):
            refuse_altered(f"what row {left.number} of the journal wrote is missing")

    def _check_keys(self) -> None:
        select = "SELECT session, client, round, changed FROM keys"
        for session, client, round_number, changed in self._journal.connection.execute(select).fetchall():
            row = self._keys.pop(session, None)
            # A round that was ended leaves the key at the next one.
            stands = None if row is None else (row.round or 0) + (row.kind == "close")
            if row is None or (row.number, row.client, stands) != (changed, client, round_number):
                refuse_altered(f"the key of client {client} is not the one that the journal says")
            read_key(self._journal, session)

    def _check_enrolments(self) -> None:
        select = "SELECT session, number, kind, requests FROM enrolments"
        for session, number, kind, requests in self._journal.connection.execute(select).fetchall():
            row = self._enrolments.pop(session, None)
            if row is None or (row.number, row.kind) != (number, kind) or not isinstance(requests, bytes):
                refuse_altered(
                    f"what row {number} of the journal has of an enrolment is not what was written"
                )
            if read_enrolment(self._journal, session).digest != row.digest:
                refuse_altered(
                    f"what row {number} of the journal has of an enrolment is not what was written"
                )

    def _check_frames(self) -> None:
        select = "SELECT number, session, round, purpose FROM frames"
        for number, *found in self._journal.connection.execute(select).fetchall():
            row = self._frames.pop(number, None)
            if row is None or [row.session, row.round, row.purpose] != found:
                refuse_altered(f"there is a frame that row {number} of the journal has not, or no longer")
            read_frame(self._journal, *found)
