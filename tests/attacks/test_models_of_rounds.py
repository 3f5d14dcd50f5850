"""An aggregator gives clients another model, or another history, than the one that their round is of."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.linear_clients import variant_of
from methods.dict_pfl.dict_pfl_run import run_of
from methods.method_conformance import SteppedRun, initial_model
from methods.variants import CLIENTS, variants
from shieldfl.roles.message import Message

encrypting = pytest.mark.parametrize(
    "variant",
    [one for one in variants() if SteppedRun(one).method.purposes],
    ids=lambda variant: variant.label,
)


def shifted(first: Message) -> Message:
    """The same message, in which an aggregator has moved the model to where it likes."""
    moved = np.frombuffer(first["parameters"], np.float32) + np.float32(1.0)
    return Message({**first, "parameters": moved.tobytes()})


def test_an_old_history_comes_with_a_later_model():
    """A position that came back to life since is left out: what the client trained there stays with it."""
    run = run_of(first_probability=0.5)
    run.run_round()
    old = run.model
    run.run_round()
    first = run.begin_round(3)
    replayed = Message({**first, "history": old["history"]})
    client = run.new_client(0)
    assert client.begin_round(3, CLIENTS, replayed).round == 3
    assert client._active != run.authority._active_mask(3)


def test_an_old_model_comes_with_its_old_history():
    run = run_of()
    run.run_round()
    old = run.model
    run.run_round()
    replayed = Message({**run.begin_round(3), **old})
    start = run.new_client(0).begin_round(3, CLIENTS, replayed)
    np.testing.assert_array_equal(start.parameters, np.frombuffer(old["parameters"], np.float32))


@encrypting
def test_clients_of_one_round_are_given_different_models(variant):
    run = SteppedRun(variant)
    run.run_round()
    first = run.begin_round(2)
    genuine, other = (
        run.clients[index].merged_model(run.method.message_for(index, first)) for index in (0, 1)
    )
    lie = shifted(run.method.message_for(1, first))
    run.clients[0].begin_round(2, CLIENTS, run.method.message_for(0, first))
    start = run.clients[1].begin_round(2, CLIENTS, lie)
    assert np.abs(start.parameters - other.parameters).max() > 0.9
    assert genuine.parameters.size == start.parameters.size


@encrypting
def test_the_authority_begins_a_round_from_an_old_model(variant):
    run = SteppedRun(variant)
    old = run.model
    run.run_round()
    first = run.begin_round(2, old)
    assert run.method.message_for(0, first)["parameters"] == old["parameters"]


@encrypting
def test_the_authority_opens_totals_of_rounds_that_the_plan_does_not_have(variant):
    run = SteppedRun(variant, rounds=1)
    run.run_round()
    keys = run.authority.begin_round(2, run.model)
    assert any(name.startswith("round signature") for name in keys)


@pytest.mark.parametrize("label", ["fedavg", "full-he", "dict-pfl"])
def test_a_model_is_changed_after_the_set_up_looked_at_it(label):
    initial = initial_model()
    run = SteppedRun(variant_of(label), initial=initial)
    before = run.clients[0].start.parameters.copy()
    initial.parameters[:] += np.float32(7.0)
    assert not np.array_equal(run.clients[0].start.parameters, before)
