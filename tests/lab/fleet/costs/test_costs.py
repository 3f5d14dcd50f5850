from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.fleet.fleets import COSTS, SCHEME, client, fleet_of, three_clients
from shieldfl.lab.fleet.cost_model import serial_share, speedup
from shieldfl.lab.fleet.round_simulation import simulate


def test_ciphertexts_are_whole():
    np.testing.assert_array_equal(SCHEME.ciphertexts([0, 1, 10, 11]), [0, 1, 1, 2])


def test_seconds_by_hand():
    fleet = three_clients()  # rates 2 x 1, 1 x 0.5, 1 x 1
    np.testing.assert_allclose(COSTS.train_seconds(fleet), [0.5, 2.0, 1.0])
    np.testing.assert_allclose(COSTS.score_seconds(fleet), [1.0, 2.0, 1.0])  # on one core
    np.testing.assert_allclose(COSTS.select_seconds(fleet), [2.0, 4.0, 2.0])
    np.testing.assert_allclose(COSTS.encrypt_seconds(fleet, [25, 20, 0]), [1.5, 4.0, 0.0])


def test_bytes_by_hand():
    fleet = three_clients()
    sent = COSTS.upload_bytes(fleet, [25, 100, 0], [25, 100, 0], sends_mask=False)
    np.testing.assert_allclose(sent, [3 * 100 + 75 * 4, 10 * 100, 400])
    np.testing.assert_allclose(
        COSTS.upload_bytes(fleet, [25, 100, 0], [25, 100, 0], sends_mask=True), sent + 13
    )
    half_empty = COSTS.upload_bytes(fleet, [25, 90, 0], [50, 100, 0], sends_mask=False)
    np.testing.assert_allclose(half_empty - sent, [200, 40, 0])
    np.testing.assert_allclose(COSTS.download_bytes(fleet, 25), 400.0)
    opened = replace(COSTS, scheme=replace(COSTS.scheme, clients_open=True))
    np.testing.assert_allclose(opened.download_bytes(fleet, 25), 3 * 100 + 75 * 4)


def test_clients_that_open_take_their_own_time_for_it():
    fleet = fleet_of(client("one"), client("slow", cpu_share=0.5))
    opened = replace(COSTS, scheme=replace(COSTS.scheme, clients_open=True, answer_seconds=0.25))
    np.testing.assert_allclose(COSTS.client_open_seconds(fleet, 25), 0.0)
    np.testing.assert_allclose(opened.client_open_seconds(fleet, 25), [3 * 0.5, 3 * 1.0])
    assert opened.open_seconds(fleet, 25, 2) == pytest.approx(3 * 0.25)
    rounds = simulate("full-he", fleet, COSTS), simulate("full-he", fleet, opened)
    later = 10 * np.array([0.5, 1.0]) + (10 * 100.0 - 400.0) / fleet.download_bytes_per_second
    np.testing.assert_allclose(rounds[1].download[0] - rounds[0].download[0], later)


def test_the_aggregators_seconds():
    fleet = fleet_of(client("one"), cores=4.0)
    costs = replace(COSTS, add_clear_seconds_per_value=0.5)
    assert costs.add_seconds(fleet, 20) == pytest.approx((2 * 0.25 + 80 * 0.5) / 4)
    assert costs.open_seconds(fleet, 21, 6) == pytest.approx(3 * 0.5 / 4)
    lists = replace(costs, scheme=replace(costs.scheme, answer_seconds_per_client=0.125))
    assert lists.open_seconds(fleet, 21, 6) == pytest.approx(3 * (0.5 + 6 * 0.125) / 4)


def test_a_fleet_may_state_its_own_training():
    fleet = three_clients()
    stated = replace(fleet, model=replace(fleet.model, train_core_seconds_per_sample=1.0))
    np.testing.assert_allclose(COSTS.train_seconds(stated), [5.0, 20.0, 10.0])
    twice = replace(fleet, training=replace(fleet.training, local_epochs=2))
    np.testing.assert_allclose(COSTS.train_seconds(twice), [1.0, 4.0, 2.0])


def test_on_an_accelerator_the_processor_does_not_matter():
    costs = replace(COSTS, trains_on_accelerator=True)
    for seconds in (costs.train_seconds, costs.score_seconds, costs.select_seconds):
        assert len(set(seconds(three_clients()).tolist())) == 1
    assert costs.encrypt_seconds(three_clients(), 20).tolist() == [1.0, 4.0, 2.0]


def test_speedup_is_amdahls():
    np.testing.assert_allclose(speedup([0.5, 1, 2, 4], 0.0), [0.5, 1, 2, 4])
    np.testing.assert_allclose(speedup([0.5, 1, 2, 4], 0.5), [0.5, 1, 1 / 0.75, 1 / 0.625])
    np.testing.assert_allclose(speedup([1, 64], 1.0), 1.0)


@pytest.mark.parametrize("serial", [0.0, 0.2, 1.0])
def test_the_serial_share_is_found_again(serial):
    times = {threads: 3.0 / float(speedup(threads, serial)) for threads in (1, 2, 4, 8)}
    assert serial_share(times) == pytest.approx(serial)


def test_the_serial_share_of_odd_measurements():
    assert serial_share({1: 2.0}) == 0.0
    assert serial_share({1: 2.0, 4: 0.1}) == 0.0  # faster than four times
    assert serial_share({1: 2.0, 4: 9.0}) == 1.0  # slower than with one
