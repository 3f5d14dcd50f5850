"""Plans of one-time pads, and docs/explanation/pads.md's figures of the authority's work beside ``kahe``."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc, prose_of, table_rows
from encryption.enrolled_clients import total_of
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.registry import scheme_of

PAGE = doc("docs/explanation/pads.md")
PROSE = prose_of("docs/explanation/pads.md")
HEAD_BYTES, RING, BLOCKS = 132, 4096, 32
"""Of an answer; the default ring of kahe, and how many ciphertexts share a secret."""
DRAWN = 32 * RING / 3
"""Bytes of key stream for such a secret, on average."""


def answer_bytes(parameters, clients, count):
    """The length of a real answer to a total of so many clients and values."""
    scheme = scheme_of(parameters)
    public_key = scheme.PublicKey.of_session(parameters, bytes(32), bytes(16))
    keys = [scheme.ClientKey.of_secret(public_key, client, bytes([client]) * 32) for client in range(clients)]
    batches = [scheme.Encryptor(key, 1).encrypt(np.zeros(count, np.float32)) for key in keys]
    return len(sum_key(public_key, total_of(public_key, batches, threads=1).request(), keys, threads=1))


def secrets_of(settings, count):
    return math.ceil(count / (BLOCKS * sf.kahe.Parameters(**settings).values_per_ciphertext))


def kahe_answer_bytes(settings, count):
    bits = (2 * 42 * sf.kahe.Parameters(**settings).max_clients).bit_length()
    return HEAD_BYTES + secrets_of(settings, count) * RING * bits // 8


def blocks_of(settings, count):
    return math.ceil(count / sf.pads.Parameters(**settings).values_per_ciphertext)


def pads_answer_bytes(settings, count):
    facts = sf.pads.Parameters(**settings)._facts
    return HEAD_BYTES + blocks_of(settings, count) * facts["total_ciphertext_bytes"]


def key_stream_bytes(settings, count):
    """Of each client's pads: 1,024 words a block."""
    return blocks_of(settings, count) * 1024 * sf.pads.Parameters(**settings).pad_bytes


@pytest.mark.parametrize("count", [1, 1021, 1022, 10_000, 400_000])
@pytest.mark.parametrize(("clients", "value_bits"), [(2, 24), (7, 40)])
def test_answers_of_both_schemes_are_as_long_as_is_said(clients, value_bits, count):
    settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 4}
    parameters, other = sf.pads.Parameters(**settings), sf.kahe.Parameters(**settings)
    assert pads_answer_bytes(settings, count) == answer_bytes(parameters, clients, count)
    assert kahe_answer_bytes(settings, count) == answer_bytes(other, clients, count)
    # Of fewer clients it is shorter under kahe alone.
    assert answer_bytes(parameters, 1, count) == answer_bytes(parameters, clients, count)
    assert answer_bytes(other, 1, count) < answer_bytes(other, clients, count)


def test_wider_pads_take_an_authority_twice_as_long():
    narrow, wide = (sf.pads.Parameters(value_bits=bits, fraction_bits=4) for bits in (26, 27))
    assert (narrow.pad_bytes, wide.pad_bytes) == (4, 8)
    assert "4 bytes of key stream for each client and value" in narrow.describe()


def test_numbers_that_are_taken_from_the_core_are_the_core_s():
    assert f"kBlocksPerSecret = {BLOCKS};" in doc("cpp/kahe/parameters.h")
    assert "kMaxSample = 42;" in doc("cpp/kahe/frame_secret.h")
    assert sf.kahe.Parameters().ring_degree == RING


def test_a_fit_takes_what_a_plan_takes_and_there_is_no_ring_to_choose():
    sample = np.random.default_rng(4).normal(0.0, 1e-3, 1000)
    fit, plan = sf.pads.Parameters.fit, sf.pads.Parameters.plan
    fitted = fit(sample, count=1022)
    bits = {"value_bits": fitted.value_bits, "fraction_bits": fitted.fraction_bits}
    assert (
        fitted == fit(sample) == fit(sample, goal="size", count=5) == plan(**bits, count=1022) == plan(**bits)
    )
    for wrong, message in ({"count": 0}, "count"), ({"goal": "fast"}, "goal"), ({"goal": ""}, "goal"):
        for make in (plan, lambda **settings: fit(sample, **settings)):
            with pytest.raises(sf.ParameterError, match=message):
                make(**wrong)
    for scheme in (sf.pads, sf.kahe, sf.ckks, sf.paillier):
        assert "up to 2, 1 guard bit for" in scheme.Parameters(max_clients=2).describe()


def number(text: str) -> int:
    return int(re.match(r"[\d,]+", text).group().replace(",", ""))


def test_crossovers_are_computed():
    """From the first number of values on whose last block makes the pads longer than kahe's least."""
    shorter = {4: 1021, 16: 1021, 64: 1022, 256: 1022, 1000: 2043, 10**6: 2043}
    for clients, first in shorter.items():
        settings = {"max_clients": clients}
        assert pads_answer_bytes(settings, first - 1) <= kahe_answer_bytes(settings, first)
        assert pads_answer_bytes(settings, first) > kahe_answer_bytes(settings, first)
        wide = sf.pads.Parameters(**settings).pad_bytes == 8
        assert wide == (clients >= 1000)
        assert key_stream_bytes(settings, 5100 if wide else 10_000) == pytest.approx(DRAWN, rel=0.1)
    words = "from 1,021 values on for 4 and 16 clients, 1,022 for 64 and 256, 2,043 for 1,000 and 1,000,000."
    assert f"shorter answer** {words}" in PROSE
    assert "from about 10,000 values on, or 5,100 where a pad takes 8 bytes, as for 1,000 clients." in PROSE


def test_measured_answers_have_the_lengths_that_parameters_say_and_times_cross_where_they_do():
    rows = table_rows(PAGE, "clients")
    assert len(rows) == 2 * 3
    for clients, values, pads_ms, kahe_ms, ratio, of_pads, of_kahe in rows:
        settings, count = {"max_clients": number(clients)}, number(values)
        assert number(of_pads) == pads_answer_bytes(settings, count)
        assert number(of_kahe) == kahe_answer_bytes(settings, count)
        measured = float(pads_ms.replace(",", "")) / float(kahe_ms)
        assert math.isclose(float(ratio), measured, rel_tol=0.05)
        assert (measured > 1.1) == (key_stream_bytes(settings, count) > DRAWN * secrets_of(settings, count))


def test_lengths_in_the_text():
    pads, kahe, small = sf.pads.Parameters(), sf.kahe.Parameters(), sf.kahe.Parameters(ring_degree=2048)
    assert f"| {kahe.bytes_per_value:.2f} | {pads.bytes_per_value:.2f} |" in PAGE
    many = BLOCKS * kahe.values_per_ciphertext
    assert f"for every 32 ciphertexts ({many:,} values)" in PAGE
    assert f"{DRAWN:,.0f} bytes for every" in PAGE
    assert f"draws about {key_stream_bytes({}, many) / DRAWN:.0f} times as much" in PROSE
    assert f"for up to {BLOCKS * small.values_per_ciphertext:,} values of 24 bits" in PROSE
    frames = small._facts["ciphertext_bytes"], pads._facts["ciphertext_bytes"]
    for clients in (1, 4, 16, 64, 256):
        of_small = HEAD_BYTES + 2048 * (2 * 42 * clients).bit_length() // 8
        assert of_small < pads_answer_bytes({"max_clients": clients}, 1)
    assert "has {:,} bytes at least, and {:,} under pads".format(*frames) in PROSE
