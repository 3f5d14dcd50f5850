"""A plan's sizes and policies: what cannot be is refused, and rounds are of those whom it lets be asked."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from methods.method_conformance import initial_model
from methods.small_plan import small_plan
from shieldfl.authority.message import Message
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.full_encryption import FullEncryptionSettings
from shieldfl.methods.registry import MethodSettings, make_method, method_names
from shieldfl.rounds.method import EmbeddedRoles
from shieldfl.rounds.plan import FederationPlan

GOOD = small_plan(clients=3, samples=9)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_clients", 4),
        ("mean_weight", 1.5),
        *(("max_clients", most) for most in (1, 4)),
        *(("layer_offsets", (start, GOOD.parameters + more)) for start, more in ((0, -1), (0, 1), (1, 0))),
        ("layer_offsets", (0, 9, 5, GOOD.parameters)),
    ],
)
def test_values_that_contradict_each_other_are_refused_by_name(field, value):
    """Each field's own range is refused with those of all settings, from the schema."""
    with pytest.raises(ParameterError, match=field):
        replace(GOOD, **{field: value})


@pytest.mark.parametrize(
    "weights", [(), (1, 2), (1, 2, 3, 4), (1, 0, 1), (1, -1, 1), (2.5, 1, 1), (1, 1, 2**32), (1, 1, 2**70)]
)
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ParameterError, match="weight"):
        small_plan(weights, clients=3)


def test_the_ends_of_the_ranges_are_taken():
    widest = small_plan((1, 2**32 - 1, 1), clients=3, min_clients=3, samples=1, rounds=1)
    assert (widest.most_weight, widest.mean_weight) == (2**32 - 1, (2**32 + 1) / 3)
    assert small_plan(clients=1, min_clients=1).most_weight == 1


def test_numbers_of_any_library_make_the_same_plan():
    plain = small_plan((1, 2, 3), clients=3, samples=9, layer_offsets=(0, 5, GOOD.parameters))
    other = small_plan(
        np.array([1, 2, 3]),
        clients=np.int64(3),
        samples=np.uint8(9),
        server_learning_rate=1,
        layer_offsets=np.array([0, 5, GOOD.parameters]),
    )
    assert json.dumps(asdict(other)) == json.dumps(asdict(plain))


CLIENTS, MOST = 9, 3
PLAN = small_plan(clients=CLIENTS, max_clients=MOST)


def roles_of(encryption: str = "kahe", plan: FederationPlan = PLAN) -> EmbeddedRoles:
    settings = MethodSettings(full_he=FullEncryptionSettings(encryption=encryption))
    return EmbeddedRoles(make_method("full-he", settings, plan), initial_model(), threads=1)


def test_without_a_bound_it_is_all_clients():
    assert small_plan(clients=CLIENTS).most_participants == CLIENTS
    assert PLAN.most_participants == MOST


@pytest.mark.parametrize("name", method_names())
def test_sums_of_every_method_are_those_of_a_plan_of_so_many_clients(name):
    sizes = {"samples": 99, "buffers": 0, "layer_offsets": (0, 40, 48, 96, PLAN.parameters)}
    bounded, few, all_of_them = (
        make_method(name, MethodSettings(), small_plan(**sizes, **clients)).purposes
        for clients in ({"clients": CLIENTS, "max_clients": MOST}, {"clients": MOST}, {"clients": CLIENTS})
    )
    assert bounded == few
    assert bounded != all_of_them or not bounded


def test_the_authority_begins_rounds_of_as_many_of_the_plan_s_clients_as_it_says_and_of_the_same_again():
    begin_round = roles_of(
        plan=small_plan(clients=CLIENTS, min_clients=2, max_clients=MOST)
    ).authority.begin_round
    for others in (
        *(5, [0, 0, 1], [0, 99, 1], [-1, 0, 1], ["a", 0, 1], [0, 1, 2.5]),
        *([2**63, 0, 1], [2**64, 0, 1], [0, None, 1]),
    ):
        with pytest.raises(ParameterError, match=r"client|index|position"):
            begin_round(1, others)
    for invited, why in (
        (range(MOST + 1), "more than"),
        (None, "more than"),
        ([1], "fewer than min_clients"),
    ):
        with pytest.raises(PolicyError, match=why):
            begin_round(1, invited)
    first = begin_round(1, iter(range(2)))
    assert begin_round(1, [0, 1]) == first
    with pytest.raises(PolicyError, match="was begun with other clients"):
        begin_round(1, [0, 2])
    assert begin_round(2, range(MOST))


def test_a_client_trains_for_no_round_of_more():
    """Also where the authority is said to have signed it: a plan without the bound has another set-up."""
    roles = roles_of()
    first = roles.authority.begin_round(1, range(MOST), roles.aggregator.model_digest())
    with pytest.raises(PolicyError, match="has room for 3"):
        roles.clients[0].begin_round(1, MOST + 1, first)
    assert roles.clients[0].begin_round(1, MOST, first).round == 1


def test_an_authority_that_has_begun_no_round_goes_on_from_its_state():
    roles, key = roles_of(), bytes(32)
    again = EmbeddedRoles(roles.method, initial_model(), kept=(roles.parts(key), key))
    assert again.authority.begin_round(1, range(MOST), again.aggregator.model_digest())


def collected(roles: EmbeddedRoles, invited: list[int], updates: dict[int, float]) -> None:
    """Begin round 1 with the invited; those whose training adds so much to all parameters send, invited or not."""
    first = roles.authority.begin_round(1, invited, roles.aggregator.model_digest())
    roles.aggregator.begin_round(1, Message())
    roles.aggregator.begin_phase("update", 1, None)
    for client, update in updates.items():
        start = roles.clients[client].begin_round(1, len(invited), first)
        moved = start.parameters + np.float32(update)
        roles.clients[client].finish_training(start.trained(moved, start.buffers))
        roles.aggregator.receive("update", client, roles.clients[client].step("update", None))


def opened(roles: EmbeddedRoles, chosen: list[int]) -> None:
    """Have the clients open what was collected."""
    result = roles.aggregator.close("update")
    asked = roles.aggregator.request("update")
    answer = roles.authority.answer("update", asked)
    end = Message(
        {**result, **{name: asked[name] for name in asked if name not in ("round", "request")}, **answer}
    )
    roles.aggregator.keep(end, asked, chosen)
    for client in chosen:
        roles.clients[client].end_round(end)


@pytest.mark.parametrize("encryption", ["kahe", "pads"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_full_round_of_the_largest_values_is_summed_exactly(encryption, sign):
    """Clients with the highest numbers, each at the end of what a value may be."""
    roles = roles_of(encryption)
    most = (2**23 - 1) / 2**20 - 2.0**-10  # of which rounding of the model's float32 takes nothing beyond
    chosen = list(range(CLIENTS - MOST, CLIENTS))
    collected(roles, chosen, dict.fromkeys(chosen, sign * most))
    opened(roles, chosen)
    model = roles.clients[chosen[0]].global_model(Message())
    found = model.vector("parameters", np.float32, PLAN.parameters)
    expected = roles.initial.parameters + np.float32(sign * most)
    assert np.allclose(found, expected, atol=2.0**-19)


def test_fewer_take_fewer_bytes():
    """At a size at which frames are full."""
    sizes: list[float] = []
    for most in (None, 100):
        plan = small_plan(clients=1000, max_clients=most, parameters=100_000, buffers=0)
        parameters = make_method("full-he", MethodSettings(), plan).purposes["update"]
        assert scheme_of(parameters).name == "kahe"
        sizes.append(parameters.bytes_per_value)
    assert sizes[1] < 0.95 * sizes[0]


@pytest.mark.parametrize("encryption", ["kahe", "pads"])
def test_clients_that_are_not_invited_cannot_take_the_room_of_those_who_are(encryption, monkeypatch):
    """They send zeros first: the sum would be of one invited client alone, and they know what they sent."""
    plan = small_plan(clients=CLIENTS, min_clients=MOST, max_clients=MOST, opener="authority")
    roles = roles_of(encryption, plan)
    monkeypatch.setattr("shieldfl.rounds.training_client.check_invited", lambda *_: None)
    collected(roles, [0, 1, 2], {7: 0.0, 8: 0.0, 0: 1.0})
    total = roles.aggregator.close("update")
    with pytest.raises(PolicyError, match="not invited to round 1"):
        roles.authority.answer("update", total)
