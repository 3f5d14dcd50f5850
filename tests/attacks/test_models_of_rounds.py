"""An aggregator gives clients another model, or another history, than the one that their round is of."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from attacks.linear_clients import variant_of
from methods.dict_pfl.dict_pfl_run import run_of
from methods.method_conformance import SteppedRun, contraction, initial_model, signed_answer
from methods.variants import CLIENTS, every_variant, labelled
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.encryption import ckks, kahe
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.stateful import encode_record


def refused(client, round_number: int, message: Message) -> None:
    """The client begins no round of it, and stays where it was."""
    before = client.round
    with pytest.raises(KeyMismatchError, match="model was not signed"):
        client.begin_round(round_number, CLIENTS, message)
    assert client.round == before


@pytest.mark.parametrize(
    "parts", [("history",), ("parameters", "buffers"), ("parameters", "buffers", "history")]
)
def test_no_old_or_altered_history_or_model_comes_with_a_later_round(parts):
    """By an old history, positions that came back to life since are left out; by an old model, sums are taken back."""
    run = run_of(first_probability=0.5)
    run.run_round()
    old = run.model
    run.run_round()
    first = run.begin_round(3)
    history = bytearray(zlib.decompress(first["history"]))
    history[-1] ^= 1
    for client in (run.clients[0], run.new_client(0)):
        refused(client, 3, Message({**first, **{name: old[name] for name in parts}}))
        refused(client, 3, Message({**first, "history": zlib.compress(bytes(history))}))
        assert client.begin_round(3, CLIENTS, first).round == 3
        assert client._active == run.authority.opener.rule._history.active_mask(3)


@every_variant
def test_all_clients_of_a_round_train_from_the_model_that_the_authority_signed(variant):
    run = SteppedRun(variant, rounds=3)
    earlier = run.method.message_for(0, run.begin_round(1))
    run.run_round()
    first = [run.method.message_for(index, run.begin_round(2)) for index in range(CLIENTS)]
    junk = (
        "more",
        "round key junk",
        "round signature of nothing",
        "round model:99",
        "round modelled after another",
    )
    moved = np.frombuffer(first[0]["parameters"], np.float32) + np.float32(1.0)
    lie = Message({**first[0], "parameters": moved.tobytes()})
    client = run.clients[0]
    if run.authority is None:
        # Nobody signs, so what the method does not know is refused: a client would keep it, and its states would.
        for more in junk:
            before = client.state()
            with pytest.raises(WireFormatError, match="parts that no model has"):
                client.begin_round(2, CLIENTS, Message({**first[0], more: bytes(1000)}))
            assert client.state() == before
        # Nobody but the aggregator knows the model: what it says is believed (docs/explanation/dishonest-parties.md).
        assert client.begin_round(2, CLIENTS, lie).round == 2
        return
    refused(client, 2, lie)
    for more in junk:
        before = client.changed()
        refused(client, 2, Message({**first[0], more: bytes(1000)}))
        assert encode_record(client.changed(), {}) == encode_record(before, {})
    refused(client, 2, Message({name: part for name, part in first[0].items() if name != "parameters"}))
    unsigned = {name: part for name, part in first[0].items() if not name.startswith("round model")}
    refused(client, 2, Message({**unsigned, "round model": earlier["round model"]}))
    with pytest.raises(PolicyError, match="no signature of its model"):
        client.begin_round(2, CLIENTS, Message(unsigned))
    client.begin_round(2, CLIENTS, first[0])


@every_variant
def test_the_authority_begins_no_round_that_was_answered_and_none_that_the_plan_does_not_have(variant):
    run = SteppedRun(variant, rounds=2)
    if run.authority is None:
        return
    first = run.authority.begin_round(1)
    assert run.authority.begin_round(1) == first
    run.run_round()
    with pytest.raises(PolicyError, match="round 1 has been answered"):
        run.authority.begin_round(1)
    for number in (0, 3, 10**6):
        with pytest.raises(PolicyError, match=f"round {number:,} is none of the plan's 2".replace(",", "")):
            run.authority.begin_round(number)
    run.run_round()
    assert run.authority.newest_model() == run.model


def test_a_question_for_a_round_that_does_not_run_ends_no_other():
    """The count of a round gives earlier ones up: asked for one that nobody began, it would leave none to be opened."""
    run = run_of(first_probability=0.5)
    run.run_round()
    run.begin_round(2)
    for number in (3, 500):
        with pytest.raises(PolicyError, match=f"round {number} does not run"):
            run.authority.answer("count", Message({"round": Message.from_number(number)}))
    run.run_round()


@pytest.mark.parametrize("label", ["fedml-he", "fedml-he/ckks"])
def test_scores_of_a_round_that_does_not_run_are_not_answered(label):
    """Answered, they would stand in the authority's state as of a round that no plan has: nobody could restore it."""
    variant = labelled(label)
    run = SteppedRun(variant, rounds=3)
    run.run_round()
    if variant.enrols:
        aggregator = kahe.Aggregator(run.reader.check.session_key("scores"), purpose="scores")
        encryptors = [run.encryptor("scores", client) for client in range(CLIENTS)]
    else:
        # Under a key of its own: that of the round is wiped, and nothing is opened once there is a mask.
        forger = KeyAuthority(run.authority.context.keys.parameters["scores"], min_clients=2)
        aggregator = ckks.Aggregator(forger.public_key)
        encryptors = [ckks.Encryptor(forger.public_key)] * CLIENTS
    for encryptor in encryptors:
        aggregator.add(encryptor.encrypt(np.ones(run.method.plan.parameters), weight=1.0, round=77))
    forged = {
        "round": Message.from_number(77),
        "total": aggregator.total().to_bytes(),
        "weight": Message.from_number(CLIENTS * run.method.plan.most_weight),
    }
    with pytest.raises(PolicyError, match="round 77 does not run"):
        run.authority.answer("scores", Message(forged))
    key = bytes(32)
    run.new_authority().restore(run.authority.state(key), key)


def test_a_cluster_s_model_is_not_given_to_clients_of_another_one():
    run = SteppedRun(variant_of("sense-crypt"))
    run.run_round()
    first = run.begin_round(2)
    own, others = (run.method.message_for(index, first) for index in (0, 1))
    assert {name: part for name, part in others.items() if name != "round model:1"} != own
    renamed = {"round model:0" if name == "round model:1" else name: part for name, part in others.items()}
    refused(run.clients[0], 2, Message(renamed))
    run.train_client(0, 2, CLIENTS, own)


@pytest.mark.parametrize(
    "label", ["fedavg", "dp-fedavg", "full-he", "sense-crypt", "selective-shield", "dict-pfl"]
)
def test_the_initial_model_cannot_be_changed_once_a_role_was_made_of_it(label):
    """Roles that are made one by one, by whoever holds the array, and a federation that makes them all."""
    variant = variant_of(label)
    run, initial = SteppedRun(variant, initial=initial_model()), initial_model()
    shared = {"shared_secret": run.shared_secret}
    authority, setup = run.method.authority_setup(initial, **shared)
    client = run.method.client_steps(setup, 0, 1, initial, **shared)
    aggregator = run.method.aggregator_steps(setup, [1] * CLIENTS, initial=initial)
    other = SteppedRun(variant, initial=initial)
    for vector in (initial.parameters, initial.buffers):
        vector[:] += np.float32(7.0)
    first = (authority or aggregator).newest_model()
    assert first == run.model == other.model
    if authority is not None:
        first = authority.begin_round(1)
    start = client.begin_round(1, CLIENTS, first)
    np.testing.assert_array_equal(start.parameters, run.initial.parameters)
    np.testing.assert_array_equal(client.update.buffers, run.initial.buffers)
    with pytest.raises(ValueError, match="WRITEABLE"):
        client.update.parameters.flags.writeable = True


AGREED = ["fedml-he", "fedml-he/paillier-dense", "alt-fl-pi", "alt-fl-si-he", "alt-fl-mp"]


NEGOTIATED = ["selective-shield/encrypted", "selective-shield/hidden"]


def negotiate(run: SteppedRun, number: int) -> tuple[str, Message]:
    """Begin a round and let all go through the phase before the update: its part that says a zone, and its answer."""
    first = run.begin_round(number)
    phase = run.method.phases_of(first, number)[0].name
    for index in range(CLIENTS):
        run.train_client(index, number, CLIENTS, first)
    run.aggregator.begin_phase(phase, number, None)
    for index, client in enumerate(run.clients):
        run.aggregator.receive(phase, index, client.step(phase, None))
    return "zone" if phase == "scores" else "encrypted zone", run.authority.answer(
        phase, run.aggregator.close(phase)
    )


def another_of_the_size(zone: Mask, parameters: int) -> Mask:
    """As many parameters, none of them the same, and all buffers."""
    others = np.flatnonzero(~zone.resized(parameters).to_bool())[: zone.resized(parameters).count]
    return Mask.from_indices(others, parameters).resized(zone.size, chosen=True)


@pytest.mark.parametrize("label", AGREED)
def test_no_answer_replaces_the_mask_of_the_signed_model_for_a_client_that_comes_late(label):
    run = SteppedRun(labelled(label))
    run.run_round([0, 1, 2])
    for number in (2, 3):
        first = run.begin_round(number)
        late = run.new_client(3)
        late.finish_training(contraction(number, 3, late.begin_round(number, CLIENTS, first)))
        lie = another_of_the_size(Mask.from_bytes(first["zone"]), run.method.plan.parameters)
        with pytest.raises(PolicyError, match="no signature"):
            late.step("update", Message({"zone": lie.to_bytes()}))
        with pytest.raises(PolicyError, match="signed model"):
            late.step("update", signed_answer(run, "scores", {"zone": lie.to_bytes()}))
        assert "ciphertexts" in late.step("update", None)


@pytest.mark.parametrize("label", AGREED + NEGOTIATED)
def test_no_zone_is_taken_that_the_authority_did_not_sign(label):
    """Neither by clients, who would send what it leaves out in the clear, nor by an honest aggregator."""
    run = SteppedRun(labelled(label))
    part, answer = negotiate(run, 1)
    zone = Mask.from_bytes(answer[part])
    lie = another_of_the_size(zone, run.method.plan.parameters) if part == "zone" else Mask.empty(zone.size)
    unsigned = Message({part: lie.to_bytes()})
    of_a_model = run.authority.keys.sign_model(digest_of_parts(unsigned), b"")["round model"]
    signed_otherwise = [
        Message({**answer, part: lie.to_bytes()}),
        Message({**answer, "more": b""}),
        Message({**unsigned, "round answer": of_a_model}),
        negotiate(SteppedRun(labelled(label)), 1)[1],
    ]
    takers = [
        lambda message: run.clients[0].step("update", message),
        lambda message: run.aggregator.begin_phase("update", 1, message),
    ]
    for take in takers:
        with pytest.raises(PolicyError, match="no signature"):
            take(unsigned)
        for message in signed_otherwise:
            with pytest.raises(KeyMismatchError, match="answer was not signed"):
                take(message)
    assert run.clients[0].disclosure.clear.count == run.clients[0].disclosure.noised.count == 0
    for take in takers:
        take(answer)


@pytest.mark.parametrize("label", NEGOTIATED)
def test_a_zone_of_an_earlier_round_is_not_taken_again(label):
    """It would leave out what has become sensitive since."""
    run = SteppedRun(labelled(label))
    _, old = negotiate(run, 1)
    _, answer = negotiate(run, 2)
    for take in (run.clients[0].step, lambda phase, message: run.aggregator.begin_phase(phase, 2, message)):
        with pytest.raises(KeyMismatchError, match="answer was not signed"):
            take("update", old)
        take("update", answer)
