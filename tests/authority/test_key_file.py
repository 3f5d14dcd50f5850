"""Key files that somebody damaged or made up: each is refused by name, whatever is wrong with it."""

from __future__ import annotations

import base64
import json
import random

import pytest

from shieldfl.authority import authority_secrets, private_file
from shieldfl.authority.total_opener import WEIGHT_BOUNDS
from shieldfl.errors import KeyMismatchError, WireFormatError

MAGIC = b"shieldfl key file 1\n"
DIGEST = "ab" * 32
HEADER = {
    "salt": "00" * 16,
    "nonce": "11" * 12,
    "public_key": base64.b64encode(b"some key").decode(),
    "min_clients": 3,
    "one_total_per_round": True,
    "weight_bounds": [0.25, 1.0],
    "opened_coefficients": 7,
    "opened": {"0": DIGEST, "12": DIGEST},
}
SEALED = bytes(64)


def file_of(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return MAGIC + text + b"\n" + SEALED


def refused(data: bytes) -> None:
    with pytest.raises(WireFormatError, match="the file is"):
        authority_secrets.parse_head(data, "the file")


def test_a_whole_one_is_read():
    contents = authority_secrets.parse_head(file_of(HEADER), "the file").contents
    assert (contents.min_clients, contents.one_total_per_round, contents.opened_coefficients) == (3, True, 7)
    assert contents.weight_bounds == (0.25, 1.0)
    assert contents.public_key == b"some key"
    assert contents.opened == {0: DIGEST, 12: DIGEST}


OPTIONAL = ("opened_coefficients", "weight_bounds")


def test_one_from_before_coefficients_were_counted_and_weights_bounded_is_read():
    older = {name: value for name, value in HEADER.items() if name not in OPTIONAL}
    contents = authority_secrets.parse_head(file_of(older), "the file").contents
    assert (contents.opened_coefficients, contents.weight_bounds) == (0, WEIGHT_BOUNDS)


@pytest.mark.parametrize(
    "bounds", ["[0.0, 1.0]", "[1.0, 0.5]", "[0.5]", "[0.5, NaN]", "[0.5, Infinity]", "[1, 1]"]
)
def test_what_bounds_no_weights_is_refused(bounds):
    refused(file_of(json.dumps(HEADER).encode().replace(b"[0.25, 1.0]", bounds.encode())))


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 200_000,
        b'{"salt":' * 50_000,
        b"\xff\xfe",
        b"{} {}",
        json.dumps(HEADER).encode()[:-1] + b', "min_clients": 1}',
        json.dumps(HEADER).encode().replace(b'"12"', b'"0"'),
        [],
        None,
        3,
        "text",
    ],
)
def test_what_is_no_header_is_refused(tmp_path, header):
    refused(file_of(header))
    (tmp_path / "k").write_bytes(file_of(header))
    with pytest.raises(WireFormatError):
        authority_secrets.read_key_file(tmp_path / "k", "pass")


NUMBERS = [None, True, False, 0, -1, 1.0, 2**64, 10**400]
VALUES = [*NUMBERS, "", "3", "zz", "é", [], [1], {}, {"a": "b"}, {"0": 5}, DIGEST]
RAW = [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1e3", b"9" * 5000, b'"\\ud800"']
FITTING = {
    "opened": [{}],
    "min_clients": [],
    "one_total_per_round": [True, False],
    "opened_coefficients": [0],
    "public_key": ["", DIGEST],
}


@pytest.mark.parametrize("name", HEADER)
def test_a_field_of_another_type_or_size_is_refused_and_so_is_a_missing_one(name):
    for value in VALUES:
        if any(value == fits and type(value) is type(fits) for fits in FITTING.get(name, [])):
            authority_secrets.parse_head(file_of(HEADER | {name: value}), "the file")
        else:
            refused(file_of(HEADER | {name: value}))
    for raw in RAW:
        refused(file_of(json.dumps(HEADER | {name: "HERE"}).encode().replace(b'"HERE"', raw)))
    if name not in OPTIONAL:
        refused(file_of({other: value for other, value in HEADER.items() if other != name}))


@pytest.mark.parametrize("number", ["-1", "01", " 1", "1_0", "", "x", "1" * 5000, str(2**64), "٣"])
def test_a_round_that_is_no_plain_number_is_refused(number):
    refused(file_of(HEADER | {"opened": {number: DIGEST}}))


def test_thousands_of_mutations_are_read_or_refused_and_nothing_else():
    draw = random.Random(1)
    whole = file_of(HEADER)
    outcomes = {True: 0, False: 0}
    for _ in range(5000):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    data[place] = draw.randrange(256)
                case 1:
                    del data[place : place + draw.randrange(1, 9)]
                case 2:
                    data[place:place] = draw.choice([b"{", b"[", b'"', b"\n", b"1e999", b"NaN", b",", b"\0"])
                case _:
                    data[place] ^= 1 << draw.randrange(8)
            if not data:
                break
        try:
            authority_secrets.parse_head(bytes(data), "the file")
            outcomes[True] += 1
        except WireFormatError:
            outcomes[False] += 1
    # What is sealed may be altered as it likes: that is for the passphrase to say.
    assert min(outcomes.values()) > 500


def test_what_is_too_long_or_too_short_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    whole = file_of(HEADER)
    for length in range(len(whole) - len(SEALED) + 15):
        refused(whole[:length])
    monkeypatch.setattr(authority_secrets, "_MOST_BYTES", len(whole))
    path = tmp_path / "k"
    path.write_bytes(whole + b"\0")
    with pytest.raises(WireFormatError):
        authority_secrets.read_key_file(path, "pass")
    monkeypatch.setattr(private_file, "_SCRYPT_COST", 2**4)
    path.write_bytes(whole)
    with pytest.raises(KeyMismatchError):
        authority_secrets.read_key_file(path, "pass")
