"""The figures of docs/pads.md that follow from parameters: what describe() says, lengths, and crossovers."""

from __future__ import annotations

import math
import re

import shieldfl as sf
from documentation_pages import doc, prose_of, table_rows

PAGE = doc("docs/pads.md")
PROSE = prose_of("docs/pads.md")


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
        beside = sf.pads.Parameters(max_clients=number(clients)).beside_kahe
        assert number(shorter) == beside.kahe_shorter_from
        assert math.isclose(number(quicker), beside.kahe_quicker_from, rel_tol=0.05)


def test_measured_answers_have_the_lengths_that_parameters_say_and_times_cross_where_they_do():
    rows = table_rows(PAGE, "clients")
    assert len(rows) == 4 * 5
    for clients, values, pads_ms, kahe_ms, ratio, of_pads, of_kahe in rows:
        parameters = sf.pads.Parameters(max_clients=number(clients))
        beside, count = parameters.beside_kahe, number(values)
        assert number(of_pads) == parameters.answer_bytes(count)
        assert number(of_kahe) == beside.kahe_answer_bytes(count)
        measured = float(pads_ms.replace(",", "")) / float(kahe_ms)
        assert math.isclose(float(ratio), measured, rel_tol=0.05)
        assert (measured > 1.1) == beside.kahe_is_quicker(count)


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
