"""An aggregator tells a client of other participants than the key authority has signed, or asks one that it has not."""

from __future__ import annotations

import pytest

from methods.method_conformance import SteppedRun, resigned
from methods.variants import (
    CLIENTS,
    every_variant,
    labelled,
    opened_by_aggregator,
    opened_by_clients,
    twins,
    variants,
)
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import INVITED
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.stateful import encode_record

ONE_OF_EACH = [
    labelled("full-he"),
    *twins([labelled("full-he")]),
    *opened_by_clients([labelled("full-he")]),
    *opened_by_aggregator([labelled("full-he")]),
    labelled("plain-he"),
    labelled("sense-crypt/clusters"),
]
one_of_each = pytest.mark.parametrize("variant", ONE_OF_EACH, ids=lambda variant: variant.label)


@every_variant
def test_no_client_is_told_of_more_or_fewer_than_the_authority_signed(variant):
    """Noise follows from how many take part: told of two in place of four, clients of SelectiveShield add less."""
    run = SteppedRun(variant)
    client, first = run.clients[0], run.method.message_for(0, run.begin_round(1, [0, 1, 2]))
    if run.authority is None:
        # Nobody signs: the aggregator is believed, within the plan's bounds, and no noise follows from what it says.
        assert client.begin_round(1, 2, first).noise == run.new_client(0).begin_round(1, 4, first).noise
        return
    before = encode_record(client.changed(), {})
    for stated in (2, 4):
        with pytest.raises(PolicyError, match="signed that 3 are invited"):
            client.begin_round(1, stated, first)
    assert encode_record(client.changed(), {}) == before
    assert client.begin_round(1, 3, first).round == 1


@one_of_each
def test_who_is_not_invited_sends_nothing(variant):
    run = SteppedRun(variant)
    whole = run.begin_round(1, [0, 1, 2])
    client, first = run.clients[3], run.method.message_for(3, whole)
    before = encode_record(client.changed(), {})
    with pytest.raises(PolicyError, match="client 3 is not invited to round 1"):
        client.begin_round(1, 3, first)
    everybody = Mask.full(CLIENTS).to_bytes()
    # The list is signed with the model, for this round.
    for lie in (everybody, Mask.from_indices([0, 1, 3], CLIENTS).to_bytes(), b""):
        with pytest.raises(KeyMismatchError, match="said to be invited"):
            client.begin_round(1, 3, Message({**first, INVITED: lie}))
    with pytest.raises(PolicyError, match="does not say who is invited"):
        client.begin_round(1, 3, Message({name: part for name, part in first.items() if name != INVITED}))
    # Signed by an authority that lies: a client looks for itself, and at other sizes too.
    for size in (CLIENTS - 1, CLIENTS + 1):
        with pytest.raises(WireFormatError):
            client.begin_round(1, 3, resigned(run, {**first, INVITED: Mask.full(size).to_bytes()}))
    assert encode_record(client.changed(), {}) == before
    assert client.begin_round(1, 4, resigned(run, {**first, INVITED: everybody})).round == 1


@pytest.mark.every_run("True-sense-crypt/clusters", "True-full-he/opened by the aggregator", "False-full-he")
@one_of_each
@pytest.mark.parametrize("restarts", [False, True])
def test_a_round_has_one_list_of_invited_clients(variant, restarts):
    """Of two lists with their signatures one could be shown to one client, and the other to the others."""
    run = SteppedRun(variant, restarts_roles=restarts, rounds=5)
    digest = run.aggregator.model_digest()
    first = run.authority.begin_round(1, [2, 0, 1], digest)
    assert run.authority.begin_round(1, (0, 1, 2), digest) == first
    for other in (None, [0, 1], [0, 1, 3]):
        with pytest.raises(PolicyError, match="begun with other clients"):
            run.authority.begin_round(1, other, digest)
    for few in ([], [1]):
        with pytest.raises(PolicyError, match="fewer than min_clients = 2"):
            run.authority.begin_round(2, few, digest)
    for wrong in ([0, 1, CLIENTS], [0, 1, -1], [0, 1, 1], [0, 1, 1.5], "012"):
        with pytest.raises(ParameterError):
            run.authority.begin_round(2, wrong, digest)
    assert run.authority.begin_round(1, [0, 1, 2], digest) == first
    run.run_round([0, 1, 2])
    run.run_round([1, 2, 3])


@pytest.mark.parametrize("opened_by", [opened_by_clients, opened_by_aggregator])
def test_no_list_with_a_client_that_was_not_invited_is_answered(opened_by):
    run = SteppedRun(opened_by([labelled("full-he")])[0])
    first = run.begin_round(1)
    stranger = run.new_authority()
    stranger.restore(run.authority.state(bytes(32)), bytes(32))
    run.aggregator.begin_phase("update", 1, None)
    for index, client in enumerate(run.clients):
        run.train_client(index, 1, CLIENTS, first)
        run.aggregator.receive("update", index, client.step("update", None))
    run.aggregator.close("update")
    request = run.aggregator.request("update")
    assert run.authority.answer("update", request)
    stranger._invitations._invited = Mask.from_indices([0, 1, 2], CLIENTS)
    with pytest.raises(PolicyError, match="not invited to round 1"):
        stranger.answer("update", request)


def test_every_method_with_an_authority_says_whom_it_invites():
    for variant in variants():
        run = SteppedRun(variant)
        first = run.method.message_for(1, run.begin_round(1, [1, 2]))
        assert (INVITED in first) == (run.authority is not None)
        if run.authority is not None:
            assert Mask.from_bytes(first[INVITED], CLIENTS).to_indices().tolist() == [1, 2]
