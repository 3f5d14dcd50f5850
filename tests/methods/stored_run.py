"""Federations whose authority has its state in a file, stepped by hand and continued from it."""

from __future__ import annotations

from functools import partialmethod

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import round_key_parts
from shieldfl.rounds.method import Method

KEY = bytes(32)
"""Of the stores, and of states without one."""


def same_in_every_round(round_number, client, start):
    """Train deterministically, so that sums of two rounds from one model differ by who is in them alone."""
    target = np.random.default_rng(client)
    moved = [
        own + np.float32(0.1) * (target.normal(0, 1, own.size).astype(np.float32) - own)
        for own in (start.parameters, start.buffers)
    ]
    return start.trained(*moved, target.random(start.parameters.size, dtype=np.float32))


def run_in_file(path, variant, **changes):
    store = AuthorityStore.create(path, KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Method, "authority_setup", partialmethod(Method.authority_setup, store=store))
        return SteppedRun(variant, **changes)


def restart(run, path):
    """Put in the place of the run's authority, which ends, one that continues from the file."""
    run.authority.close()
    run.authority = run.method.authority_steps(
        run.setup,
        run.initial,
        threads=1,
        shared_secret=run.shared_secret,
        store=AuthorityStore(path, KEY),
    )


def closed_over(run, phase, number, clients, first, participants=4, trained=()):
    """Return an aggregator that has closed a phase over these clients' messages, and what it closed with.

    Those of them that have ``trained`` in the round before do not do so again.
    """
    aggregator = run.new_aggregator()
    aggregator.begin_round(number, Message(round_key_parts(first)))
    aggregator.begin_phase(phase, number, None)
    for client in clients:
        if client not in trained:
            run.train_client(client, number, participants, first)
        aggregator.receive(phase, client, run.clients[client].step(phase, None))
    return aggregator, aggregator.close(phase)


def asked_over(run, phase, number, clients, first, participants=4, trained=()):
    """What an aggregator asks that has these clients' messages of a phase."""
    aggregator, _ = closed_over(run, phase, number, clients, first, participants, trained)
    return aggregator.request(phase)
