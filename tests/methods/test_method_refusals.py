"""What every method must refuse, and that a round goes on and ends well after it has."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from methods.honest_outcome import assert_same_model, honest_outcome
from methods.method_conformance import SteppedRun, contraction
from methods.variants import BUFFERS, CLIENTS, FAINT_TOLERANCE, PARAMETERS, Variant, every_variant
from shieldfl.authority.message import Message
from shieldfl.errors import (
    KeyMismatchError,
    ParameterError,
    PolicyError,
    RangeError,
    ShieldError,
    WireFormatError,
)
from shieldfl.learning.local_update import PrivateSteps
from shieldfl.masks import Mask
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings


def altered(message: Message, name: str, part: bytes | None) -> Message:
    parts = {key: value for key, value in message.items() if key != name}
    return Message(parts if part is None else {**parts, name: part})


def send_mangled(phase, aggregator, messages):
    """Parts that are missing, too short, too long, flipped, or hold numbers that are none; return which."""
    refused = []
    client = min(messages)
    honest = messages[client]
    for name, part in honest.items():
        bent = bytearray(part)
        if part:
            bent[len(bent) // 2] ^= 0x10
        wrong = {
            "missing": (None, WireFormatError),
            "empty": (b"", WireFormatError),
            "truncated": (part[:-1], WireFormatError),
            "grown": (part + bytes(8), WireFormatError),
        }
        if name in ("mask", "votes", "ciphertexts", "positions", "scores"):
            wrong["flipped"] = (bytes(bent), WireFormatError)
        if name == "ranking":
            # No checksum: a flip can make another position, but not one that is out of range.
            wrong["flipped"] = (part[:-1] + b"\x10", WireFormatError)
        if name in ("values", "update", "ranges", "sensitivity") and part:
            for label, value in (("nan", np.nan), ("infinite", np.inf)):
                vector = np.frombuffer(part, dtype=np.float32).copy()
                vector[-1] = value
                wrong[label] = (vector.tobytes(), (WireFormatError, RangeError))
        if name == "weight":
            for value in (0.0, -1.0, math.nan, math.inf):
                wrong[f"weight {value}"] = (np.float64(value).tobytes(), RangeError)
        for label, (replacement, error) in wrong.items():
            if replacement == part:
                continue  # nothing is sent in this part, so nothing is cut off
            with pytest.raises(error):
                aggregator.receive(phase, client, altered(honest, name, replacement))
            refused.append((name, label))
    return refused


def send_larger(run, phase, aggregator, messages):
    """A client of a larger model speaks first: its frames are intact, their numbers of values are not."""
    for name in ("votes", "ciphertexts"):
        if name in messages[0]:
            purpose = "votes" if name == "votes" else "update"
            encryptor = run.encryptor(purpose)
            number = run.batch(messages[0][name], purpose).round
            larger = np.zeros(run.initial.parameters.size + 9, dtype=np.float32)
            batch = encryptor.encrypt(larger, round=number).to_bytes()
            with pytest.raises(ParameterError):
                aggregator.receive(phase, 0, altered(messages[0], name, batch))


def send_elsewhere(run, phase, aggregator, messages):
    """Ciphertexts of other positions, though as many; return whether there were any."""
    if "ciphertexts" not in messages[0]:
        return False
    honest = run.batch(messages[0]["ciphertexts"])
    size = run.initial.parameters.size + run.buffers.size
    size += size == honest.count  # these are other positions even where all are encrypted
    first = Mask.from_indices(np.arange(honest.count), size)
    batch = run.encryptor().encrypt(np.zeros(size, dtype=np.float32), first, round=honest.round)
    assert batch.count == honest.count
    with pytest.raises(ShieldError, match=r"positions|order"):
        aggregator.receive(phase, 0, altered(messages[0], "ciphertexts", batch.to_bytes()))
    return True


@every_variant
def test_wrong_messages_are_refused_and_the_round_ends_well(variant):
    """Whoever comes first must not decide for the others what theirs look like, or which positions are encrypted."""
    run = SteppedRun(variant)
    mangled, elsewhere = [], []

    def intrude(phase, aggregator, messages):
        send_larger(run, phase, aggregator, messages)
        if send_elsewhere(run, phase, aggregator, messages):
            elsewhere.append(phase)
        with pytest.raises(WireFormatError, match="no part"):  # made for another step
            aggregator.receive(phase, 0, Message({"something": b"else"}))
        if send_mangled(phase, aggregator, messages):
            mangled.append(phase)

    run.run_round(intrude=intrude)
    assert_same_model(run, honest_outcome(variant), variant)
    assert mangled == list(run.sent)
    assert bool(elsewhere) == (run.authority is not None)


@every_variant
def test_messages_of_another_federation_or_round_are_refused(variant):
    """In the first round another key's ciphertexts, in an otherwise honest message; then the first round's messages."""
    foreign, run = SteppedRun(variant), SteppedRun(variant)
    foreign.run_round()
    refused, replayed = [], []

    def send_foreign(phase, aggregator, messages):
        for name in ("votes", "ciphertexts"):
            if name in messages[0]:
                with pytest.raises(KeyMismatchError):
                    aggregator.receive(phase, 0, altered(messages[0], name, foreign.sent[phase][0][name]))
                refused.append(name)

    run.run_round(intrude=send_foreign)
    assert_same_model(run, honest_outcome(variant), variant)
    assert ("ciphertexts" in refused) == (run.authority is not None)
    old = {phase: dict(messages) for phase, messages in run.sent.items()}

    def replay(phase, aggregator, messages):
        with pytest.raises(PolicyError):
            aggregator.receive(phase, 0, old[phase][0])
        replayed.append(phase)

    run.run_round(intrude=replay)
    assert_same_model(run, honest_outcome(variant, 2), variant)
    assert replayed == list(run.sent)


@every_variant
def test_a_phase_in_which_nobody_speaks_has_no_result(variant):
    run = SteppedRun(variant)
    first = run.method.phases_of(run.model, 1)[0].name
    run.begin_round(1)
    run.aggregator.begin_phase(first, 1, None)
    with pytest.raises(ParameterError, match="at least one client"):
        run.aggregator.close(first)


def assert_refused_at_the_end_of_training(variant, updates, error, words):
    """A client takes none of these updates, and after that the one that it has trained."""
    run = SteppedRun(variant)
    client = run.clients[0]
    start = client.begin_round(1, CLIENTS, run.method.message_for(0, run.begin_round(1)))
    phase = run.method.phases_of(run.model, 1)[0].name
    for update in updates(start):
        with pytest.raises(error, match=words):
            client.finish_training(update)
        with pytest.raises(ParameterError, match="before training has finished"):
            client.step(phase, None)
    honest = contraction(1, 0, start)
    client.finish_training(honest)
    assert set(client.step(phase, None)) == honest_outcome(variant).sent_parts[phase]


@every_variant
def test_a_training_that_diverged_is_refused(variant):
    def diverged(start):
        for part, value in (
            ("parameters", np.nan),
            ("parameters", np.inf),
            ("buffers", np.nan),
            ("buffers", -np.inf),
        ):
            update = contraction(1, 0, start)
            getattr(update, part)[-1] = value
            yield update

    assert_refused_at_the_end_of_training(variant, diverged, RangeError, "learning rate")


@pytest.mark.parametrize("method", ["selective-shield", "sense-crypt", "fedml-he", "mask-crypt"])
@pytest.mark.parametrize(
    ("scores", "error", "words"),
    [
        (None, ParameterError, "needs sensitivity scores"),
        (np.full(PARAMETERS, np.nan, dtype=np.float32), RangeError, "sensitivity is NaN"),
        (np.full(PARAMETERS, np.inf, dtype=np.float32), RangeError, "sensitivity is NaN or inf"),
    ],
    ids=("none", "nan", "infinity"),
)
def test_missing_and_broken_scores_are_refused(method, scores, error, words):
    run = SteppedRun(Variant(method, SelectiveShieldSettings(), method), train=scored(scores))
    with pytest.raises(error, match=words):
        run.run_round()


def scored(scores):
    """Train as usual, and bring these scores along."""
    return lambda *arguments: replace(contraction(*arguments), scores=scores)


@every_variant
def test_an_update_of_another_model_is_refused(variant):
    def of_another_model(start):
        for parameters, buffers, scores in (
            (variant.size - 1, BUFFERS, variant.size),
            (1, BUFFERS, variant.size),
            (variant.size, BUFFERS + 1, variant.size),
            (variant.size, BUFFERS, variant.size + 64),
        ):
            yield start.trained(*(np.zeros(size, dtype=np.float32) for size in (parameters, buffers, scores)))

    assert_refused_at_the_end_of_training(
        variant, of_another_model, ParameterError, f"{variant.size} parameters"
    )


def refused_updates(client, kept):
    """Updates that a client must refuse; all that is good in them differs from what it keeps."""
    steps = None if kept.private_steps is None else PrivateSteps(steps=9, sample_rate=1.0)
    other = replace(
        kept, parameters=-kept.parameters, buffers=-kept.buffers, scores=1 - kept.scores, private_steps=steps
    )
    yield replace(other, parameters=np.full_like(other.parameters, np.nan))
    if client.scores is not None:
        yield replace(other, scores=None)
    if steps is not None:
        yield replace(other, private_steps=None)


@every_variant
def test_training_that_is_refused_does_not_take_the_place_of_what_was_trained(variant):
    run = SteppedRun(variant)

    def finish_and_be_refused(update, finish, client):
        finish(update)
        for refused in refused_updates(client, update):
            with pytest.raises((ParameterError, RangeError)):
                finish(refused)

    for client in run.clients:
        client.finish_training = partial(finish_and_be_refused, finish=client.finish_training, client=client)
    for _ in range(3):  # the third is Alt-FL's first of the other kind
        run.run_round()
    twin = honest_outcome(variant, 3)
    assert_same_model(run, twin, variant)
    tolerance = FAINT_TOLERANCE if variant.noisy else 0.0
    for index, client in enumerate(run.clients):
        assert client.disclosure == twin.disclosures[index]
        own, expected = run.merged(index), twin.merged[index]
        np.testing.assert_allclose(own.parameters, expected.parameters, rtol=0.0, atol=tolerance)
        np.testing.assert_array_equal(own.buffers, expected.buffers)
    assert repr(run.account.spent()) == twin.privacy_spent
    # Steps that were charged are counted also where epsilon is infinite.
    assert run.settings() == twin.settings
