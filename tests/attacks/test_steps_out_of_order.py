"""Whoever drives the rounds calls clients and aggregators in any order, twice, late, from two threads, or with lies."""

from __future__ import annotations

import numpy as np
import pytest

from methods.honest_outcome import assert_same_model, honest_outcome, recorded
from methods.method_conformance import SteppedRun, contraction, resigned, signed_answer
from methods.variants import CLIENTS, LAYER_OFFSETS, PARAMETERS, Variant, every_variant, labelled
from on_threads import on_threads
from shieldfl.authority.message import Message
from shieldfl.errors import (
    DuplicateFrameError,
    ParameterError,
    PolicyError,
    RangeError,
    ShieldError,
    WireFormatError,
)
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_update import MixedUpload
from shieldfl.privacy.events import OpenedSum
from shieldfl.stateful import encode_record


def noised(label: str, **changes):
    return labelled(label).with_settings(**changes).with_others(**changes)


@every_variant
def test_a_client_answers_the_phases_of_its_method_alone(variant):
    """Under another name it sent its update again: with fresh noise, or what had been encrypted in the clear."""
    run = SteppedRun(variant)
    run.run_round()
    before = recorded(run)
    for phase in ("nonsense", "Update", "update2", ""):
        for answer in (None, *run.answers.values()):
            with pytest.raises(ParameterError, match="phase"):
                run.clients[0].step(phase, answer)
    assert recorded(run) == before


@every_variant
def test_a_client_goes_back_to_no_round(variant):
    run = SteppedRun(variant)
    model = run.begin_round(5)
    client = run.clients[0]
    client.begin_round(5, CLIENTS, model)
    client.begin_round(6, CLIENTS, run.begin_round(6))
    with pytest.raises(PolicyError, match="round 5 is over"):
        client.begin_round(5, CLIENTS, model)
    for number in (-1, 6.25, "7", None):
        with pytest.raises(ParameterError, match="round_number"):
            client.begin_round(number, CLIENTS, model)
    assert client.round == 6


@pytest.mark.parametrize("label", ["fedml-he", "alt-fl-pi"])
def test_scores_are_sent_where_they_were_asked_for_alone(label):
    run = SteppedRun(labelled(label))
    run.run_round()
    client = run.clients[0]
    start = client.begin_round(2, CLIENTS, run.begin_round(2))
    assert start.scores is None
    client.finish_training(contraction(2, 0, start))
    with pytest.raises(ParameterError, match="scores"):
        client.step("scores", None)


@every_variant
def test_an_update_that_its_trainer_writes_over_later_is_sent_as_it_was_handed_in(variant):
    run = SteppedRun(variant)
    handed_in = []

    def write_over(phase, aggregator, messages):
        for update in handed_in:
            for vector in (update.parameters, update.buffers, update.scores):
                vector[:] = np.nan

    for client in run.clients:
        finish = client.finish_training
        client.finish_training = lambda update, finish=finish: (finish(update), handed_in.append(update))
    run.run_round(intrude=write_over)
    assert_same_model(run, honest_outcome(variant), variant)


@every_variant
def test_an_update_belongs_to_the_model_that_it_was_trained_from(variant):
    run = SteppedRun(variant)
    client, model = run.clients[0], run.begin_round(1)
    update = contraction(1, 0, client.begin_round(1, CLIENTS, model))
    moved = np.frombuffer(model["parameters"], dtype=np.float32) + np.float32(1.0)
    other = {**model, "parameters": moved.tobytes()}
    client.begin_round(1, CLIENTS, Message(other) if run.authority is None else resigned(run, other))
    with pytest.raises(PolicyError, match="begun again"):
        client.finish_training(update)


@pytest.mark.parametrize("cluster", [7, CLIENTS])
def test_a_refused_cluster_introduces_nobody(cluster):
    run = SteppedRun(labelled("sense-crypt/ckks"))
    client = run.clients[0]
    client.finish_training(contraction(1, 0, client.begin_round(1, CLIENTS, run.begin_round(1))))
    budget = np.float64(0.5).tobytes()
    right = Message({"cluster": Message.from_number(0), "budget": budget})
    with pytest.raises(ParameterError, match="introduce"):
        client.step("mask", right)
    introduction = client.step("cluster", None)
    with pytest.raises(ShieldError):
        client.step("mask", Message({"cluster": Message.from_number(cluster), "budget": budget}))
    client.finish_training(contraction(2, 0, client.begin_round(2, CLIENTS, run.begin_round(2))))
    again = client.step("cluster", None)
    assert again.keys() == introduction.keys() > {"round"}


def test_what_was_refused_is_not_charged():
    run = SteppedRun(noised("dp-fedavg", noise_multiplier=1.0))
    client = run.clients[0]
    largest = np.full_like(run.initial.parameters, np.finfo(np.float32).max)
    start = client.begin_round(
        1, CLIENTS, Message({**run.begin_round(1), "parameters": (-largest).tobytes()})
    )
    client.finish_training(start.trained(largest, start.buffers, largest))
    for _ in range(3):
        with pytest.raises(RangeError):
            client.step("update", None)
    assert recorded(run) == []
    assert np.isnan(run.account.spent().of_noise)


@every_variant
def test_an_aggregator_takes_each_client_once(variant):
    run = SteppedRun(variant)

    def send_again(phase, aggregator, messages):
        for client in (-1, -CLIENTS, CLIENTS, 1.0, "0"):
            with pytest.raises(ParameterError, match="client"):
                aggregator.receive(phase, client, messages[3])
        outcomes = []

        def send():
            try:
                aggregator.receive(phase, 0, messages[0])
                outcomes.append("taken")
            except DuplicateFrameError:
                outcomes.append("refused")

        on_threads(4, send, switch_seconds=1e-6)
        assert sorted(outcomes) == ["refused", "refused", "refused", "taken"]
        aggregator.begin_phase(phase, 1, [None, *run.answers.values()][-1])

    run.run_round(intrude=send_again)
    assert_same_model(run, honest_outcome(variant), variant)


@every_variant
def test_an_aggregator_that_has_closed_a_phase_takes_nothing_more_and_goes_back_to_no_round(variant):
    run = SteppedRun(variant)

    def come_late(phase, aggregator, messages):
        for client in (0, 1, 2):
            aggregator.receive(phase, client, messages[client])
        closed = aggregator.close(phase)
        with pytest.raises(PolicyError, match="closed"):
            aggregator.receive(phase, 3, messages[3])
        assert aggregator.close(phase) == closed
        aggregator.begin_phase(phase, 1, [None, *run.answers.values()][-1])

    run.run_round(intrude=come_late)
    run.run_round()
    for phase in run.sent:
        with pytest.raises(PolicyError, match="round 1 is over"):
            run.aggregator.begin_phase(phase, 1, None)
        for number in (-1, 2.5, "3"):
            with pytest.raises(ParameterError, match="round_number"):
                run.aggregator.begin_phase(phase, number, None)


@pytest.mark.parametrize(
    "label", ["selective-shield/clear", "selective-shield/encrypted", "sense-crypt/ckks"]
)
def test_values_are_not_placed_by_masks_of_the_round_before(label):
    run = SteppedRun(labelled(label))
    run.run_round()
    run.begin_round(2)
    phase, answer = [*run.answers.items()][-2]
    with pytest.raises(PolicyError, match="of round 2"):
        run.aggregator.begin_phase("update", 2, signed_answer(run, phase, answer))


def test_a_settled_zone_is_not_changed_by_an_answer():
    run = SteppedRun(labelled("full-he"))
    nothing = Message({"zone": Mask.empty(run.method.plan.update_size).to_bytes()})
    run.begin_round(1)
    with pytest.raises(PolicyError, match="settled"):
        run.aggregator.begin_phase("update", 1, nothing)


@every_variant
def test_an_aggregator_begins_the_phases_of_its_method_alone(variant):
    run = SteppedRun(variant)

    def begin_others(phase, aggregator, messages):
        for other in ("nonsense", "Update", ""):
            with pytest.raises(ParameterError, match="there is no phase"):
                aggregator.begin_phase(other, 1, None)

    run.run_round(intrude=begin_others)
    assert_same_model(run, honest_outcome(variant), variant)


def test_a_refused_phase_does_not_change_the_mask_that_was_agreed_on():
    run = SteppedRun(labelled("alt-fl-si-he"))
    run.run_round()
    agreed = Mask.from_bytes(run.answers["scores"]["zone"])
    other = Mask.from_bool(np.roll(agreed.to_bool()[:PARAMETERS], 1)).resized(agreed.size, chosen=True)
    for number in (2, 99):  # the second has no keys
        with pytest.raises(PolicyError):
            run.aggregator.begin_phase("update", number, Message({"zone": other.to_bytes()}))
    run.run_round()


def test_two_means_of_a_round_show_an_update_with_its_own_noise_alone():
    run = SteppedRun(noised("dp-fedavg", noise_multiplier=1.0))

    def close_twice(phase, aggregator, messages):
        for client in (0, 1, 2):
            aggregator.receive(phase, client, messages[client])
        aggregator.close(phase)
        aggregator.begin_phase(phase, 1, None)

    run.run_round(intrude=close_twice)
    spent = run.account.spent()
    assert spent.if_participants_true == spent.of_noise


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_a_sensitivity_that_was_sent_at_the_second_attempt_is_recorded(monkeypatch, epsilon):
    variant = labelled("sense-crypt/clusters").with_others(clustering_epsilon=epsilon)
    run = SteppedRun(variant)
    client = run.clients[0]
    client.finish_training(contraction(1, 0, client.begin_round(1, CLIENTS, run.begin_round(1))))
    with monkeypatch.context() as stopped:
        stopped.setattr(client, "_name", lambda *parts: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            client.step("cluster", None)
    assert recorded(run) == []
    assert "sensitivity" in client.step("cluster", None)
    assert any("what='sensitivity'" in one for one in recorded(run))


def test_a_tally_of_a_refused_message_is_not_told(monkeypatch):
    run = SteppedRun(labelled("batch-crypt"))

    def fail_first(phase, aggregator, messages):
        if phase == "ranges":
            encrypt = MixedUpload.encrypt
            with monkeypatch.context() as failing:
                failing.setattr(MixedUpload, "encrypt", lambda *args: (_ for _ in ()).throw(MemoryError))
                bounds = Message({"bounds": np.full(len(LAYER_OFFSETS), 0.5).tobytes()})
                with pytest.raises(MemoryError):
                    run.clients[0].step("update", bounds)
            assert MixedUpload.encrypt is encrypt
            assert run.clients[0].report().notes == ()

    run.run_round(intrude=fail_first)


OTHERS = ("cluster", "mask", "negotiate", "ranges", "ranking", "scores", "count", "update2", "")


@every_variant
def test_the_authority_answers_the_phases_alone_that_are_its_own(variant):
    """Refused before anything changes: what it opens under another name would not count as the round's answer."""
    run = SteppedRun(variant)
    if run.authority is None:
        return
    answered = {phase.name for phase in run.method.phases if phase.answered_by_authority}
    answer, asked = run.authority.answer, []

    def ask_under_other_names(phase, message):
        before = encode_record(run.authority.changed(), {})
        for other in sorted(set(OTHERS) - answered):
            with pytest.raises(ParameterError, match="phase"):
                answer(other, message)
            asked.append(other)
        assert encode_record(run.authority.changed(), {}) == before
        return answer(phase, message)

    run.authority.answer = ask_under_other_names
    run.run_round()
    run.run_round()
    assert {"cluster", "update2"} <= set(asked)
    key = bytes(32)
    run.new_authority().restore(run.authority.state(key), key)


class NotAskedError(Exception):
    """The authority is not asked."""


def asked(variant: Variant, phase: str = "update", **changes) -> tuple[SteppedRun, Message]:
    """A run whose first round goes on until the authority is asked in this phase, and what it is asked."""
    run, questions = SteppedRun(variant, **changes), []
    answer = run.authority.answer

    def stop(asked_phase, message):
        if asked_phase != phase:
            return answer(asked_phase, message)
        questions.append(message)
        raise NotAskedError

    run.authority.answer = stop
    with pytest.raises(NotAskedError):
        run.run_round()
    run.authority.answer = answer
    return run, questions[0]


def record(role) -> bytes:
    return bytes(encode_record(role.changed(), {}))


def refused(role, error: type[Exception], words: str, ask) -> None:
    before = record(role)
    for _ in range(2):
        with pytest.raises(error, match=words):
            ask()
    assert record(role) == before


def test_a_refused_total_does_not_change_the_zone_that_an_authority_holds():
    run, message = asked(labelled("selective-shield/clear"))
    others = {name: part for name, part in message.items() if name != "sums"}
    refused(
        run.authority,
        WireFormatError,
        "no part 'sums'",
        lambda: run.authority.answer("update", Message(others)),
    )
    run.authority.answer("update", message)


def test_a_refused_question_draws_nothing():
    run, _ = asked(labelled("dict-pfl"), "count")
    ask = Message({"round": Message.from_number(2)})
    refused(run.authority, PolicyError, "round 2 does not run", lambda: run.authority.answer("count", ask))


@pytest.mark.parametrize(
    ("label", "phase", "answer", "words"),
    [
        ("mask-crypt", "ranking", {"zone": b""}, "truncated"),
        ("batch-crypt", "ranges", {"bounds": np.full(4, 0.25).tobytes(), "zone": b""}, "settled"),
    ],
)
def test_a_client_keeps_what_it_has_where_an_answer_is_refused(label, phase, answer, words):
    run = SteppedRun(labelled(label))
    run.run_round()
    client = run.clients[0]
    client.finish_training(contraction(2, 0, client.begin_round(2, CLIENTS, run.begin_round(2))))
    client.step(phase, None)
    refused(client, ShieldError, words, lambda: client.step("update", Message(answer)))


@pytest.mark.parametrize("label", ["selective-shield/clear", "mask-crypt", "sense-crypt/ckks", "fedml-he"])
def test_sums_that_no_model_can_take_are_refused_before_a_total_is_opened(label):
    run, message = asked(labelled(label), server_learning_rate=1e3)
    name = "sums 0" if "sums 0" in message else "sums"
    too_large = np.full(len(message[name]) // 4, 3e38, dtype=np.float32)
    run.authority.report()
    refused(
        run.authority,
        RangeError,
        "not finite",
        lambda: run.authority.answer("update", Message({**message, name: too_large.tobytes()})),
    )
    assert run.authority.report().events == ()
    run.authority.answer("update", message)
    assert run.authority.report().events == (OpenedSum(1),)


def test_sums_at_positions_of_the_encrypted_zone_do_not_count():
    run, message = asked(labelled("selective-shield/clear"))
    sums = message.vector("sums", np.float32, PARAMETERS).copy()
    zone = Mask.from_bytes(message["encrypted zone"])
    assert zone.count
    zone.scatter(np.full(zone.count, 3e38, dtype=np.float32), sums)
    altered = run.authority.answer("update", Message({**message, "sums": sums.tobytes()}))
    again, honest = asked(labelled("selective-shield/clear"))
    assert altered == again.authority.answer("update", honest)


@pytest.mark.parametrize(
    "label", ["full-he", "dict-pfl", "batch-crypt", "sense-crypt/ckks", "selective-shield/clear"]
)
def test_a_sum_that_was_opened_for_nothing_is_told(label):
    """With the server's learning rate its values are too large for a model: that shows once they are known."""
    run, message = asked(labelled(label), server_learning_rate=1e45)
    message = Message(
        {name: bytes(len(part)) if name.startswith("sums") else part for name, part in message.items()}
    )
    run.authority.report()
    for _ in range(2):
        with pytest.raises(RangeError, match="not finite"):
            run.authority.answer("update", message)
        # Each time: what was told before may have been lost with a process, and an account counts rounds.
        assert run.authority.report().events == (OpenedSum(1),)
