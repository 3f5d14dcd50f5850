"""BatchCrypt as a method: exact sums of integers, clip bounds, values that they cut off."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.variants import BUFFERS, CLIENTS, LAYER_OFFSETS, PARAMETERS, Variant
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PrecisionWarning, RangeError, WireFormatError
from shieldfl.methods.batch_crypt import BatchCryptSettings
from shieldfl.methods.registry import MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings

OFFSETS = (*LAYER_OFFSETS, PARAMETERS + BUFFERS)


def variant(width: int = 16) -> Variant:
    settings = MethodSettings(batch_crypt=BatchCryptSettings(width=width, key_bits=2048))
    return Variant("batch-crypt", SelectiveShieldSettings(), "batch-crypt", settings)


def updates_of(run: SteppedRun, clients: list[int], train=contraction) -> list[np.ndarray]:
    start = run.initial.starting_point()
    trained = [train(1, client, start) for client in clients]
    return [
        np.concatenate((one.parameters - start.parameters, one.buffers - start.buffers)) for one in trained
    ]


def bounds_of(run: SteppedRun) -> np.ndarray:
    return np.frombuffer(run.closed["ranges"]["bounds"], np.float64)


@pytest.mark.filterwarnings("ignore::shieldfl.errors.PrecisionWarning")
@pytest.mark.parametrize("width", [2, 8, 16])
@pytest.mark.parametrize("dropping", [[], [2]], ids=["all", "one leaves"])
def test_sums_are_exact_in_the_quantised_domain(width, dropping):
    run = SteppedRun(variant(width))
    integers = []
    for client in run.clients:
        made = client._vector

        def watch(answer, made=made):
            integers.append(made(answer))
            return integers[-1]

        client._vector = watch
    run.run_round(dropping=dropping)
    assert len(integers) == CLIENTS - len(dropping)
    total = np.sum(np.array(integers, dtype=np.int64), axis=0)
    agreed = run.method.quantisation
    bounds = agreed.bounds(list(map(agreed.ranges, updates_of(run, list(range(CLIENTS))))))
    np.testing.assert_array_equal(bounds_of(run), bounds)
    mean = agreed.dequantise(total, bounds) / len(integers)
    expected = (run.initial.parameters + mean[:PARAMETERS]).astype(np.float32)
    np.testing.assert_array_equal(run.parameters, expected)
    np.testing.assert_array_equal(run.buffers, (run.initial.buffers + mean[PARAMETERS:]).astype(np.float32))
    # Within a step of what plain averaging gives, where nothing is cut off.
    step = np.repeat(CLIENTS * bounds / (2 ** (width - 1) - 1), np.diff(OFFSETS))
    senders = [client for client in range(CLIENTS) if client not in dropping]
    updates = np.array(updates_of(run, senders), dtype=np.float64)
    cut = np.clip(updates, *(sign * np.repeat(bounds, np.diff(OFFSETS)) for sign in (-1, 1)))
    assert np.all(np.abs(mean - cut.mean(axis=0)) <= step * (1 + 1e-9))


@pytest.mark.filterwarnings("ignore::shieldfl.errors.PrecisionWarning")
def test_narrow_fields_saturate_and_say_so():
    """With 2 bits the clip bound is 1.7 standard deviations, so that values are outside of it."""
    run = SteppedRun(variant(2))
    run.run_round()
    bounds = np.repeat(bounds_of(run), np.diff(OFFSETS))
    outside = sum(int(np.sum(np.abs(update) > bounds)) for update in updates_of(run, [0, 1, 2, 3]))
    assert outside > 0
    values = CLIENTS * (PARAMETERS + BUFFERS)
    assert run.account.notes == [
        f"{outside:,} of {values:,} values were outside of their layer's clip bound and count as the bound"
    ]
    run.run_round()
    assert len(run.account.notes) == 1
    assert f"of {2 * values:,} values" in run.account.notes[0]


def test_values_on_one_side_of_zero_are_clipped_with_a_warning():
    """Bounds follow from a layer's range, which is small where all of its values moved alike."""

    def shift(round_number, client, start):
        spread = np.random.default_rng(client).normal(0.05, 0.002, start.parameters.size)
        return start.trained((start.parameters + spread).astype(np.float32), start.buffers.copy(), None)

    run = SteppedRun(variant(16), train=shift)
    with pytest.warns(PrecisionWarning, match=r"clip bound and count as the bound: .*Take full-he") as warned:
        run.run_round()
    assert len(warned) == CLIENTS
    assert run.account.notes[0].split(" ", 1)[0] == f"{CLIENTS * PARAMETERS:,}"
    run.run_round()  # warned once for each client


def test_a_range_beyond_the_agreed_limit_is_refused():
    """Ranges make the clip bounds, so a huge one, with the largest integers under it, would move the model at will."""
    run, honest = SteppedRun(variant()), SteppedRun(variant())
    refused = []

    def overstate(phase, aggregator, messages):
        if phase == "ranges":
            for bound in (8.5, 1e30):
                wide = np.tile(np.array([-bound, bound], np.float32), len(OFFSETS) - 1)
                with pytest.raises(RangeError, match=r"client 0 .*largest_update = 8"):
                    aggregator.receive(phase, 0, Message({**messages[0], "ranges": wide.tobytes()}))
                refused.append(bound)

    run.run_round(intrude=overstate)
    honest.run_round()
    assert len(refused) == 2
    np.testing.assert_array_equal(run.parameters, honest.parameters)


def test_updates_that_a_huge_range_rounds_away_are_noted():
    """One client's ranges decide how coarse the steps of all are."""
    run = SteppedRun(variant().with_others(largest_update=3.2e38))
    wide = np.tile(np.array([-3e38, 3e38], np.float32), len(OFFSETS) - 1)

    def overstate(phase, aggregator, messages):
        if phase == "ranges":
            messages[0] = Message({**messages[0], "ranges": wide.tobytes()})

    run.run_round(intrude=overstate)
    np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    (note,) = run.account.notes
    assert note.startswith(f"{CLIENTS} of {CLIENTS} updates were rounded to 0 everywhere")
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)
    assert run.account.notes[0].startswith(f"{CLIENTS} of {2 * CLIENTS} updates")


def test_equal_updates_of_two_clients_are_rounded_apart():
    run = SteppedRun(variant(8), train=lambda number, client, start: contraction(number, 0, start))
    run.run_round()
    answer = run.answers["ranges"]
    first, second = (client._vector(answer) for client in run.clients[:2])
    assert np.abs(first - second).max() == 1.0
    np.testing.assert_array_equal(first, run.clients[0]._vector(answer))


def with_bounds(message: Message, bounds: np.ndarray) -> Message:
    return Message({**message, "bounds": bounds.tobytes()})


@pytest.mark.parametrize(
    "bounds",
    [
        np.zeros(len(OFFSETS)),
        np.zeros(0),
        *(np.array([1.0, value, 1.0, 1.0]) for value in (np.nan, np.inf, -1.0, 1e-300, 1e300)),
    ],
    ids=["too many", "none", "nan", "infinite", "negative", "tiny", "huge"],
)
def test_bounds_that_are_none_are_refused_by_everybody(bounds):
    run = SteppedRun(variant())
    run.run_round()
    before = run.parameters.copy()
    first = run.begin_round(2, [0, 1])
    run.aggregator.begin_phase("ranges", 2, None)
    for index in (0, 1):
        run.train_client(index, 2, 2, first)
        run.aggregator.receive("ranges", index, run.clients[index].step("ranges", None))
    answer = run.aggregator.close("ranges")
    lie = with_bounds(answer, bounds)
    with pytest.raises(WireFormatError):
        run.aggregator.begin_phase("update", 2, lie)
    with pytest.raises(WireFormatError):
        run.clients[0].step("update", lie)
    run.aggregator.begin_phase("update", 2, answer)
    for index in (0, 1):
        run.aggregator.receive("update", index, run.clients[index].step("update", answer))
    total = run.aggregator.close("update")
    with pytest.raises(WireFormatError):
        run.authority.answer("update", with_bounds(total, bounds))
    # Nothing was opened: the honest message is still answered.
    moved = run.authority.answer("update", total).vector("parameters", np.float32, PARAMETERS)
    assert not np.array_equal(moved, before)


def test_an_update_without_bounds_is_not_asked_for():
    run = SteppedRun(variant())
    first = run.begin_round(1)
    with pytest.raises(ParameterError, match="clip bounds"):
        run.aggregator.begin_phase("update", 1, None)
    run.train_client(0, 1, 4, first)
    with pytest.raises(ParameterError, match="clip bounds"):
        run.clients[0].step("update", None)
