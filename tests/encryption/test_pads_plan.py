"""What a plan of one-time pads says of the authority's work and answers, beside those of key-additive encryption."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import shieldfl as sf
from documentation_pages import doc
from shieldfl.encryption.registry import scheme_of
from shieldfl.encryption.sum_keys import sum_key

SETTINGS = [
    {},
    {"max_clients": 1, "value_bits": 2, "fraction_bits": 0},
    {"max_clients": 4, "value_bits": 16, "fraction_bits": 12},
    {"max_clients": 256, "value_bits": 24, "fraction_bits": 20},
    {"max_clients": 2**14, "value_bits": 40, "fraction_bits": 20},
    {"max_clients": 2**20, "value_bits": 34, "fraction_bits": 20},
    {"max_clients": 1000, "value_bits": 16, "fraction_bits": 0, "sum_bits": 20},
]


def answer_bytes(parameters, clients, count):
    """The length of a real answer to a total of so many clients and values."""
    scheme = scheme_of(parameters)
    public_key = scheme.PublicKey.of_session(parameters, bytes(32), bytes(16))
    keys = [scheme.ClientKey.of_secret(public_key, client, bytes([client]) * 32) for client in range(clients)]
    aggregator = scheme.Aggregator(public_key, 1)
    for key in keys:
        aggregator.add(scheme.Encryptor(key, 1).encrypt(np.zeros(count, np.float32)))
    return len(sum_key(public_key, aggregator.total().request(), keys, threads=1))


@pytest.mark.parametrize("count", [1, 1021, 1022, 1023, 10_000, 400_000])
@pytest.mark.parametrize(("clients", "value_bits"), [(2, 24), (7, 40)])
def test_answers_of_both_schemes_are_as_long_as_is_said(clients, value_bits, count):
    settings = {"max_clients": clients, "value_bits": value_bits, "fraction_bits": 4}
    parameters, other = sf.pads.Parameters(**settings), sf.kahe.Parameters(**settings)
    assert parameters.answer_bytes(count) == answer_bytes(parameters, clients, count)
    assert parameters.beside_kahe.kahe_answer_bytes(count) == answer_bytes(other, clients, count)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_from_the_stated_number_of_values_on_kahe_is_better_and_below_it_pads(settings):
    parameters = sf.pads.Parameters(**settings)
    beside = parameters.beside_kahe
    secret_values = 32 * sf.kahe.Parameters(**settings).values_per_ciphertext
    block = parameters.values_per_ciphertext
    # The least that has one block more, and one secret more, is where the answer may change.
    counts = {1 + k * block for k in range(3 * secret_values // block)} | {
        1 + k * secret_values for k in (1, 2)
    }
    for first, is_better in (
        (beside.kahe_shorter_from, beside.kahe_is_shorter),
        (beside.kahe_quicker_from, beside.kahe_is_quicker),
    ):
        assert 1 <= first < secret_values
        assert is_better(first)
        assert first == 1 or not is_better(first - 1)
        assert all(is_better(count) == (count >= first) for count in counts)


def test_kahe_is_shorter_just_where_its_real_answers_are():
    settings = {"max_clients": 3, "value_bits": 12, "fraction_bits": 4}
    parameters, other = sf.pads.Parameters(**settings), sf.kahe.Parameters(**settings)
    first = parameters.beside_kahe.kahe_shorter_from
    below, above = (
        (answer_bytes(parameters, 3, count), answer_bytes(other, 3, count)) for count in (first - 1, first)
    )
    assert below[0] <= below[1]
    assert above[0] > above[1]


def test_an_answer_of_fewer_clients_is_shorter_under_kahe_alone():
    settings = {"max_clients": 7, "value_bits": 24, "fraction_bits": 4}
    parameters, other = sf.pads.Parameters(**settings), sf.kahe.Parameters(**settings)
    assert answer_bytes(parameters, 2, 1500) == answer_bytes(parameters, 7, 1500)
    assert answer_bytes(other, 2, 1500) < answer_bytes(other, 7, 1500)


def test_wider_pads_take_an_authority_twice_as_long():
    narrow, wide = (sf.pads.Parameters(value_bits=bits, fraction_bits=4) for bits in (26, 27))
    assert (narrow.pad_bytes, wide.pad_bytes) == (4, 8)
    assert wide.key_stream_bytes(3, 5000) == 2 * narrow.key_stream_bytes(3, 5000) == 2 * 3 * 5 * 1024 * 4
    assert narrow.beside_kahe.kahe_quicker_from > 1.9 * wide.beside_kahe.kahe_quicker_from


def test_numbers_that_are_taken_from_the_core_are_the_core_s():
    assert "kBlocksPerSecret = 32;" in doc("cpp/kahe/parameters.h")
    assert "kMaxSample = 42;" in doc("cpp/kahe/frame_secret.h")
    assert sf.kahe.Parameters().ring_degree == 4096


def lines_about_kahe(text):
    (said,) = re.findall(r"^  beside kahe (.*);\n +(kahe has .*)$", text, re.MULTILINE)
    return said


def test_describe_says_from_how_many_values_on_kahe_is_better_and_what_it_is_for_these():
    plan = sf.pads.Parameters.plan
    for_many, crossover = lines_about_kahe(plan().describe())
    assert for_many == "for many values kahe is better, by the answer's bytes and the authority's time"
    assert crossover == (
        "kahe has the shorter answer from 1,022 values on, the quicker authority from about 10,000 on"
    )
    for count, verdict in (
        (1021, "pads is better, by the answer (kahe's: 6,788 bytes) and the authority's time"),
        (1022, "kahe is better by the answer (kahe's: 6,788 bytes), pads by the authority's time"),
        (10_210, "kahe is better by the answer (kahe's: 6,788 bytes), pads by the authority's time"),
        (10_211, "kahe is better, by the answer (kahe's: 6,788 bytes) and the authority's time"),
        (393_121, "kahe is better, by the answer (kahe's: 13,444 bytes) and the authority's time"),
    ):
        assert lines_about_kahe(plan(count=count).describe()) == (
            f"for {count:,} values {verdict}",
            crossover,
        )
    # An answer grows with the logarithm of the clients, under both schemes.
    few, _ = lines_about_kahe(plan(max_clients=4, count=100).describe())
    assert (
        few == "for 100 values pads is better, by the answer (kahe's: 4,740 bytes) and the authority's time"
    )


def test_describe_counts_what_the_authority_draws_and_answers():
    text = sf.pads.Parameters.plan(max_clients=4, count=1022).describe()
    assert (
        f"for 4 clients with 1,022 values each: {4 * 2 * 1024 * 4:,} bytes of key stream, and an answer of 6,788 "
        "bytes" in text
    )
    assert "up to 4, 2 guard bits for their sum" in text
    for scheme in (sf.pads, sf.kahe, sf.ckks, sf.paillier):
        assert "up to 2, 1 guard bit for" in scheme.Parameters(max_clients=2).describe()


def test_a_fit_takes_what_a_plan_takes():
    sample = np.random.default_rng(4).normal(0.0, 1e-3, 1000)
    fit, plan = sf.pads.Parameters.fit, sf.pads.Parameters.plan
    fitted = fit(sample, count=1022)
    assert "fitted" in fitted.describe()
    planned = plan(value_bits=fitted.value_bits, fraction_bits=fitted.fraction_bits, count=1022)
    assert lines_about_kahe(fitted.describe()) == lines_about_kahe(planned.describe())
    assert fitted == fit(sample) == fit(sample, goal="size", count=5) == planned
    for wrong, message in ({"count": 0}, "count"), ({"goal": "fast"}, "goal"), ({"goal": ""}, "goal"):
        for make in (plan, lambda **settings: fit(sample, **settings)):
            with pytest.raises(sf.ParameterError, match=message):
                make(**wrong)


def test_parameters_that_make_the_same_frames_are_equal_whatever_they_were_planned_for():
    plain, planned = sf.pads.Parameters(), sf.pads.Parameters.plan(goal="size", count=12_345)
    again = pickle.loads(pickle.dumps(planned))
    assert plain == planned == again
    assert len({plain, planned, again}) == 1
    assert again.describe() == planned.describe() != plain.describe()
    assert plain != sf.pads.Parameters(max_clients=63)
