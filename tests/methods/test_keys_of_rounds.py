"""In every method a round's ciphertexts are under keys of that round, signed by the key authority."""

from __future__ import annotations

import contextlib
import functools
import weakref

import numpy as np
import pytest

from methods.honest_outcome import honest_outcome
from methods.method_conformance import SteppedRun, contraction, run_of
from methods.variants import CLIENTS, every_enrolling_variant, every_one_of, twins, variants
from shieldfl.authority.authority_store import take_keys
from shieldfl.authority.key_authority import SumKeyAuthority
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import INVITED
from shieldfl.authority.round_keys import RoundSigner
from shieldfl.encryption import ckks, kahe
from shieldfl.errors import KeyMismatchError, PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.discovery import method_class

ENCRYPTED = ("ciphertexts", "votes", "scores")


@functools.cache
def encrypting() -> list:
    """Return those that encrypt, which have an authority for keys."""
    return [one for one in variants() if method_class(one.method).schemes]


def is_ckks(run: SteppedRun) -> bool:
    return isinstance(run.reader.check.parameters["update"], ckks.Parameters)


def keys_of(run: SteppedRun) -> RoundSigner:
    return run.authority.keys


every_variant_with_round_keys = every_one_of(
    [one for one in encrypting() + twins(variants()) if not one.enrols]
)


@every_variant_with_round_keys
def test_a_round_s_ciphertexts_are_under_its_own_keys_and_old_secrets_are_gone(variant):
    run = SteppedRun(variant)
    used: list[dict[str, set[bytes]]] = []
    secrets = []

    def watch(phase, aggregator, messages):
        for authority in keys_of(run)._authorities.values():
            secrets.append(weakref.ref(authority._decryptor))
        for name in ENCRYPTED:
            ids = {message[name][32:48] for message in messages.values() if name in message}
            if ids:
                used[-1][name] = ids

    for _ in range(2):
        used.append({})
        run.run_round([0, 1], intrude=watch)
    for name in used[0]:
        assert len(used[0][name]) == 1
    first, second = (set().union(*round_keys.values()) for round_keys in used)
    assert first
    assert second
    if is_ckks(run):
        assert not first & second
        # One total of each was answered, so even the newest are gone.
        assert len(secrets) >= 2
        assert not any(secret() for secret in secrets)
    else:
        assert used[0]["ciphertexts"] == used[1]["ciphertexts"]
    for number in (1, 2):
        with pytest.raises(PolicyError, match="wiped"):
            keys_of(run).opener(number)


@every_variant_with_round_keys
def test_a_substituted_or_replayed_key_is_refused_by_clients_and_aggregator(variant):
    run, stranger = SteppedRun(variant), SteppedRun(variant)
    earlier = run.begin_round(1)
    run.run_round()
    model = {**run.method.message_for(0, run.model), INVITED: Mask.full(CLIENTS).to_bytes()}
    foreign = {name: part for name, part in stranger.begin_round(2).items() if name.startswith("round ")}
    replayed = {name: part for name, part in earlier.items() if name.startswith("round ")}
    assert foreign
    client = run.clients[0]
    for keys, error in ((foreign, KeyMismatchError), (replayed, KeyMismatchError), ({}, PolicyError)):
        with pytest.raises(error):
            client.begin_round(2, CLIENTS, Message({**model, **keys}))
        with pytest.raises(error):
            run.aggregator.begin_round(2, Message({**run.model, **keys}))
    # What was refused changed nothing.
    assert client.round == 1
    run.run_round([0, 1])
    assert set(run.sent["update"][0]) == honest_outcome(variant, 2).sent_parts["update"]
    assert keys_of(run)._round == 2


def test_a_round_that_was_given_up_leaves_no_secret():
    run = run_of("full-he/ckks")
    with pytest.raises(PolicyError, match="min_clients"):
        run.run_round(dropping=[1, 2, 3])
    (held,) = [weakref.ref(one._decryptor) for one in keys_of(run)._authorities.values()]
    assert held() is not None
    run.begin_round(2)
    assert held() is None
    start = run.clients[0].begin_round(2, CLIENTS, run.begin_round(2))
    run.clients[0].finish_training(contraction(2, 0, start))
    with pytest.raises(PolicyError, match="wiped"):
        keys_of(run).opener(1)
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)


def secrets_of_clients(run: SteppedRun) -> list[dict[str, tuple[int, bytes]]]:
    """By client and purpose: the round that its key stands at, and the key."""
    return [client._own_keys._held for client in run.clients]


def stored_in(run: SteppedRun) -> list[dict[str, tuple[int, bytes]]]:
    """By client and purpose: the same, as the key authority has it."""
    return [
        {purpose: authority_key(one, client) for purpose, one in keys_of(run)._authorities.items()}
        for client in range(CLIENTS)
    ]


def authority_key(authority: SumKeyAuthority, client: int) -> tuple[int, bytes]:
    with authority._store._transaction() as change:
        found = take_keys(change, authority._session, [client])[client]
    return found.round, found.key


@every_enrolling_variant
def test_keys_of_clients_go_on_by_the_round_and_what_they_were_is_gone(variant):
    """Also those of clients that are not in it, and of purposes that it does not have."""
    run = SteppedRun(variant)
    earlier: list[dict[str, tuple[int, bytes]]] = []
    for number, participants in ((1, [0, 1]), (2, [0, 1, 2, 3])):
        run.begin_round(number, participants)
        stored, held = stored_in(run), secrets_of_clients(run)
        run.run_round(participants)
        assert {at for keys in stored for at, _ in keys.values()} == {number}
        for client in participants:
            now = run.clients[client]._own_keys._held
            assert {at for at, _ in now.values()} == {number}
            assert all(now[purpose] != held[client][purpose] for purpose in now)
            assert now == stored[client], "both have the same key, without a message between them"
        for client in range(CLIENTS):
            assert (run.clients[client].round == number) == (client in participants)
        with pytest.raises(PolicyError, match="over"):
            run.clients[0]._own_keys.key("update").advance_to(number - 1)
        assert all(
            keys[purpose] != before[purpose]
            for keys, before in zip(stored, earlier, strict=bool(earlier))
            for purpose in keys
        )
        earlier = stored


@every_enrolling_variant
def test_no_key_that_comes_along_is_encrypted_under(variant):
    """Every key follows from the set-up and the client's own secret: what else a message brings is not looked at."""
    run, stranger = SteppedRun(variant), SteppedRun(variant.under("ckks"))
    first = run.begin_round(1)
    assert not [name for name in first if name.startswith(("round key", "round signature"))]
    planted = {name: part for name, part in stranger.begin_round(1).items() if name.startswith("round key")}
    assert planted
    client = run.clients[0]
    start = client.begin_round(1, CLIENTS, Message({**run.method.message_for(0, first), **planted}))
    client.finish_training(contraction(1, 0, start))
    phase = run.method.phases_of(run.model, 1)[0].name
    message = client.step(phase, None)
    for name in set(ENCRYPTED) & set(message):
        purpose = "update" if name == "ciphertexts" else name
        batch = run.batch(message[name], purpose)
        assert isinstance(batch, kahe.CiphertextBatch)
        assert (batch.parsed.key_id, batch.client) == (run.reader.check.session_key(purpose).id, 0)
    # A message of an earlier round is none of this one, and changes nothing.
    other = run.clients[1]
    with pytest.raises(KeyMismatchError):
        other.begin_round(2, CLIENTS, run.method.message_for(1, first))
    assert other.round == 0
    assert {at for at, _ in other._own_keys._held.values()} == {0}


@every_enrolling_variant
def test_a_total_of_a_round_that_is_over_is_not_answered(variant):
    """One that was answered gets the same bytes, one that was given up none: its keys were overwritten."""
    run, requests = SteppedRun(variant), []

    def leave(phase, aggregator, messages):
        if phase == "update":
            for client in list(messages):
                requests.append(run.batch(messages[client]["ciphertexts"]))
            sums = kahe.Aggregator(run.reader.check.session_key("update"))
            for batch in requests:
                sums.add(batch)
            requests[:] = [sums.total().request()]
            del messages[1], messages[2], messages[3]

    authority = keys_of(run)._authorities["update"]
    # A cluster of too few keeps its model, and the round ends; elsewhere it does not.
    ends = variant.method == "sense-crypt"
    with contextlib.nullcontext() if ends else pytest.raises(PolicyError, match="min_clients"):
        run.run_round(intrude=leave)
    assert ends == any("too few" in note for note in run.account.notes)
    np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    run.begin_round(2)
    with pytest.raises(PolicyError, match="round 1 is over"):
        authority.sum_key(requests[0])
    run.run_round()
    assert np.isfinite(run.parameters).all()
