"""Key files that somebody damaged or made up: each is refused by name, whatever is wrong with it."""

from __future__ import annotations

import base64
import json
import random

import pytest

from shieldfl.authority import authority_secrets
from shieldfl.authority.authority_secrets import Contents, read_key_file, write_key_file
from shieldfl.authority.total_opener import WEIGHT_BOUNDS
from shieldfl.errors import KeyMismatchError, WireFormatError

MAGIC = b"shieldfl key file 1\n"
DIGEST = "ab" * 32


@pytest.fixture
def path(tmp_path):
    opened = {0: DIGEST, 12: DIGEST}
    contents = Contents(b"some key", 3, True, opened, bytearray(b"secret"), 7, (0.25, 1.0))
    write_key_file(tmp_path / "key", "pass", contents)
    return tmp_path / "key"


def test_what_was_written_is_read_by_who_has_the_passphrase(path):
    found = read_key_file(path, "pass")
    assert (found.public_key, found.min_clients, found.one_total_per_round) == (b"some key", 3, True)
    assert (found.opened, found.secret) == ({0: DIGEST, 12: DIGEST}, b"secret")
    assert (found.opened_coefficients, found.weight_bounds) == (7, (0.25, 1.0))
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyMismatchError, match="wrong passphrase"):
        read_key_file(path, "another")


def test_one_from_before_coefficients_were_counted_and_weights_bounded_is_read(path):
    salt, nonce = bytes(16), bytes(12)
    header = {
        "salt": salt.hex(),
        "nonce": nonce.hex(),
        "public_key": base64.b64encode(b"some key").decode(),
        "min_clients": 3,
        "one_total_per_round": True,
        "opened": {},
    }
    head = MAGIC + json.dumps(header).encode() + b"\n"
    path.write_bytes(head + authority_secrets.passphrase_cipher("pass", salt).encrypt(nonce, b"secret", head))
    found = read_key_file(path, "pass")
    assert (found.secret, found.opened_coefficients, found.weight_bounds) == (b"secret", 0, WEIGHT_BOUNDS)


@pytest.mark.parametrize(
    "header",
    [b"[" * 200_000, b'{"salt":' * 50_000, b"\xff\xfe", b"{} {}", b"[]", b"3", b"{}", b'{"salt": 1, "nonce": 2}',
     b'{"salt": "00", "nonce": "00"}', b'{"salt": "zz", "nonce": "00"}'],
)  # fmt: skip
def test_what_is_no_header_is_refused(path, header):
    path.write_bytes(MAGIC + header + b"\n" + bytes(64))
    with pytest.raises(WireFormatError, match="is a damaged key file"):
        read_key_file(path, "pass")


def test_thousands_of_mutations_are_refused_and_so_is_each_beginning(path):
    draw, whole = random.Random(1), path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    for _ in range(1000):
        data, place = bytearray(whole), draw.randrange(len(whole))
        match draw.randrange(3):
            case 0:
                data[place] ^= 1 << draw.randrange(8)
            case 1:
                del data[place : place + draw.randrange(1, 9)]
            case _:
                data[place:place] = draw.choice([b"{", b"[", b'"', b"\n", b"1e999", b"NaN", b",", b"\0"])
        damaged.append(bytes(data))
    refused = {WireFormatError: 0, KeyMismatchError: 0}
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(tuple(refused)) as error:
            read_key_file(path, "pass")
        refused[error.type] += 1
    assert min(refused.values()) > 100


def test_what_is_too_long_is_refused_before_it_is_parsed(path, monkeypatch):
    monkeypatch.setattr(authority_secrets, "_MOST_BYTES", path.stat().st_size - 1)
    with pytest.raises(WireFormatError, match="is not a shieldfl key file"):
        read_key_file(path, "pass")
