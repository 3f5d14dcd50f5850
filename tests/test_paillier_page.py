"""Figures of Paillier in docs/explanation/paillier.md and docs/reference/wire-format.md, compared with the core's."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc, prose_of, table_rows
from encryption.paillier_keys import authority_for

PAGE = "docs/explanation/paillier.md"
WIRE = doc("docs/reference/wire-format.md")


@pytest.fixture(scope="module")
def authority():
    return authority_for(sf.paillier.Parameters())


def test_table_of_sizes():
    rows = table_rows(doc(PAGE), "at the default 24 bits and 64 clients")
    assert [int(row[0].removesuffix(" bits")) for row in rows] == [2048, 3072, 4096]
    for row in rows:
        parameters = sf.paillier.Parameters(key_bits=int(row[0].removesuffix(" bits")))
        assert row[1] == str(parameters.values_per_ciphertext)
        assert row[2] == f"{parameters.bytes_per_value:.2f}"


def test_sizes_in_words():
    single = sf.paillier.Parameters(packing="single")
    assert f"{single.bytes_per_value:.0f} bytes for a value at the default key size" in prose_of(PAGE)
    assert f"`key_bits` is {single.key_bits} by default" in prose_of(PAGE)
    assert f"puts at {single.security_bits} bits" in prose_of(PAGE)
    weak = sf.paillier.Parameters(key_bits=2048)
    assert f"gives {weak.security_bits} bits" in prose_of(PAGE)


def test_public_key_frame(authority):
    frame = authority.public_key.to_bytes()
    section = WIRE.partition("## Paillier public key (kind 5)")[2]
    assert f"the frame takes {len(frame)} bytes" in section
    assert len(frame) == 48 + 16 + 2 * authority.public_key.parameters.key_bits // 8 + 4


def test_parameters_lie_where_the_page_says(authority):
    rows = table_rows(WIRE.partition("## Paillier parameters")[2], "offset")
    ends = [int(row[0]) + int(row[1]) for row in rows]
    assert [int(row[0]) for row in rows] == [0, *ends[:-1]]
    assert ends[-1] == 16
    body = authority.public_key.to_bytes()[48:]
    fields = {row[2]: int.from_bytes(body[int(row[0]) : int(row[0]) + int(row[1])], "little") for row in rows}
    assert fields == {
        "key_bits": 3072,
        "packing": 2,
        "randomiser": 1,
        "value_bits": 24,
        "fraction_bits": 20,
        "spare_bits": 40,
        "reserved": 0,
        "max_clients": 64,
        "max_weight": 1,
    }


def test_batch_frame_lies_where_the_page_says(authority):
    parameters = authority.public_key.parameters
    count = parameters.values_per_ciphertext + 1
    frame = sf.paillier.Encryptor(authority.public_key).encrypt(np.zeros(count), round=7).to_bytes()
    rows = table_rows(WIRE.partition("## Paillier batch (kind 6) and Paillier total (kind 7)")[2], "bytes")
    fixed = sum(int(row[0]) for row in rows if row[0].isdecimal())
    ciphertexts = 2
    assert len(frame) == 48 + fixed + 16 + ciphertexts * parameters.key_bits // 4 + 4
    body = frame[48:]
    assert int.from_bytes(body[16:24], "little") == 7
    assert int.from_bytes(body[40:48], "little") == count
    modulus = int.from_bytes(authority.public_key.to_bytes()[64:][: parameters.key_bits // 8], "big")
    residues = body[fixed + 16 : -4]
    size = parameters.key_bits // 4
    for first in range(0, len(residues), size):
        assert 0 < int.from_bytes(residues[first : first + size], "big") < modulus**2
