"""What a plan of one-time pads says of the authority's work and answers, and docs/pads.md of it beside ``kahe``."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc, prose_of, table_rows
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.registry import scheme_of

PAGE = doc("docs/pads.md")
PROSE = prose_of("docs/pads.md")
SETTINGS = [
    {},
    {"max_clients": 1, "value_bits": 2, "fraction_bits": 0},
    {"max_clients": 4, "value_bits": 16, "fraction_bits": 12},
    {"max_clients": 2**14, "value_bits": 40, "fraction_bits": 20},
    {"max_clients": 2**20, "value_bits": 34, "fraction_bits": 20},
    {"max_clients": 1000, "value_bits": 16, "fraction_bits": 0, "sum_bits": 20},
]
SECRET_STREAM_BYTES = 32 * 4096 / 3


def answer_bytes(parameters, clients, count):
    """The length of a real answer to a total of so many clients and values."""
    scheme = scheme_of(parameters)
    public_key = scheme.PublicKey.of_session(parameters, bytes(32), bytes(16))
    keys = [scheme.ClientKey.of_secret(public_key, client, bytes([client]) * 32) for client in range(clients)]
    aggregator = scheme.Aggregator(public_key, 1)
    for key in keys:
        aggregator.add(scheme.Encryptor(key, 1).encrypt(np.zeros(count, np.float32)))
    return len(sum_key(public_key, aggregator.total().request(), keys, threads=1))


def secrets_of(settings, count):
    return math.ceil(count / (32 * sf.kahe.Parameters(**settings).values_per_ciphertext))


def kahe_answer_bytes(settings, count):
    """The length of what kahe's authority answers for all clients: a header, and each secret's coefficients."""
    bits = (2 * 42 * sf.kahe.Parameters(**settings).max_clients).bit_length()
    return 132 + secrets_of(settings, count) * 4096 * bits // 8


@pytest.mark.parametrize("count", [1, 1021, 1022, 10_000, 400_000])
@pytest.mark.parametrize(("clients", "value_bits"), [(2, 24), (7, 40)])
def test_answers_of_both_schemes_are_as_long_as_is_said(clients, value_bits, count):
    settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 4}
    parameters, other = sf.pads.Parameters(**settings), sf.kahe.Parameters(**settings)
    assert parameters.answer_bytes(count) == answer_bytes(parameters, clients, count)
    assert kahe_answer_bytes(settings, count) == answer_bytes(other, clients, count)
    # Of fewer clients it is shorter under kahe alone.
    assert answer_bytes(parameters, 1, count) == answer_bytes(parameters, clients, count)
    assert answer_bytes(other, 1, count) < answer_bytes(other, clients, count)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_from_the_stated_number_of_values_on_kahe_is_better_and_below_it_pads(settings):
    parameters = sf.pads.Parameters(**settings)
    block = parameters.values_per_ciphertext

    def is_shorter(count):
        return kahe_answer_bytes(settings, count) < parameters.answer_bytes(count)

    def is_quicker(count):
        return secrets_of(settings, count) * SECRET_STREAM_BYTES < parameters.key_stream_bytes(1, count)

    # The least that has one block more, and one secret more, is where the answer may change.
    secret = 32 * sf.kahe.Parameters(**settings).values_per_ciphertext
    counts = {1 + k * block for k in range(3 * secret // block)} | {1 + secret, 1 + 2 * secret}
    for first, is_better in (
        (parameters.kahe_is_shorter_from, is_shorter),
        (parameters.kahe_is_quicker_from, is_quicker),
    ):
        assert first == 1 or not is_better(first - 1)
        assert all(is_better(count) == (count >= first) for count in counts | {first})


def test_wider_pads_take_an_authority_twice_as_long():
    narrow, wide = (sf.pads.Parameters(value_bits=bits, fraction_bits=4) for bits in (26, 27))
    assert (narrow.pad_bytes, wide.pad_bytes) == (4, 8)
    assert wide.key_stream_bytes(3, 5000) == 2 * narrow.key_stream_bytes(3, 5000) == 2 * 3 * 5 * 1024 * 4


def test_numbers_that_are_taken_from_the_core_are_the_core_s():
    assert "kBlocksPerSecret = 32;" in doc("cpp/kahe/parameters.h")
    assert "kMaxSample = 42;" in doc("cpp/kahe/frame_secret.h")
    assert sf.kahe.Parameters().ring_degree == 4096


def test_describe_counts_what_the_authority_draws_and_answers():
    text = sf.pads.Parameters.plan(max_clients=4, count=1022).describe()
    assert (
        "for 4 clients with 1,022 values each: 32,768 bytes of key stream, and an answer of 6,788 bytes"
        in text
    )
    assert "the shorter answer from 1,021 values on, the quicker authority from about 10,000 on" in text
    assert "up to 4, 2 guard bits for their sum" in text
    for scheme in (sf.pads, sf.kahe, sf.ckks, sf.paillier):
        assert "up to 2, 1 guard bit for" in scheme.Parameters(max_clients=2).describe()


def test_a_fit_takes_what_a_plan_takes_and_what_was_planned_for_is_no_part_of_parameters():
    sample = np.random.default_rng(4).normal(0.0, 1e-3, 1000)
    fit, plan = sf.pads.Parameters.fit, sf.pads.Parameters.plan
    fitted = fit(sample, count=1022)
    bits = {"value_bits": fitted.value_bits, "fraction_bits": fitted.fraction_bits}
    planned = plan(**bits, count=1022)
    assert fitted == fit(sample) == fit(sample, goal="size", count=5) == planned == plan(**bits)
    assert planned.describe() in re.sub(r"  fitted .*\n", "", fitted.describe())
    assert pickle.loads(pickle.dumps(planned)).describe() == planned.describe() != plan(**bits).describe()
    for wrong, message in ({"count": 0}, "count"), ({"goal": "fast"}, "goal"), ({"goal": ""}, "goal"):
        for make in (plan, lambda **settings: fit(sample, **settings)):
            with pytest.raises(sf.ParameterError, match=message):
                make(**wrong)


def number(text: str) -> int:
    return int(re.match(r"[\d,]+", text).group().replace(",", ""))


def test_described_plan_is_what_describe_says():
    settings, text = re.search(r"<!-- plan: (.*?) -->\n```text\n(.*?)\n```", PAGE, re.DOTALL).groups()
    numbers = {name: int(value) for name, value in (one.split("=") for one in settings.split(", "))}
    assert sf.pads.Parameters.plan(**numbers).describe() == text


def test_crossovers_are_computed():
    rows = table_rows(PAGE, "clients (24-bit values)")
    assert [number(row[0]) for row in rows] == [4, 16, 64, 256, 1000, 10**6]
    for clients, shorter, quicker in rows:
        parameters = sf.pads.Parameters(max_clients=number(clients))
        assert number(shorter) == parameters.kahe_is_shorter_from
        assert math.isclose(number(quicker), parameters.kahe_is_quicker_from, rel_tol=0.05)


def test_measured_answers_have_the_lengths_that_parameters_say_and_times_cross_where_they_do():
    rows = table_rows(PAGE, "clients")
    assert len(rows) == 4 * 5
    for clients, values, pads_ms, kahe_ms, ratio, of_pads, of_kahe in rows:
        settings, count = {"max_clients": number(clients)}, number(values)
        parameters = sf.pads.Parameters(**settings)
        assert number(of_pads) == parameters.answer_bytes(count)
        assert number(of_kahe) == kahe_answer_bytes(settings, count)
        measured = float(pads_ms.replace(",", "")) / float(kahe_ms)
        assert math.isclose(float(ratio), measured, rel_tol=0.05)
        assert (measured > 1.1) == (count >= parameters.kahe_is_quicker_from)


def test_lengths_in_the_text():
    pads, kahe, small = sf.pads.Parameters(), sf.kahe.Parameters(), sf.kahe.Parameters(ring_degree=2048)
    assert f"| {kahe.bytes_per_value:.2f} | {pads.bytes_per_value:.2f} |" in PAGE
    assert f"for every 32 ciphertexts ({32 * kahe.values_per_ciphertext:,} values)" in PAGE
    drawn = 32 * 4096 / 3
    assert f"{drawn:,.0f} bytes for every" in PAGE
    many = 32 * kahe.values_per_ciphertext
    assert f"draws about {pads.key_stream_bytes(1, many) / drawn:.0f} times as much" in PROSE
    assert f"for up to {32 * small.values_per_ciphertext:,} values of 24 bits" in PROSE
    frames = small._facts["ciphertext_bytes"], pads._facts["ciphertext_bytes"]
    for clients in (1, 4, 16, 64, 256):
        of_small = 132 + 2048 * (2 * 42 * clients).bit_length() // 8
        assert of_small < sf.pads.Parameters(max_clients=clients).answer_bytes(1)
    assert "has {:,} bytes at least, and {:,} under pads".format(*frames) in PROSE
