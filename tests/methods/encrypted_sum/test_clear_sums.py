"""Sums of plain numbers on their way: rounded once, and nothing but numbers; counts beside them as narrow as may be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.variants import PARAMETERS, labelled
from shieldfl.authority.message import Message
from shieldfl.errors import WireFormatError
from shieldfl.methods.encrypted_update import are_summable, clear_sums_part, read_clear_sums


def test_sums_are_rounded_to_what_a_model_holds():
    sums = np.array([1.0 / 3.0, -1e-40, 0.0, 2.0**24 + 1.0, 3e38])
    part = clear_sums_part(sums)
    assert len(part) == 4 * sums.size
    read = read_clear_sums(Message({"sums": part}), "sums", sums.size)
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, sums.astype(np.float32).astype(np.float64))


@pytest.mark.parametrize("sums", [[1e39, 0.0], [0.0, -1e300], [np.nan, 0.0], [np.inf, 0.0]])
def test_what_no_model_holds_is_refused_by_whoever_reads_it(sums):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        part = clear_sums_part(np.array(sums))
    with pytest.raises(WireFormatError, match="part 'sums 1' holds NaN or infinity"):
        read_clear_sums(Message({"sums 1": part}), "sums 1", 2)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_another_number_of_sums_is_refused(size):
    with pytest.raises(WireFormatError, match="bytes, expected"):
        read_clear_sums(Message({"sums": clear_sums_part(np.zeros(2))}), "sums", size)


@pytest.mark.parametrize(("clients", "width"), [(255, 1), (256, 2)])
def test_counts_of_contributors_are_as_wide_as_the_number_of_clients(clients, width):
    """The wider ones reach the authority whole, and one of another width is refused."""
    variant = labelled("selective-shield/clear").with_settings(threshold=1.0)
    run = SteppedRun(variant, clients=clients)
    run.run_round()
    counts = run.closed["update"]["contributors"]
    assert len(counts) == width * PARAMETERS
    assert set(np.frombuffer(counts, np.uint8 if width == 1 else np.uint16)) == {clients}
    moved = np.mean([contraction(1, one, run.starts[one]).parameters for one in range(clients)], axis=0)
    np.testing.assert_allclose(run.parameters, moved, rtol=1e-4, atol=1e-6)
    again = SteppedRun(variant, clients=clients)
    answer = again.authority.answer

    def with_others(phase, message):
        if phase != "update":
            return answer(phase, message)
        other = np.full(PARAMETERS, clients, np.uint32).tobytes()
        return answer(phase, Message({**message, "contributors": other}))

    again.authority.answer = with_others
    with pytest.raises(WireFormatError, match="'contributors' has"):
        again.run_round()


@pytest.mark.parametrize("weights", [1, 3, 7, 1000, 2**31])
def test_values_that_sums_have_room_for_sum_to_a_float32(weights):
    most = np.nextafter(np.float32(np.finfo(np.float32).max / weights), np.float32(0.0))
    values = np.array([most, -most, 0.0], dtype=np.float32)
    assert are_summable(values, weights)
    assert np.isfinite(np.frombuffer(clear_sums_part(weights * values.astype(np.float64)), np.float32)).all()
    above = np.nextafter(most, np.float32(np.inf))
    for bad in (above, np.inf, -np.inf, np.nan):
        assert not are_summable(np.array([0.0, bad], dtype=np.float32), weights)
    assert are_summable(np.empty(0, np.float32), weights)


@pytest.mark.parametrize("label", ["selective-shield/clear", "mask-crypt", "fedml-he"])
def test_a_client_that_would_take_a_sum_out_of_range_is_refused_by_its_name(label):
    """And the round goes on without it."""
    run = SteppedRun(labelled(label))
    refused = []

    def grown(phase, aggregator, messages):
        if phase != "update":
            return
        values = np.frombuffer(messages[0]["values"], np.float32).copy()
        values[-1] = 2e38
        with pytest.raises(WireFormatError, match="no sum of all clients' has room"):
            aggregator.receive(phase, 0, Message({**messages[0], "values": values.tobytes()}))
        refused.append(phase)

    run.run_round(intrude=grown)
    assert refused == ["update"]
    assert np.isfinite(run.parameters).all()
