"""What SenseCrypt refuses: values, masks and messages that do not fit, from whichever role."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.sense_crypt.sense_crypt_cases import every_encryption, grouped, variant
from methods.variants import BUFFERS, CLIENTS
from shieldfl.authority.message import Message
from shieldfl.encryption import paillier
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask


def test_a_union_that_leaves_positions_out_gets_nothing():
    """An aggregator that lies about the union must not get a protected value in the clear."""
    for encryption, error in (("ckks", PolicyError), ("paillier-dense", ParameterError)):
        run = SteppedRun(variant(encryption=encryption))
        run.run_round()
        client = run.clients[0]
        start = client.begin_round(2, CLIENTS, run.method.message_for(0, run.begin_round(2)))
        client.finish_training(contraction(2, 0, start))
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
    start = client.begin_round(1, CLIENTS, model)
    client.finish_training(contraction(1, 0, start))
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
    start = client.begin_round(2, 6, run.method.message_for(0, run.begin_round(2)))
    client.finish_training(grouped(2, 0, start))
    client.step("cluster", None)
    answer = Message({"cluster": Message.from_number(6), "budget": np.float64(1.0).tobytes()})
    with pytest.raises(WireFormatError, match="no cluster of this number"):
        client.step("mask", answer)


@pytest.mark.parametrize("claimed", [1e-300, 0.0, -1.0])
def test_a_budget_that_others_bring_down_has_a_floor(claimed):
    run = SteppedRun(variant(encryption="ckks", information_bits=0.0, least_budget=0.25))
    client = run.clients[0]
    start = client.begin_round(1, CLIENTS, run.begin_round(1))
    client.finish_training(contraction(1, 0, start))
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
