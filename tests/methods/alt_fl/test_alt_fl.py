"""Alt-FL's four methods and averaging with DP-SGD: schedules act, steps are charged, what leaves is stated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.small_plan import small_plan
from methods.variants import CLIENTS, PARAMETERS, Variant
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.learning.local_update import PrivateSteps
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise

DELTA = 1e-5


def variant_of(method: str, **changes: object) -> Variant:
    return Variant(method, SelectiveShieldSettings(), method).with_others(delta=DELTA, **changes)


def starts_of(variant: Variant, rounds: int, **options: object) -> tuple[SteppedRun, list[str]]:
    """Run, and say of each round what the first client was asked for."""
    asked: list[str] = []

    def train(round_number, client, start):
        if client == 0:
            words = ["synthetic" if start.synthetic else "real"]
            words += ["noise"] if start.noise else []
            words += [start.scores] if start.scores else []
            asked.append(" ".join(words))
        return contraction(round_number, client, start)

    run = SteppedRun(variant, rounds=rounds, train=train, **options)
    for _ in range(rounds):
        run.run_round()
    return run, asked


@pytest.mark.parametrize(
    ("method", "first", "second"),
    [
        ("alt-fl-pi", "real", "real noise"),
        ("alt-fl-si-dp", "real noise", "synthetic"),
        ("alt-fl-si-he", "real", "synthetic"),
        ("alt-fl-mp", "real noise", "real noise"),
    ],
)
@pytest.mark.parametrize(("ratio", "kinds"), [("1/4", "112111"), ("1", "22")])
def test_the_schedule_decides_what_a_round_does(method, first, second, ratio, kinds):
    _, asked = starts_of(variant_of(method, interleaving_ratio=ratio), len(kinds))
    assert asked == [first if kind == "1" else second for kind in kinds]


@pytest.mark.parametrize("opener", ["authority", "clients", "aggregator"])
def test_the_mask_is_negotiated_before_the_first_encrypted_round_alone(opener):
    run, asked = starts_of(replace(variant_of("alt-fl-pi", encrypted_share=0.25), opener=opener), 4)
    assert asked == ["real noise", "real gradient", "real noise", "real"]
    assert run.clients[0].disclosure.encrypted.count == PARAMETERS // 4
    assert any("mask is computed from gradients without noise" in note for note in run.account.notes)


def test_the_mask_is_the_top_of_the_weighted_mean_magnitudes_and_stays():
    def train(round_number, client, start):
        update = contraction(round_number, client, start)
        return replace(update, scores=update.scores - np.float32(0.5))

    weights = (1, 2, 3, 4)
    run = SteppedRun(
        variant_of("alt-fl-si-he", encrypted_share=0.25, interleaving_ratio="0"), train=train, weights=weights
    )
    start = run.initial.starting_point()
    scores = np.array([np.abs(train(1, client, start).scores) for client in range(CLIENTS)])
    mean = np.average(scores.astype(np.float64), axis=0, weights=weights)
    run.run_round()
    first = run.clients[1].disclosure.encrypted
    assert set(first.to_indices()) == set(np.argsort(-mean)[: PARAMETERS // 4])
    run.run_round()
    assert run.clients[2].disclosure.encrypted == first


@pytest.mark.parametrize("ratio", ["1/2", "1/4", "0"])
def test_privacy_interleaving_charges_its_share_of_the_steps(ratio):
    share = {"1/2": 4, "1/4": 2, "0": 0}[ratio]
    run, _ = starts_of(variant_of("alt-fl-pi", interleaving_ratio=ratio, noise_multiplier=0.8), 8)
    dp, _ = starts_of(variant_of("dp-sgd", noise_multiplier=0.8), 8)
    spent = run.account.spent()
    assert (spent.steps, dp.account.spent().steps) == (2 * share, 16)
    assert spent.delta == DELTA
    if not share:
        assert math.isnan(spent.epsilon)
        assert math.isnan(spent.of_noise)
        return
    expected = epsilon_of({Noise(0.8, "sample", 0.5, 2): share}, DELTA)
    assert spent.of_noise == spent.if_participants_true == pytest.approx(expected, rel=1e-12)
    assert run.settings()["epsilon_of_what_was_charged"] == spent.of_noise
    # Rounds of DP-SGD came after sums that were opened without noise.
    assert math.isinf(spent.epsilon)


@pytest.mark.parametrize(("method", "ratio"), [("alt-fl-mp", "0"), ("alt-fl-pi", "1/4")])
def test_a_mask_made_of_gradients_without_noise_costs_everything(method, ratio):
    run = SteppedRun(variant_of(method, encrypted_share=0.5, interleaving_ratio=ratio))
    assert math.isnan(run.account.spent().epsilon)
    for client in run.clients[:2]:
        client.finish_training(contraction(1, 0, client.begin_round(1, CLIENTS, run.begin_round(1))))
        client.step("scores", None)
    assert math.isinf(run.account.spent().epsilon)
    # The round was given up, so no update was sent or charged.
    assert math.isnan(run.settings()["epsilon_of_what_was_charged"])
    (note,) = [note for note in run.account.notes if "mask" in note]
    assert "no epsilon covers" in note


@pytest.mark.parametrize("method", ["fedml-he", "mask-crypt", "batch-crypt", "alt-fl-mp", "alt-fl-si-he"])
def test_what_follows_from_data_without_noise_and_goes_to_others_has_no_finite_epsilon(method):
    changes = {"encrypted_share": 0.5, "interleaving_ratio": "0", "ratio": 0.5, "key_bits": 2048, "width": 32}
    run = SteppedRun(variant_of(method, **changes))
    run.run_round()
    assert math.isinf(run.account.spent().epsilon)


@pytest.mark.parametrize("method", ["alt-fl-si-dp", "alt-fl-si-he"])
def test_a_synthetic_round_is_clear_free_and_says_so(method):
    run, _ = starts_of(variant_of(method, interleaving_ratio="1"), 1)
    stated = run.clients[0].disclosure
    assert (stated.clear.count, stated.synthetic) == (PARAMETERS, True)
    assert math.isnan(run.account.spent().epsilon)
    assert run.method.synthetic_demand.epsilon == 10.0
    run.account.charge_release(0.9)
    assert run.account.spent().epsilon == epsilon_of({Noise(0.9, "sample"): 1}, DELTA)


@pytest.mark.parametrize("method", ["alt-fl-pi", "alt-fl-si-dp", "alt-fl-si-he", "alt-fl-mp"])
def test_rounds_on_own_data_have_their_share_of_synthetic_samples(method):
    asked = []

    def train(round_number, client, start):
        asked.append((start.synthetic, start.synthetic_share))
        return contraction(round_number, client, start)

    run = SteppedRun(variant_of(method, synthetic_share=0.25), rounds=2, train=train)
    run.run_round()
    run.run_round()
    second_is_synthetic = method.startswith("alt-fl-si")
    assert set(asked) == ({(False, 0.25), (True, 0.0)} if second_is_synthetic else {(False, 0.25)})
    assert run.method.synthetic_demand.epsilon == 10.0
    with pytest.raises(ParameterError, match="synthetic_share"):
        SteppedRun(variant_of(method, synthetic_share=1.0))


def test_the_authority_opens_only_what_a_round_of_its_kind_encrypts():
    run = SteppedRun(variant_of("alt-fl-pi", encrypted_share=0.5, interleaving_ratio="1/4"))
    run.run_round()
    total = run.closed["update"]
    other = Message({**total, "round": Message.from_number(3)})
    with pytest.raises(WireFormatError):
        run.authority.answer("update", other)
    fresh = SteppedRun(variant_of("alt-fl-pi", encrypted_share=0.5, interleaving_ratio="1/4"))
    with pytest.raises(PolicyError, match="no mask has been agreed on"):
        fresh.authority.answer("update", total)


@pytest.mark.parametrize("method", ["alt-fl-mp", "alt-fl-si-dp", "dp-sgd"])
@pytest.mark.parametrize(
    ("steps", "rate", "words"),
    [
        (0, 0.5, "steps must be at least 1"),
        (-3, 0.5, "the number of steps must be at least 1"),
        (1.5, 0.5, "steps must be a whole number"),
        (2, 0.0, "sample rate"),
        (2, 2.0, "sample rate"),
        (2, math.nan, "sample rate"),
    ],
)
def test_steps_that_cannot_be_are_refused_before_anything_is_said_to_have_left(method, steps, rate, words):
    def train(round_number, client, start):
        done = PrivateSteps(steps=steps, sample_rate=rate)
        return replace(contraction(round_number, client, start), private_steps=done)

    run = SteppedRun(variant_of(method, interleaving_ratio="0"), train=train)
    with pytest.raises(ParameterError, match=words):
        run.run_round()
    assert run.clients[0].disclosure.kept.count == PARAMETERS
    assert run.account.spent().steps == 0


@pytest.mark.parametrize("method", ["alt-fl-pi", "alt-fl-si-dp", "dp-sgd"])
def test_delta_is_one_over_the_samples_or_set(method):
    known = small_plan(samples=500)
    made = make_method(method, MethodSettings(), known)
    assert made.account().spent().delta == 1 / 500
    with pytest.raises(ParameterError, match="set delta"):
        make_method(method, MethodSettings(), replace(known, samples=None))
