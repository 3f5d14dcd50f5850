"""Rounds that are given up, cut off or begun anew: what left in them is in the account, and nothing leaves twice."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from lab.simulation.small_runs import run_methods
from methods.honest_outcome import assert_same_model, honest_outcome, recorded
from methods.method_conformance import SteppedRun, contraction, run_of
from methods.variants import CLIENTS, every_variant
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.lab.report.run_summary import summarise
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.lab.simulation.results import RunInterrupted
from shieldfl.learning.local_update import LocalUpdate
from shieldfl.methods.registry import MethodSettings
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise
from shieldfl.rounds.collecting_aggregator import CollectingAggregator


def test_what_left_in_a_round_that_was_not_finished_is_in_the_figure(monkeypatch: pytest.MonkeyPatch):
    receive = CollectingAggregator.receive

    def stop_late(aggregator, phase, client, message):
        if aggregator.round == 3 and client == 3:
            raise KeyboardInterrupt
        return receive(aggregator, phase, client, message)

    monkeypatch.setattr(CollectingAggregator, "receive", stop_late)
    settings = MethodSettings().changed("dp-fedavg", {"noise_multiplier": 1.0})
    with pytest.raises(RunInterrupted) as caught:
        run_methods(RunConfig(clients=4, rounds=3, threads=1, local_epochs=1), ["dp-fedavg"], settings)
    (method,) = caught.value.result.methods
    assert len(method.rounds) == 2
    assert method.last.epsilon == pytest.approx(epsilon_of({Noise(1.0, "client"): 3}, 1e-5))


@pytest.mark.parametrize(
    ("name", "leaving", "text"),
    [
        ("fedavg", 2, "nothing"),
        ("full-he", 2, "all"),
        ("fedml-he", 2, "10.00 %, mask readable"),
        # Before the only phase: nobody has sent anything.
        ("fedavg", 3, "–"),
    ],
)
def test_what_left_in_a_round_that_was_given_up_is_in_the_row_of_what_is_hidden(
    name: str, leaving: int, text: str, monkeypatch: pytest.MonkeyPatch
):
    """All but one leave before the last phase. What the last one sends then, the aggregator keeps."""

    def draw_leavers(federation, participants, dropout, round_number):
        last = federation.method.phases_of(federation.model, round_number)[-1].name
        return dict.fromkeys(list(participants)[:leaving], last)

    monkeypatch.setattr(EmbeddedFederation, "draw_leavers", draw_leavers)
    config = RunConfig(clients=3, rounds=1, local_epochs=1, model="mlp", threads=1, min_clients=2)
    result = run_methods(config, [name])
    (method,) = result.methods
    assert (method.last.participants, method.last.dropped) == (0, 3)
    assert any("round 1 was given up" in note for note in method.notes)
    rows = {row.label: row.cells for row in summarise(result)[-1].rows}
    (hidden,) = rows["hidden from the aggregator"]
    assert hidden == text


def test_an_update_on_real_data_is_not_sent_in_the_clear_once_a_synthetic_round_has_begun():
    """Round 2 encrypts, and while a client trains in it, round 3 begins, which is synthetic and sends everything."""
    run = run_of("alt-fl-si-he")
    run.run_round()
    client = run.clients[0]
    start = client.begin_round(2, CLIENTS, run.begin_round(2))
    assert not start.synthetic
    update = contraction(2, 0, start)
    later = client.begin_round(3, CLIENTS, run.begin_round(3))
    assert later.synthetic
    with pytest.raises(PolicyError, match="trained in round 2, and the client is in round 3"):
        client.finish_training(update)
    with pytest.raises(ParameterError, match="before training has finished"):
        client.step("update", None)
    own = contraction(3, 0, later)
    client.finish_training(own)
    values = client.step("update", None).vector("values", np.float32, own.parameters.size)
    np.testing.assert_array_equal(values, own.parameters - later.parameters)


def test_a_round_that_begins_while_training_is_handed_in_does_not_get_its_update(
    monkeypatch: pytest.MonkeyPatch,
):
    """Round 2 encrypts; round 3, which is synthetic, begins on another thread while its update is looked through."""
    run = run_of("alt-fl-si-he")
    run.run_round()
    client = run.clients[0]
    update = contraction(2, 0, client.begin_round(2, CLIENTS, run.begin_round(2)))
    later = run.begin_round(3)
    begins = threading.Thread(target=lambda: client.begin_round(3, CLIENTS, later))

    def look_through(update, parameters, buffers):
        begins.start()
        begins.join(timeout=0.5)

    monkeypatch.setattr(LocalUpdate, "check", look_through)
    client.finish_training(update)
    begins.join()
    assert client.round == 3
    with pytest.raises(ParameterError, match="before training has finished"):
        client.step("update", None)


@every_variant
def test_a_client_that_is_in_no_round_takes_no_update(variant):
    """What is trained from a model that was only looked at belongs to no round."""
    run = SteppedRun(variant)
    client = run.clients[0]
    phase = run.method.phases_of(run.model, 1)[0].name
    looked_at = run.initial.starting_point()
    for number in (None, 0, 1):
        with pytest.raises(PolicyError, match="the client is in no round"):
            client.finish_training(contraction(1, 0, replace(looked_at, round=number)))
    with pytest.raises(ParameterError, match="before training has finished"):
        client.step(phase, None)


@every_variant
def test_a_client_that_trains_again_after_a_message_goes_on_with_what_that_message_told_of(variant):
    """Else a mask that was chosen for one update decides what of another leaves in the clear, and where it is added."""
    run = SteppedRun(variant)
    begun = {}

    def train_again(phase, aggregator, messages):
        client = run.clients[0]
        model = run.method.message_for(0, run.begin_round(1))
        start = client.begin_round(1, CLIENTS, model)
        if messages[0].keys() <= {
            "round",
            "capability",
        }:  # tells nothing of an update, so that another may come
            client.finish_training(contraction(1, 0, start))
            return
        with pytest.raises(PolicyError, match="told of the update"):
            client.finish_training(contraction(9, 0, start))
        begun[phase] = start
        other = Message({**model, "parameters": bytes(model["parameters"])[::-1]})
        for participants, first in ((CLIENTS + 1, model), (CLIENTS, other)):
            with pytest.raises(PolicyError, match="began with another"):
                client.begin_round(1, participants, first)

    run.run_round(intrude=train_again)
    assert begun
    honest = honest_outcome(variant)
    assert_same_model(run, honest, variant)
    assert run.clients[0].disclosure == honest.disclosures[0]
    assert run.settings() == honest.settings
    assert repr(run.account.spent()) == honest.privacy_spent
    assert recorded(run) == honest.events


@pytest.mark.parametrize("label", ["dict-pfl", "sense-crypt/dense"])
def test_what_tells_nothing_of_an_update_does_not_hold_a_client_to_it(label):
    run = run_of(label)
    first = {}

    def train_again(phase, aggregator, messages):
        if phase in ("count", "cluster"):
            start = run.clients[0].begin_round(1, CLIENTS, run.method.message_for(0, run.begin_round(1)))
            run.clients[0].finish_training(contraction(9, 0, start))
            first.update(messages)

    run.run_round(intrude=train_again)
    assert first
    own = contraction(9, 0, run.initial.starting_point())
    np.testing.assert_array_equal(run.clients[0].update.parameters, own.parameters)


@every_variant
def test_messages_of_another_phase_are_refused(variant):
    """As everything that is refused they change nothing."""
    run = SteppedRun(variant)
    with pytest.raises(PolicyError, match="no phase has begun"):
        run.aggregator.receive("update", 0, Message())
    with pytest.raises(PolicyError, match="no phase has begun"):
        run.aggregator.close("update")

    def name_another(phase, aggregator, messages):
        for other in {"update", "scores", "mask", "ranking"} - {phase}:
            with pytest.raises(PolicyError, match=f"phase '{phase}'"):
                aggregator.receive(other, 0, messages[0])
            with pytest.raises(PolicyError, match=f"phase '{phase}'"):
                aggregator.close(other)
        if phase != "update":
            # Of a round whose keys, or whose zone, bounds or count, are missing: it does not begin.
            with pytest.raises((ParameterError, PolicyError)):
                aggregator.begin_phase("update", 2, None)

    run.run_round(intrude=name_another)
    assert_same_model(run, honest_outcome(variant), variant)


@every_variant
def test_a_phase_that_is_begun_again_forgets_what_had_arrived(variant):
    """One client sends in the phase at first alone, another in the last: what they sent is in nothing."""
    run, twin = SteppedRun(variant), SteppedRun(variant)
    phases = [phase.name for phase in run.method.phases_of(run.model, 1)]
    # SenseCrypt's clients introduce themselves for the whole run, not for a phase of it.
    first = "mask" if variant.method == "sense-crypt" else phases[0]

    def leave(phase, messages):
        for client, last in ((1, first), (2, "update")):
            if phase == last:
                del messages[client]

    def begin_again(phase, aggregator, messages):
        for client, message in messages.items():
            aggregator.receive(phase, client, message)
        leave(phase, messages)
        aggregator.close(phase)
        aggregator.begin_phase(phase, 1, [None, *run.answers.values()][-1])

    run.run_round(intrude=begin_again)
    twin.run_round(intrude=lambda phase, aggregator, messages: leave(phase, messages))
    assert_same_model(run, twin, variant)
