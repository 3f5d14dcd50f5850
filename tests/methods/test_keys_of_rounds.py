"""In every method a round's ciphertexts are under keys of that round, signed by the key authority."""

from __future__ import annotations

import functools
import weakref

import numpy as np
import pytest

from methods.honest_outcome import honest_outcome
from methods.method_conformance import SteppedRun, run_of
from methods.variants import CLIENTS, every_one_of, twins, variants
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import INVITED
from shieldfl.encryption import ckks
from shieldfl.errors import KeyMismatchError, PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.registry import method_class

ENCRYPTED = ("ciphertexts", "votes", "scores")


@functools.cache
def encrypting() -> list:
    """Return those that encrypt, which have an authority for keys."""
    return [one for one in variants() if method_class(one.method).schemes]


def is_ckks(run: SteppedRun) -> bool:
    return isinstance(run.reader.check.parameters["update"], ckks.Parameters)


every_variant_with_round_keys = every_one_of(
    [one for one in encrypting() + twins(variants()) if not one.enrols]
)


@every_variant_with_round_keys
def test_a_round_s_ciphertexts_are_under_its_own_keys_and_old_secrets_are_gone(variant):
    run = SteppedRun(variant)
    used: list[dict[str, set[bytes]]] = []
    secrets = []

    def watch(phase, aggregator, messages):
        for authority in run.authority.keys._held.values():
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
            run.authority.keys.opener(number)


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
    assert run.authority.keys._round == 2


def test_a_round_that_was_given_up_leaves_no_secret():
    run = run_of("full-he/ckks")
    with pytest.raises(PolicyError, match="min_clients"):
        run.run_round(dropping=[1, 2, 3])
    (held,) = [weakref.ref(one._decryptor) for one in run.authority.keys._held.values()]
    assert held() is not None
    run.begin_round(2)
    assert held() is None
    run.train_client(0, 2, CLIENTS, run.begin_round(2))
    with pytest.raises(PolicyError, match="wiped"):
        run.authority.keys.opener(1)
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)
