"""Drives the steps of any method of this package, with what only a test may look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from methods.variants import BUFFERS, PARAMETERS, Variant, labelled
from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import ANSWER_SIGNATURE, INVITED, RoundKeyReader, digest_of_parts
from shieldfl.encryption import ckks, kahe, pads, paillier
from shieldfl.encryption.registry import Encryptor, SchemeBatch, scheme_of
from shieldfl.learning.local_update import contraction
from shieldfl.rounds.plan import GlobalModel
from shieldfl.testing import conformance

__all__ = ["SteppedRun", "contraction", "initial_model", "resigned", "signed_answer"]

SOME_ABSENT = ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3])
"""Who takes part in the rounds of a short run."""


def initial_model(size: int = PARAMETERS) -> GlobalModel:
    return conformance.initial_model(size, BUFFERS)


def resigned(run: conformance.SteppedRun, parts: Mapping[str, Part]) -> Message:
    """Return a first message of the newest round that an authority which lies would have signed."""
    signed = [name for name in parts if name.startswith("round ") or name == INVITED]
    digest = digest_of_parts(Message(parts), but=signed)
    return Message({**parts, **run.authority.keys.sign_model(digest, parts[INVITED])})


def signed_answer(run: conformance.SteppedRun, phase: str, parts: Mapping[str, Part]) -> Message:
    """Return an answer to a phase of the newest round that an authority which lies would have signed."""
    digest = digest_of_parts(Message(parts), but=[ANSWER_SIGNATURE])
    return Message({**parts, **run.authority.keys.sign_answer(phase, digest)})


class SteppedRun(conformance.SteppedRun):
    """A variant's run; the arguments are those of the run that is derived from."""

    def __init__(self, variant: Variant, **changes: Any) -> None:
        super().__init__(variant.case, **changes)

    @property
    def reader(self) -> RoundKeyReader:
        """The first client's keys."""
        return self.clients[0]._round_keys

    def encryptor(self, purpose: str = "update", client: int = 0) -> Encryptor:
        """What encrypts under the key of the round that a client is in, where it enrolled its own."""
        key = self.clients[client]._round_key(purpose)
        return scheme_of(key).encryptor(key, 1, purpose)

    def batch(self, frame: bytes, purpose: str = "update") -> SchemeBatch:
        """Read a batch of the scheme that a purpose's values are encrypted by."""
        batches = {
            "ckks": ckks.CiphertextBatch,
            "kahe": kahe.CiphertextBatch,
            "pads": pads.CiphertextBatch,
            "paillier": paillier.CiphertextBatch,
        }
        return batches[scheme_of(self.reader.check.parameters[purpose]).name].from_bytes(frame)


def assert_same_models(one: SteppedRun, other: SteppedRun, clients: Iterable[int] = range(4)) -> None:
    for client in clients:
        own, theirs = one.merged(client), other.merged(client)
        np.testing.assert_array_equal(own.parameters, theirs.parameters)
        np.testing.assert_array_equal(own.buffers, theirs.buffers)


def check_alike(one: SteppedRun, other: SteppedRun, rounds: Iterable[list[int]]) -> None:
    """Run these rounds in both, which come to the same models."""
    for participants in rounds:
        for run in (one, other):
            run.run_round(participants)
    assert_same_models(one, other)


def run_of(label: str, opener: str = "authority", **changes: Any) -> SteppedRun:
    """Return the run of the variant of this label, whose sums this party opens."""
    return SteppedRun(labelled(label, opener), **changes)
