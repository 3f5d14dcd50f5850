"""What a method's clients say that they hide, and do not, does not pass the suite that methods are tested by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shieldfl.masks import Mask
from shieldfl.methods.fedavg import FedAvgClient
from shieldfl.rounds.reports import Disclosure
from shieldfl.testing.conformance import (
    MethodCase,
    SteppedRun,
    check_facts,
    check_messages,
    check_records,
    check_shares,
)

CLIENTS = [0, 1, 2, 3]


def run_of(method):
    run = SteppedRun(MethodCase(method))
    run.run_round()
    return run


def claims_encryption(client, **_):
    client.disclosure = Disclosure.of_zone(Mask.full(client._size + client._buffer_count), client._size)


def test_a_plaintext_method_that_says_it_encrypts_is_found_out(monkeypatch):
    monkeypatch.setattr(FedAvgClient, "_disclose", claims_encryption)
    run = run_of("fedavg")
    assert run.clients[0].disclosure.shares()["encrypted"] == 1.0
    check_shares(run, CLIENTS)  # the words agree with each other
    with pytest.raises(AssertionError, match="update of phase update shows values that are stated as hidden"):
        check_messages(run, CLIENTS)
    with pytest.raises(AssertionError):  # no sum was opened
        check_records(run, 1, CLIENTS)


def test_a_plaintext_method_that_says_it_hides_all_is_found_out(monkeypatch):
    run = run_of("fedavg")
    check_messages(run, CLIENTS)
    check_facts(run)
    monkeypatch.setattr(type(run.method), "hides_all", True)
    with pytest.raises(AssertionError):
        check_shares(run, CLIENTS)


@pytest.mark.parametrize(
    "copied",
    [
        lambda update: update[:40].tobytes(),
        lambda update: b"0" + update[7:9].tobytes(),
        lambda update: np.float64(update[100]).tobytes(),
    ],
    ids=["a row", "two neighbours, not aligned", "a single float64"],
)
def test_a_copy_in_the_clear_beside_ciphertexts_is_found(copied):
    run = run_of("full-he")
    check_messages(run, CLIENTS)
    for client, message in run.sent["update"].items():
        update = run.updates[client].parameters - run.starts[client].parameters
        run.sent["update"][client] = {**message, "weight": bytes(message["weight"]) + copied(update)}
    with pytest.raises(AssertionError, match="weight of phase update"):
        check_messages(run, CLIENTS)


def test_what_is_stated_to_be_readable_may_be_read():
    run = run_of("full-he")
    for client in CLIENTS:
        update = run.updates[client].parameters - run.starts[client].parameters
        run.sent["update"][client] = {**run.sent["update"][client], "told": update.tobytes()}
        own = run.clients[client]
        own.disclosure = replace(own.disclosure, parts=(*own.disclosure.parts, "told"))
    check_messages(run, CLIENTS)
