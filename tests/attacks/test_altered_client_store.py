"""Whoever can write a client's file, without its key, wants a second frame of a round, or its key of before."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import shieldfl as sf
from authority.client_store_cases import begun, encrypt, kept, opened
from authority.enrolled_session import PARAMETERS
from shieldfl.errors import KeyMismatchError, WireFormatError

TABLES = ("head", "journal", "keys", "enrolments", "frames")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store in which everything has happened."""
    path = tmp_path_factory.mktemp("whole") / "store"
    authority = sf.KeyAuthority(PARAMETERS)
    with begun(path) as store:
        encrypt(store, 1)
        encrypt(store, 2)
        encrypt(store, 2, part=1)
        (request,) = store.enrol(authority.public_key, "clinic")
        authority.accept(request)
        store.enrol(sf.KeyAuthority(PARAMETERS).public_key, "clinic")
        store.take_grant(authority.public_key, authority.grant("clinic"))
        store.close_round(authority.public_key, 6)
    return path


@pytest.mark.parametrize("table", TABLES)
def test_no_value_can_be_changed_and_no_row_removed(whole, tmp_path, table):
    with closing(sqlite3.connect(whole)) as database:
        columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
        rows = database.execute(f"SELECT * FROM {table}").fetchall()
    statements = []
    for row in rows:
        where = "WHERE " + " AND ".join(f"{column} IS ?" for column in columns)
        statements.append((f"DELETE FROM {table} {where}", row))
        for column, value in zip(columns, row, strict=True):
            for other in {
                bytes: lambda value: (
                    [bytes([value[0] ^ 1]) + value[1:], value[:-1], b"", None]
                    if value
                    else [b"\0", b"text", 0, None]
                ),
                int: lambda value: [value + 1, value - 1, None],
                str: lambda value: [value + " ", None],
                type(None): lambda value: [0, b""],
            }[type(value)](value):
                statements.append((f"UPDATE {table} SET {column} = ? {where}", (other, *row)))
    refused, path = 0, tmp_path / "store"
    for statement, values in statements:
        shutil.copy(whole, path)
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA synchronous=OFF")
            try:
                with database:
                    changed = database.execute(statement, values).rowcount
            except sqlite3.IntegrityError:
                continue
        if changed:
            with pytest.raises((WireFormatError, KeyMismatchError)):
                opened(path)
            refused += 1
    assert refused > 2 * len(rows) > 0


def test_a_key_that_has_gone_on_does_not_come_back(tmp_path):
    path, before = tmp_path / "store", tmp_path / "before"
    with begun(path) as store:
        encrypt(store, 1)
    shutil.copy(path, before)
    with opened(path) as store:
        encrypt(store, 2)
    for table in ("keys", "frames"):
        altered = shutil.copy(path, tmp_path / table)
        with closing(sqlite3.connect(altered, isolation_level=None)) as database:
            database.execute("ATTACH ? AS old", (str(before),))
            database.execute(f"REPLACE INTO {table} SELECT * FROM old.{table}")
        with pytest.raises(WireFormatError):
            opened(altered)


def test_lost_or_overwritten_bytes_give_an_error_or_the_same_frame(whole, tmp_path):
    half, random = 2048, np.random.default_rng(0)
    with opened(whole) as store:
        frame = kept(store, 2)
    content = whole.read_bytes()
    damaged = [content[:length] for length in range(0, len(content), half)]
    for start in range(0, len(content), half):
        damaged += [
            content[:start] + new + content[start + half :] for new in (bytes(half), random.bytes(half))
        ]
    refused = 0
    for number, data in enumerate(damaged):
        path = tmp_path / f"{number}"
        path.write_bytes(data)
        try:
            with opened(path) as store:
                assert kept(store, 2) == frame
        except (WireFormatError, KeyMismatchError):
            refused += 1
    assert refused > len(damaged) / 2


@pytest.mark.parametrize(
    "record",
    [
        pytest.param("87ecf7c79f00005c000000008b9ae3c0" + 47 * "00", id="a length over SQLite's limit"),
        pytest.param("ff00fb0037003b" + 52 * "00" + "471346bd", id="a name that is no text"),
    ],
)
def test_a_table_that_cannot_be_is_damage(whole, tmp_path, record):
    content, record = bytearray(whole.read_bytes()), bytes.fromhex(record)
    start = int.from_bytes(content[108:110], "big")  # of the first record of the first page
    content[start : start + len(record)] = record
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(WireFormatError, match="is damaged, or no store at all"):
        opened(path)
