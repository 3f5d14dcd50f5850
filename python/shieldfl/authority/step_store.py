"""The memory of a node whose steps each run in their own process: sealed contents, and what was sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from shieldfl.authority.private_file import Kept
from shieldfl.authority.store import AT_PLACE, Place, Store, Transaction, decoded, encoded
from shieldfl.errors import PolicyError

UPDATE_OF_ANOTHER_ROUND = (
    "this update was trained in another round or run, too: two sums could tell it from the others'. "
    "Train further, or from another seed"
)
"""Message that refuses an update which another round or run has had."""


class StepStore(Store):
    """Keeps sealed contents of sessions by name, and the rounds in which something of an update was sent.

    A role's state contains its key ratchet, and one transaction writes the state and what leaves. An old copy
    could make a round's second frame: see :class:`~shieldfl.authority.store.Store`. Long contents are
    :class:`~shieldfl.authority.private_file.KeptFiles`. Only :meth:`keep` deletes them, so an old copy that
    is opened, and refused, has deleted nothing.
    """

    _kinds, _of_epoch = ("moved", "update"), ("kept",)
    _rewritten = ("moved", "kept")
    _owner = hashlib.sha256(b"shieldfl step store 1\0").digest()
    _nothing = "Nothing was kept, and no reply may leave"
    _why_uncopied = "holds a client's secrets and is neither copied nor pickled: open it where it is used"

    def kept(self, session: bytes) -> dict[str, bytes]:
        """Return the contents that a session kept last, by name. Raises WireFormatError, DataError."""
        with self._transaction() as change:
            files, found = self._kept_files, _kept(change, session)
            return {place.name: files.content(kept) for place, kept in found.items()}

    def keep(
        self,
        session: bytes,
        contents: Mapping[str, bytes],
        *,
        since: tuple[int, int],
        round_number: int = 0,
        update: bytes | None = None,
        repeats: bool = False,
    ) -> None:
        """Keep contents by name, in place of earlier ones.

        Parameters
        ----------
        since : the store's :attr:`position` when the contents that these derive from were read.
        round_number : the round of the contents.
        update : digest, 32 bytes, of the update that was trained in this round; None if none was.
        repeats : whether another round, of this session or another one, may have had the same update.

        Raises PolicyError if another process of this node kept something since then, and for an update that
        another round has had, unless ``repeats`` is set: the difference of two sums could be that update.
        Raises DataError for a disk that is full or fails, CapacityError for a content of 2 GiB. None of these
        keeps anything.
        """
        epoch, rows = since
        with self._transaction() as change:
            moved = Place("moved", session)
            has_moved = any(number > rows for _, number, _ in change.find(AT_PLACE, *moved))
            if has_moved or change.epoch != epoch or change.number < rows:
                raise PolicyError(
                    "another process of this node has kept newer contents since this one began: send the "
                    "message again"
                )
            if update is not None:
                _note_update(change, session, round_number, update, repeats=repeats)
            before, files = _files(change), self._kept_files
            files.delete_others(before)
            written: list[str] = []
            try:
                for name, content in contents.items():
                    kept = files.keep(content)
                    written.append(kept.file)
                    change.put(Place("kept", session, name=name), encoded(kept))
            except BaseException:
                # Not if the commit fails, since it may turn out to be done.
                files.delete({*written} - {""})
                raise
            change.put(moved, b"")
            replaced = before - _files(change)
        files.delete(replaced)


def _kept(change: Transaction, session: bytes | None = None) -> dict[Place, Kept]:
    """Return what the records of one session's contents hold, or of all sessions'."""
    of_session = "" if session is None else " AND session = ?"
    rows = change.find(f"kind = 'kept'{of_session}", *() if session is None else (session,))
    found = {place: decoded(content, Kept) for place, _, content in rows}
    change.check_none_missing({*change.known("kept", session)} - found.keys())
    return found


def _files(change: Transaction) -> set[str]:
    """Return the names of all files that the store has."""
    return {kept.file for kept in _kept(change).values()} - {""}


def _note_update(
    change: Transaction, session: bytes, round_number: int, update: bytes, *, repeats: bool
) -> None:
    """Record the round of an update, once. Raises PolicyError if another round has had the update."""
    place, own = Place("update", name=change.keys.mac("update", update).hex()), (session, round_number)
    found = change.get(place)
    places = [] if found is None else decoded(found, list[tuple[bytes, int]])
    if not repeats and any(one != own for one in places):
        raise PolicyError(UPDATE_OF_ANOTHER_ROUND)
    if own not in places:
        change.put(place, encoded([*places, own]))
