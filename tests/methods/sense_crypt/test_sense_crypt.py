"""SenseCrypt's roles: what leaves a client, clusters and their models, budgets, weights, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.sense_crypt.sense_crypt_cases import (
    QUANTISATION,
    every_encryption,
    grouped,
    mean_update,
    variant,
)
from methods.variants import BUFFERS, CLIENTS, PARAMETERS
from shieldfl.authority.message import Message
from shieldfl.encryption import paillier
from shieldfl.encryption.registry import weighing_encryptions
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask, select, sense_crypt_budgets
from shieldfl.methods.sense_crypt.method import SenseCryptSettings
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import NoisedUpload, OpenedSum
from shieldfl.testing.conformance import float_spacing


@every_encryption
def test_only_what_the_mask_leaves_out_is_sent_in_the_clear(encryption):
    run = SteppedRun(variant(encryption=encryption, bandwidths=(1.0, 0.4), exposed_share=0.3))
    run.run_round()
    start, size = run.initial.starting_point(), run.initial.parameters.size
    for index, client in enumerate(run.clients):
        update = contraction(1, index, start)
        dense = np.concatenate((update.parameters - start.parameters, update.buffers - start.buffers))
        sent = run.sent["update"][index]
        assert set(sent) == {"round", "weight", "ciphertexts", "values"}
        own = np.append(client.selection.mask.to_bool(), np.ones(BUFFERS, dtype=bool))
        if encryption in weighing_encryptions():  # every client encrypts the union
            own = Mask.from_bytes(run.answers["mask"]["union 0"], size + BUFFERS).to_bool()
        values = np.frombuffer(sent["values"], dtype=np.float32)
        np.testing.assert_array_equal(values, dense[~own])
        assert client.disclosure.shares()["encrypted"] == pytest.approx(own[:size].mean())
        # Buffers are statistics of the client's data: never among them.
        assert own[size:].all()
    masks = [client.selection.mask for client in run.clients]
    assert masks[0] != masks[1]


def test_masks_follow_from_scores_weights_and_budgets():
    run = SteppedRun(variant(bandwidths=(4.0, 2.0, 1.0, 3.0), compute_speeds=(1.0, 8.0), exposed_share=0.5))
    run.run_round()
    budgets = sense_crypt_budgets([4.0, 2.0, 1.0, 3.0], [1.0, 8.0, 1.0, 8.0])
    start = run.initial.starting_point()
    for index, client in enumerate(run.clients):
        update = contraction(1, index, start)
        limits = SenseCryptSettings(information_bits=5.0, exposed_share=0.5).limits(budgets[index])
        expected = select(update.scores, update.parameters, limits)
        assert client.selection == expected
        sent = Mask.from_bytes(run.sent["mask"][index]["mask"])
        assert sent == expected.mask
        assert sent.count <= budgets[index] * PARAMETERS


def test_a_budget_that_is_too_small_is_kept_and_reported():
    run = SteppedRun(variant(bandwidths=(1.0, 0.01), information_bits=1.0, least_budget=0.02))
    run.run_round()
    run.run_round()
    short = run.clients[1].selection
    assert 0 < short.count <= 0.02 * PARAMETERS
    assert not short.meets_information
    notes = [note for note in run.account.notes if "too small" in note]
    assert [note.split(":")[0] for note in notes] == ["client 1", "client 3"]


@every_encryption
def test_two_groups_get_models_of_their_own(encryption):
    run = SteppedRun(
        variant(encryption=encryption, clustering="affinity-propagation"), clients=6, train=grouped
    )
    run.run_round()
    groups = ([0, 1, 4], [2, 3, 5])
    for group in groups:
        expected = mean_update(run, group, grouped)
        for client in group:
            merged = run.merged(client).parameters
            assert np.abs(merged - expected).max() <= QUANTISATION + float_spacing(merged, expected).max()
    assert not np.array_equal(run.merged(0).parameters, run.merged(2).parameters)
    assert any("2 cluster(s) of 3, 3" in note for note in run.account.notes)
    # What one group gets says nothing of the other.
    answer = run.method.message_for(0, run.answers["update"])
    assert set(answer) == {"parameters", "buffers"}
    assert len(run.method.message_for(2, run.answers["mask"])) == 1


@pytest.mark.parametrize("encryption", weighing_encryptions())
def test_a_cluster_s_total_is_opened_for_that_cluster_alone(encryption):
    """An aggregator that passes one cluster's sums as another's would move a model that their clients do not have."""
    run = SteppedRun(
        variant(encryption=encryption, clustering="affinity-propagation"), clients=6, train=grouped
    )
    run.run_round()
    honest = run.authority.newest_model()
    close, other = run.aggregator.close, {" 0": " 1", " 1": " 0"}

    def close_swapped(phase):
        message = close(phase)
        if phase != "update":
            return message
        return Message(
            {name[:-2] + other[name[-2:]] if name[-2:] in other else name: message[name] for name in message}
        )

    run.aggregator.close = close_swapped
    with pytest.raises((PolicyError, WireFormatError), match=r"not in it|another round"):
        run.run_round()
    assert run.authority.newest_model() == honest
    run.aggregator.close = close
    run.run_round()
    assert run.authority.newest_model() != honest


@pytest.mark.parametrize("encryption", weighing_encryptions())
def test_a_cluster_of_too_few_keeps_its_model_and_the_other_goes_on(encryption):
    """Also in the round after, of all clients: who was in no list of one round is in one of the next."""
    run = SteppedRun(
        variant(encryption=encryption, clustering="affinity-propagation"),
        clients=6,
        train=grouped,
        min_clients=3,
    )
    run.run_round()
    models = [run.merged(client).parameters.copy() for client in (0, 2)]
    sums = len([one for one in run.account.book.all if isinstance(one, OpenedSum)])
    run.run_round(dropping=[4])
    assert any(
        "round 2: 2 client(s) of cluster 0 sent an update, too few" in note for note in run.account.notes
    )
    np.testing.assert_array_equal(run.merged(0).parameters, models[0])
    assert not np.array_equal(run.merged(2).parameters, models[1])
    run.run_round()
    assert not np.array_equal(run.merged(0).parameters, models[0])
    # Each cluster's sum counts: two of the first round, one of the second, two of the third.
    assert sums == 2
    assert len([one for one in run.account.book.all if isinstance(one, OpenedSum)]) == 5


def test_clients_without_groups_stay_together_and_the_sensitivity_is_sent_once():
    run = SteppedRun(variant(clustering="affinity-propagation"))
    run.run_round()
    assert all("sensitivity" in message for message in run.sent["cluster"].values())
    assert any("silhouette" in note for note in run.account.notes)
    run.run_round()
    assert all(set(message) == {"round"} for message in run.sent["cluster"].values())
    expected = SteppedRun(variant())
    expected.run_round()
    expected.run_round()
    np.testing.assert_array_equal(run.parameters, expected.parameters)


def test_a_sensitivity_that_was_noised_keeps_its_noise_until_it_arrives():
    run = SteppedRun(variant(clustering="affinity-propagation", clustering_epsilon=1.0))
    sent = []
    for number in (1, 2):
        run.train_client(0, number, CLIENTS, run.begin_round(number))
        sent.append(run.clients[0].step("cluster", None)["sensitivity"])
    assert sent[0] == sent[1]
    noised = np.frombuffer(sent[0], dtype=np.float32)
    sigma = run.settings()["clustering_noise_multiplier"]
    assert noised.std() == pytest.approx(sigma * 1e-3, rel=6 / math.sqrt(2 * PARAMETERS))


def test_who_comes_later_joins_the_nearest_cluster_from_the_initial_model():
    run = SteppedRun(variant(clustering="affinity-propagation"), clients=6, train=grouped)
    run.run_round([0, 1, 2, 3])
    np.testing.assert_array_equal(run.merged(4).parameters, run.initial.parameters)
    before = run.merged(0).parameters
    run.run_round()
    np.testing.assert_array_equal(run.merged(4).parameters, run.merged(0).parameters)
    np.testing.assert_array_equal(run.merged(5).parameters, run.merged(2).parameters)
    assert not np.array_equal(run.merged(0).parameters, before)


def test_what_is_in_the_clear_is_not_called_private():
    run = SteppedRun(variant())
    run.account.charge_draw(CLIENTS)
    assert math.isnan(run.account.spent().epsilon)
    run.run_round()
    assert math.isinf(run.account.spent().epsilon)

    # A bound of 0 bits leaves no value in the clear, but the mask is: whether it chooses all follows from scores.
    for settings, charged in (
        ({"clustering": "none"}, math.nan),
        ({"clustering": "affinity-propagation"}, math.nan),
        ({"clustering": "affinity-propagation", "clustering_epsilon": 2.0}, 2.0),
    ):
        run = SteppedRun(variant(information_bits=0.0, encryption="ckks", **settings))
        run.account.charge_draw(CLIENTS)
        run.run_round()
        assert all(client.disclosure.shares()["clear"] == 0.0 for client in run.clients)
        spent = run.account.spent()
        assert math.isinf(spent.epsilon)
        assert spent.of_noise == pytest.approx(charged, nan_ok=True, rel=1e-3)
        assert not spent.of_noise > charged
        assert spent.rounds == 1
        # A client that comes again as a new one has drawn fresh noise for what it had sent: both are charged.
        if not math.isnan(charged):
            (noise,) = {event.noise for event in run.account.book.all if isinstance(event, NoisedUpload)}
            run.account.book.add(NoisedUpload(2, 0, noise, "sensitivity"))
            assert run.account.spent().of_noise == epsilon_of({noise: 2}, 1e-5) > 1.3 * charged


def test_a_union_that_leaves_positions_out_gets_nothing():
    """An aggregator that lies about the union must not get a protected value in the clear."""
    for encryption, error in (("ckks", PolicyError), ("paillier-dense", ParameterError)):
        run = SteppedRun(variant(encryption=encryption))
        run.run_round()
        client = run.clients[0]
        run.train_client(0, 2, CLIENTS, run.method.message_for(0, run.begin_round(2)))
        client.step("cluster", None)
        client.step("mask", run.method.message_for(0, run.answers["cluster"]))
        poor = Mask.from_indices([0], run.initial.parameters.size + BUFFERS)
        answer = {"union": poor.to_bytes(), "order": paillier.UnionOrder.from_masks([poor]).to_bytes()}
        with pytest.raises(error, match="union"):
            client.step("update", Message(answer))


def test_speeds_that_are_none_are_refused():
    run, refused = SteppedRun(variant(clustering="affinity-propagation")), []

    def intrude(phase, aggregator, messages):
        if phase == "cluster":
            for values in ([0.0, 1.0], [1.0, np.nan]):
                parts = {**messages[0], "capability": np.array(values).tobytes()}
                with pytest.raises(RangeError, match="client 0"):
                    aggregator.receive(phase, 0, Message(parts))
                refused.append(values)

    run.run_round(intrude=intrude)
    assert len(refused) == 2


@every_encryption
def test_an_aggregator_that_lies_to_the_authority_moves_no_model(encryption):
    run = SteppedRun(variant(encryption=encryption))
    run.run_round()
    honest = run.closed["update"]
    union = "union 0" if encryption == "ckks" else "order 0"
    other = Mask.from_indices(np.arange(9), run.initial.parameters.size + BUFFERS)
    elsewhere = (
        other.to_bytes() if encryption == "ckks" else paillier.UnionOrder.from_masks([other]).to_bytes()
    )
    lies = {
        union: elsewhere,
        "weight 0": Message.from_number(CLIENTS - 1),
        "sums 0": b"\xff" * len(honest["sums 0"]),
        "total 0": honest["total 0"][:-1],
        "clusters": honest["clusters"][:-8],
    }
    for name, part in lies.items():
        with pytest.raises(WireFormatError):
            run.authority.answer("update", Message({**honest, "round": Message.from_number(2), name: part}))
    # Right for round 1, which was answered; wrong for round 2, whose totals have another number.
    with pytest.raises(WireFormatError, match="another round"):
        run.authority.answer("update", Message({**honest, "round": Message.from_number(2)}))
    with pytest.raises(PolicyError, match="round 1 has been answered"):
        run.authority.answer("update", Message({**honest, "weight 0": Message.from_number(99)}))
    assert run.authority.answer("update", honest) == run.model


def test_messages_out_of_order_are_refused():
    run = SteppedRun(variant())
    round_part = {"round": Message.from_number(1)}
    model = run.begin_round(1)
    run.aggregator.begin_phase("mask", 1, None)
    mask = Mask.full(run.initial.parameters.size).to_bytes()
    with pytest.raises(PolicyError, match="without being in a cluster"):
        run.aggregator.receive("mask", 0, Message({**round_part, "mask": mask}))
    run.aggregator.begin_phase("update", 1, None)
    with pytest.raises(PolicyError, match="without a mask"):
        run.aggregator.receive("update", 0, Message(round_part))
    client = run.clients[0]
    run.train_client(0, 1, CLIENTS, model)
    with pytest.raises(ParameterError, match="needs the answer"):
        client.step("mask", None)


def test_what_an_earlier_round_chose_is_not_sent_in_a_later_one():
    run = SteppedRun(variant(encryption="ckks"))
    run.run_round()
    client = run.clients[0]
    start = client.begin_round(2, CLIENTS, run.method.message_for(0, run.begin_round(2)))
    with pytest.raises(ParameterError, match="training"):
        client.step("cluster", None)
    client.finish_training(contraction(2, 0, start))
    with pytest.raises(ParameterError, match="mask"):
        client.step("update", run.method.message_for(0, run.answers["mask"]))


def test_clients_never_change_their_cluster():
    run = SteppedRun(variant(clustering="affinity-propagation"), clients=6, train=grouped)
    run.run_round()
    changed = np.frombuffer(run.closed["update"]["clusters"], dtype=np.int64).copy()
    changed[[0, 2]] = changed[[2, 0]]
    parts = {**run.closed["update"], "round": Message.from_number(2), "clusters": changed.tobytes()}
    with pytest.raises(PolicyError, match="changed its cluster"):
        run.authority.answer("update", Message(parts))
    for wrong in (-2, 6, 2**40):
        parts["clusters"] = np.array([wrong, 0, 1, 1, 0, 1]).tobytes()
        with pytest.raises(WireFormatError, match="no cluster of this number"):
            run.authority.answer("update", Message(parts))
    client = run.clients[0]
    run.train_client(0, 2, 6, run.method.message_for(0, run.begin_round(2)))
    client.step("cluster", None)
    answer = Message({"cluster": Message.from_number(6), "budget": np.float64(1.0).tobytes()})
    with pytest.raises(WireFormatError, match="no cluster of this number"):
        client.step("mask", answer)


@pytest.mark.parametrize("claimed", [1e-300, 0.0, -1.0])
def test_a_budget_that_others_bring_down_has_a_floor(claimed):
    run = SteppedRun(variant(encryption="ckks", information_bits=0.0, least_budget=0.25))
    client = run.clients[0]
    run.train_client(0, 1, CLIENTS, run.begin_round(1))
    client.step("cluster", None)
    answer = Message({"cluster": Message.from_number(0), "budget": np.float64(claimed).tobytes()})
    mask = Mask.from_bytes(client.step("mask", answer)["mask"])
    assert mask.count == int(0.25 * run.initial.parameters.size)


@pytest.mark.parametrize("cluster", [-2, CLIENTS, 2**62, -(2**63)])
def test_clusters_that_there_are_not_are_refused_where_messages_are_passed_on(cluster):
    method = SteppedRun(variant()).method
    clusters = np.array([0, cluster, 0, -1])
    for parts in ({}, {"budgets": np.ones(CLIENTS).tobytes()}):
        message = Message({"clusters": clusters.tobytes(), **parts})
        for call in (method.message_for, method.has_model):
            with pytest.raises(WireFormatError, match="no cluster of this number"):
                call(1, message)


def test_there_is_no_budget_for_a_client_that_is_in_no_cluster():
    method = SteppedRun(variant()).method
    clusters, budgets = np.array([0, 0, 0, -1]), np.ones(CLIENTS)
    answer = Message({"clusters": clusters.tobytes(), "budgets": budgets.tobytes()})
    assert method.message_for(0, answer).number("cluster") == 0
    with pytest.raises(WireFormatError, match="client 3 is in no cluster"):
        method.message_for(3, answer)
    assert not method.has_model(3, Message({"clusters": clusters.tobytes()}))
