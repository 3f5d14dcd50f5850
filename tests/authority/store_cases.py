"""An authority's store with a session and clients, lists of them, and what computes an answer that comes once."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from shieldfl.authority.authority_store import AuthorityStore, SessionRules, StoredKeys

KEY = bytes(range(32))
AUTHORITY = b"one authority, of thirty-two byte"[:32]
SESSION = b"sixteen bytes id"
CLIENTS = range(1, 9)
RULES = SessionRules(manifest_digest=b"m" * 32, min_clients=3, answers_kept=2)
KEPT_FOR_LONG = RULES._replace(answers_kept=10**6)
DIGEST = b"d" * 32


def key_of(client: int) -> bytes:
    return bytes([client]) * 32


def keys_of(clients, round_number: int = 0) -> StoredKeys:
    """Return keys of clients, which differ by the client."""
    return StoredKeys.joined([StoredKeys.of(client, round_number, key_of(client)) for client in clients])


def enrol(store: AuthorityStore, session: bytes, keys: StoredKeys, grants=None) -> None:
    store.enrol({session: keys}, {session: grants or {}})


def opened(path: Path, **options) -> AuthorityStore:
    return AuthorityStore(path, KEY, AUTHORITY, **options)


def begun(path: Path, rules: SessionRules = RULES) -> AuthorityStore:
    """Return a new store with a session in which all of CLIENTS are enrolled."""
    store = AuthorityStore.create(path, KEY, AUTHORITY)
    store.add_session(SESSION, rules)
    enrol(store, SESSION, keys_of(CLIENTS))
    return store


def listed(round_number: int, clients=CLIENTS, purpose: str = "update") -> list[tuple[int, bytes]]:
    """Return the list of a round: frame ids that differ by client, round and purpose."""
    return [(client, f"{purpose[:4]} {client:4} {round_number:6}".encode()) for client in clients]


def random_answer(keys):
    """Compute what nobody computes twice, and leave the keys where they are."""
    return os.urandom(24)


def never(keys):
    raise AssertionError("an answer was computed")


def ask(store, round_number, compute=random_answer, *, clients=CLIENTS, purpose="update", digest=DIGEST):
    participants = listed(round_number, clients, purpose)
    return store.answer(SESSION, round_number, purpose, participants, digest, compute)


def sealed_rows(path: Path, where: str) -> list[bytes]:
    """Return the sealed contents of some of a store's records."""
    with closing(sqlite3.connect(path)) as database:
        return [one for (one,) in database.execute(f"SELECT sealed FROM records WHERE {where}")]


def parts_left(sealed: list[bytes], path: Path, length: int = 24) -> tuple[int, int]:
    """Return into how many parts sealed contents fall, which may lie on several pages, and how many a file has."""
    content = path.read_bytes()
    parts = [one[start : start + length] for one in sealed for start in range(0, len(one) - length, length)]
    return len(parts), sum(part in content for part in parts)


def moved_to(round_number: int, answer: bytes = b""):
    """Return what moves keys to this round, of which those before are not to be had, and answers."""

    def move(keys):
        behind = keys.rounds < round_number
        keys.rounds[behind] = round_number
        keys.secrets[behind] = keys.secrets[behind, ::-1]
        return answer

    return move
