"""SenseCrypt's roles: what leaves a client, clusters and their models, budgets, weights, clients that come and go."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import (
    BUFFERS,
    CLIENTS,
    PARAMETERS,
    SteppedRun,
    Variant,
    contraction,
    float_spacing,
    initial_model,
)
from shieldfl import ckks, paillier
from shieldfl.encryption_budgets import sense_crypt_budgets
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.method import LocalUpdate, StartingPoint
from shieldfl.methods.selective_shield_settings import SelectiveShieldSettings
from shieldfl.methods.sense_crypt import SenseCrypt
from shieldfl.methods.sense_crypt_settings import ENCRYPTIONS, SenseCryptSettings
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message
from shieldfl.selection import select

# Half a step of 2^-20 for each value, at most, and as much again for the sum of plain numbers.
QUANTISATION = 2.0**-20


def variant(**settings) -> Variant:
    chosen = {"key_bits": 2048, "information_bits": 5.0, "clustering": "none", **settings}
    return Variant("sense-crypt", SelectiveShieldSettings(), "sense-crypt", SenseCryptSettings(**chosen))


def grouped(round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
    """Train like ``contraction``, with sensitivities by which clients 0, 1, 4 and 2, 3, 5 are two groups."""
    update = contraction(round_number, client, start)
    group = 0 if client in (0, 1, 4) else 1
    pattern = np.random.default_rng(group).random(PARAMETERS, dtype=np.float32)
    own = np.random.default_rng(10 + client).random(PARAMETERS, dtype=np.float32)
    return replace(update, scores=pattern + np.float32(0.01) * own)


def mean_update(run: SteppedRun, clients: list[int], train=contraction, weights=None) -> np.ndarray:
    start = run.initial.starting_point()
    updates = [train(1, client, start).parameters - start.parameters for client in clients]
    return start.parameters + np.average(np.array(updates, dtype=np.float64), axis=0, weights=weights)


every_encryption = pytest.mark.parametrize("encryption", ENCRYPTIONS)


@every_encryption
def test_only_what_the_mask_leaves_out_is_sent_in_the_clear(encryption):
    run = SteppedRun(variant(encryption=encryption, bandwidths=(1.0, 0.4), exposed_share=0.3))
    run.run_round()
    start = run.initial.starting_point()
    for index, client in enumerate(run.clients):
        update = contraction(1, index, start)
        dense = np.concatenate((update.parameters - start.parameters, update.buffers - start.buffers))
        sent = run.sent["update"][index]
        assert set(sent) == {"round", "weight", "ciphertexts", "values"}
        own = np.append(client.selection.mask.to_bool(), np.ones(BUFFERS, dtype=bool))
        if encryption == "ckks":
            own = Mask.from_bytes(run.answers["mask"]["union 0"], PARAMETERS + BUFFERS).to_bool()
        values = np.frombuffer(sent["values"], dtype=np.float32)
        np.testing.assert_array_equal(values, dense[~own])
        assert client.disclosure.shares()["encrypted"] == pytest.approx(own[:PARAMETERS].mean())
        # Buffers are statistics of the client's data: never among them.
        assert own[PARAMETERS:].all()
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
    run = SteppedRun(variant(bandwidths=(1.0, 0.01), information_bits=1.0))
    run.run_round()
    run.run_round()
    short = run.clients[1].selection
    assert short.count <= 0.01 * PARAMETERS
    assert not short.meets_information
    notes = [note for note in run.method.notes if "too small" in note]
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
    assert any("2 cluster(s) of 3, 3" in note for note in run.method.notes)
    # What one group gets says nothing of the other.
    answer = run.method.message_for(0, run.answers["update"])
    assert set(answer) == {"parameters", "buffers"}
    assert len(run.method.message_for(2, run.answers["mask"])) == 1


def test_clients_without_groups_stay_together_and_the_sensitivity_is_sent_once():
    run = SteppedRun(variant(clustering="affinity-propagation"))
    run.run_round()
    assert all("sensitivity" in message for message in run.sent["cluster"].values())
    assert any("silhouette" in note for note in run.method.notes)
    run.run_round()
    assert all(set(message) == {"round"} for message in run.sent["cluster"].values())
    expected = SteppedRun(variant())
    expected.run_round()
    expected.run_round()
    np.testing.assert_array_equal(run.parameters, expected.parameters)


def test_a_sensitivity_that_was_noised_keeps_its_noise_until_it_arrives():
    run = SteppedRun(variant(clustering="affinity-propagation", clustering_epsilon=1.0))
    start = run.initial.starting_point()
    sent = []
    for number in (1, 2):
        run.clients[0].begin_round(number, CLIENTS, run.model)
        run.clients[0].finish_training(contraction(number, 0, start))
        sent.append(run.clients[0].step("cluster", None)["sensitivity"])
    assert sent[0] == sent[1]
    noised = np.frombuffer(sent[0], dtype=np.float32)
    sigma = run.method.settings()["clustering_noise_multiplier"]
    assert noised.std() == pytest.approx(sigma, rel=6 / math.sqrt(2 * PARAMETERS))


def test_who_comes_later_joins_the_nearest_cluster_from_the_initial_model():
    run = SteppedRun(variant(clustering="affinity-propagation"), clients=6, train=grouped)
    run.run_round([0, 1, 2, 3])
    late = run.method.message_for(4, run.model)
    np.testing.assert_array_equal(late.vector("parameters", np.float32, PARAMETERS), run.initial.parameters)
    before = run.merged(0).parameters
    run.run_round()
    np.testing.assert_array_equal(run.merged(4).parameters, run.merged(0).parameters)
    np.testing.assert_array_equal(run.merged(5).parameters, run.merged(2).parameters)
    assert not np.array_equal(run.merged(0).parameters, before)


def test_a_cluster_of_too_few_clients_is_merged_or_keeps_its_model():
    def lonely(round_number, client, start):
        update = grouped(round_number, client, start)
        return replace(update, scores=update.scores + np.float32(5.0)) if client == 5 else update

    run = SteppedRun(variant(clustering="affinity-propagation"), clients=6, train=lonely)
    run.run_round()
    assert sum("merged" in note for note in run.method.notes) == 1
    assert np.isfinite(run.merged(5).parameters).all()

    run = SteppedRun(variant(clustering="affinity-propagation"), clients=6, train=grouped)
    run.run_round(dropping=[0, 1])
    assert any("cluster 0" in note and "its model stays" in note for note in run.method.notes)
    np.testing.assert_array_equal(run.merged(4).parameters, run.initial.parameters)
    assert not np.array_equal(run.merged(2).parameters, run.initial.parameters)
    run.run_round()
    assert not np.array_equal(run.merged(4).parameters, run.initial.parameters)


@every_encryption
def test_clients_count_by_their_weights(encryption):
    weights = (5, 1, 3, 11)
    run = SteppedRun(variant(encryption=encryption), weights=weights)
    run.run_round()
    expected = mean_update(run, [0, 1, 2, 3], weights=weights)
    # Under CKKS a value is quantised after it was scaled by its weight over the largest.
    tolerance = QUANTISATION * (11 * CLIENTS / sum(weights) if encryption == "ckks" else 1)
    difference = np.abs(run.parameters - expected)
    assert difference.max() <= tolerance + float_spacing(run.parameters, expected).max()
    plain = SteppedRun(Variant("fedavg", SelectiveShieldSettings(), "plain"), weights=weights)
    plain.run_round()
    assert np.abs(run.parameters - plain.parameters).max() <= tolerance + 2 * np.spacing(np.float32(2.0))


@pytest.mark.parametrize("weight", [0, 12, 2**40])
@every_encryption
def test_a_weight_out_of_range_is_refused(encryption, weight):
    run = SteppedRun(variant(encryption=encryption), weights=(5, 1, 3, 11))

    def intrude(phase, aggregator, messages):
        if phase == "update":
            parts = {**messages[0], "weight": Message.from_number(weight)}
            with pytest.raises(RangeError, match="weight"):
                aggregator.receive(phase, 0, Message(parts))

    run.run_round(intrude=intrude)


@pytest.mark.parametrize("weights", [(1, 2, 3), (1, 1, 1, 0)])
def test_weights_that_fit_no_federation(weights):
    with pytest.raises(ParameterError, match="weight"):
        SenseCrypt(
            initial_model(), StageClock(), SenseCryptSettings(encryption="ckks"), clients=4, weights=weights
        )


def test_a_union_that_leaves_positions_out_gets_nothing():
    """An aggregator that lies about the union must not get a protected value in the clear."""
    for encryption, error in (("ckks", PolicyError), ("paillier-dense", ParameterError)):
        run = SteppedRun(variant(encryption=encryption))
        run.run_round()
        client = run.clients[0]
        client.begin_round(2, CLIENTS, run.method.message_for(0, run.model))
        client.finish_training(contraction(2, 0, run.initial.starting_point()))
        client.step("cluster", None)
        client.step("mask", run.method.message_for(0, run.answers["cluster"]))
        poor = Mask.from_indices([0], PARAMETERS + BUFFERS)
        answer = {"union": poor.to_bytes(), "order": paillier.UnionOrder.from_masks([poor]).to_bytes()}
        with pytest.raises(error, match="union"):
            client.step("update", Message(answer))


def test_nan_sensitivities_are_refused_by_client_and_aggregator():
    def broken(round_number, client, start):
        update = contraction(round_number, client, start)
        update.scores[7] = np.nan
        return update

    with pytest.raises(RangeError, match="sensitivity"):
        SteppedRun(variant(), train=broken).run_round()
    with pytest.raises(ParameterError, match="scores"):
        SteppedRun(
            variant(), train=lambda *arguments: replace(contraction(*arguments), scores=None)
        ).run_round()

    refused = []

    def intrude(phase, aggregator, messages):
        if phase != "cluster":
            return
        for name, values in (
            ("sensitivity", np.full(PARAMETERS, np.inf, dtype=np.float32)),
            ("capability", np.array([0.0, 1.0])),
            ("capability", np.array([1.0, np.nan])),
        ):
            with pytest.raises(RangeError, match="client 0"):
                aggregator.receive(phase, 0, Message({**messages[0], name: values.tobytes()}))
            refused.append(name)

    run = SteppedRun(variant(clustering="affinity-propagation"))
    run.run_round(intrude=intrude)
    assert len(refused) == 3


@every_encryption
def test_an_aggregator_that_lies_to_the_authority_moves_no_model(encryption):
    run = SteppedRun(variant(encryption=encryption))
    run.run_round()
    honest = run.closed["update"]
    union = "union 0" if encryption == "ckks" else "order 0"
    other = Mask.from_indices(np.arange(9), PARAMETERS + BUFFERS)
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
    run.aggregator.begin_phase("cluster", 1, None)
    mask = Mask.full(PARAMETERS).to_bytes()
    with pytest.raises(PolicyError, match="without being in a cluster"):
        run.aggregator.receive("mask", 0, Message({**round_part, "mask": mask}))
    with pytest.raises(PolicyError, match="without a mask"):
        run.aggregator.receive("update", 0, Message(round_part))
    client = run.clients[0]
    client.begin_round(1, CLIENTS, run.model)
    client.finish_training(contraction(1, 0, run.initial.starting_point()))
    with pytest.raises(ParameterError, match="needs the answer"):
        client.step("mask", None)


def test_what_is_in_the_clear_is_not_called_private():
    run = SteppedRun(variant())
    run.method.charge_draw(CLIENTS)
    assert run.method.privacy_spent().paper == 0.0
    run.run_round()
    assert math.isinf(run.method.privacy_spent().paper)

    # A bound of 0 bits leaves nothing in the clear: what is left is the upload for clustering.
    for settings, epsilon in (
        ({"clustering": "none"}, 0.0),
        ({"clustering": "affinity-propagation"}, math.inf),
        ({"clustering": "affinity-propagation", "clustering_epsilon": 2.0}, 2.0),
    ):
        run = SteppedRun(variant(information_bits=0.0, encryption="ckks", **settings))
        run.method.charge_draw(CLIENTS)
        run.run_round()
        assert all(client.disclosure.shares()["clear"] == 0.0 for client in run.clients)
        spent = run.method.privacy_spent()
        assert (spent.paper, spent.added, spent.rounds) == (epsilon, epsilon, 1)


@pytest.mark.parametrize(
    "bad",
    [
        {"encryption": "rsa"},
        {"clustering": "k-means"},
        {"key_bits": 1024},
        {"bandwidths": ()},
        {"bandwidths": (1.0, 0.0)},
        {"bandwidths": (1.0, -2.0)},
        {"compute_speeds": (math.nan,)},
        {"compute_speeds": ("fast",)},
        {"clustering_epsilon": 0.0},
        {"clustering_epsilon": math.inf},
        {"clustering_delta": 1.0},
        {"clustering_clip_norm": 0.0},
        {"exposed_share": 0.0},
        {"exposed_share": 1.1},
        {"exposure_decay": 0.0},
        {"information_bits": -1.0},
        {"cost_weight": 0.0},
        {"least_silhouette": 1.5},
        {"fraction_bits": -1},
        {"value_bits": 2.5},
    ],
)
def test_settings_out_of_range(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        SenseCryptSettings(**bad)


def test_settings_say_what_they_come_to():
    run = SteppedRun(variant(clustering="affinity-propagation", clustering_epsilon=0.5))
    settings = run.method.settings()
    assert settings["clustering_noise_multiplier"] == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 0.5)
    assert settings["weights"] == "uniform"
    assert settings["bytes_per_encrypted_value"] < 20
    single = SteppedRun(variant(encryption="paillier-single")).method.settings()
    assert single["bytes_per_encrypted_value"] == pytest.approx(512)
    keys = {type(SteppedRun(variant(encryption=name)).method._keys.public_key) for name in ENCRYPTIONS}
    assert keys == {ckks.PublicKey, paillier.PublicKey}
