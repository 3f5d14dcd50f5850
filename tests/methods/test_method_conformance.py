"""What every method must do, whatever it protects with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.honest_outcome import assert_same_model, float_spacing, honest_outcome
from methods.method_conformance import SteppedRun, contraction
from methods.selective_shield.selective_shield_twin import twin_round
from methods.variants import CLIENTS, FAINT_TOLERANCE, Variant, every_variant, variants
from shieldfl.methods.registry import METHOD_NAMES
from shieldfl.privacy.events import ClearUpload, EncryptedUpload, NoisedUpload, OpenedSum


def masks_of(
    variant: Variant, round_number: int, run: SteppedRun, clients: list[int]
) -> dict[int, np.ndarray]:
    """What each client chooses, by eq. 14; a method without zones chooses nothing."""
    scores = {
        client: contraction(round_number, client, run.initial.starting_point()).scores for client in clients
    }
    if variant.averages_all:
        return {client: np.zeros(variant.size, dtype=bool) for client in clients}
    return {client: scores[client] > np.float32(variant.settings.threshold_of(client)) for client in clients}


def plain_of(variant: Variant) -> Variant:
    """FedAvg, training what the variant trains."""

    class Plain(Variant):
        layer_offsets = variant.layer_offsets
        first_trained = variant.first_trained

    return Plain("fedavg", variant.settings, "plain")


def test_every_registered_method_is_covered():
    assert {variant.method for variant in variants()} == set(METHOD_NAMES)


def check_shares(run: SteppedRun, participants: list[int]) -> None:
    """The shares of each client's zones sum to one."""
    for client in participants:
        shares = run.clients[client].disclosure.shares()
        assert set(shares) == {"encrypted", "personalised", "noise", "clear"}
        assert all(0.0 <= share <= 1.0 for share in shares.values())
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12)


def check_records(run: SteppedRun, number: int, participants: list[int]) -> None:
    """Every upload and every opened sum of the round is among the events, in the zone that the client states."""
    uploads = (EncryptedUpload, NoisedUpload, ClearUpload)
    recorded = [event for event in run.account.events.all if getattr(event, "round", None) == number]
    # Introductions are of parts; the update itself is of values.
    updates = [
        one for one in recorded if isinstance(one, uploads) and getattr(one, "what", "values") == "values"
    ]
    assert {one.client for one in updates} == set(participants)
    opened = [event for event in recorded if isinstance(event, OpenedSum)]
    assert bool(opened) == any(isinstance(one, EncryptedUpload) for one in updates)
    for one in updates:
        stated = run.clients[one.client].disclosure
        zone = {
            EncryptedUpload: stated.encrypted,
            NoisedUpload: stated.noised,
            ClearUpload: stated.clear,
        }[type(one)]
        buffers = type(one) is EncryptedUpload and stated.buffers == "encrypted"
        assert zone.count or buffers
        assert one.round == number


def check_costs(variant: Variant, run: SteppedRun) -> None:
    """After one round: encryption gets no epsilon, and nothing that can be read costs nothing."""
    spent = run.account.spent()
    assert spent.rounds == 1
    assert (spent.epsilon > 0.0) == variant.shows
    assert math.isnan(spent.epsilon) != variant.shows
    assert math.isinf(spent.epsilon) == (spent.reason is not None)
    assert math.isnan(spent.of_noise) or spent.of_noise >= spent.if_participants_true
    assert all(isinstance(name, str) for name in run.settings())


@every_variant
def test_two_runs_from_one_start_train_the_same_model_and_state_what_they_did(variant):
    first, second = SteppedRun(variant), SteppedRun(variant)
    assert math.isnan(first.account.spent().epsilon)
    first.account.charge_draw(CLIENTS)
    for number, participants in enumerate(([0, 1, 2, 3], [1, 3], [0, 1, 2]), start=1):
        first.run_round(participants)
        second.run_round(participants)
        check_shares(first, participants)
        check_records(first, number, participants)
        if number == 1:
            check_costs(variant, first)
    assert_same_model(first, second, variant)
    assert not np.array_equal(first.parameters, first.initial.parameters)
    for client in range(CLIENTS):
        np.testing.assert_allclose(
            first.merged(client).parameters,
            second.merged(client).parameters,
            rtol=0.0,
            atol=FAINT_TOLERANCE if variant.noisy else 0.0,
        )


@every_variant
@pytest.mark.parametrize("fraction_bits", [12, 20])
def test_a_protection_that_loses_nothing_gives_plain_fedavg(variant, fraction_bits):
    lossless = variant.losing_nothing(fraction_bits)
    run, plain = SteppedRun(lossless), SteppedRun(plain_of(lossless))
    # Updates are equal in the first round. Each is rounded to the nearest multiple of 2^-f, so the mean is
    # off by half of that at most, and both models are rounded to float32 once.
    quantisation = 2.0 ** -(fraction_bits + 1)
    run.run_round()
    plain.run_round()
    spacing = float_spacing(run.parameters, plain.parameters)
    assert np.all(np.abs(run.parameters - plain.parameters.astype(np.float64)) <= quantisation + spacing)
    # From then on the training contracts what the models differ by (factor 0.9), so each round adds one
    # quantisation more and, for the training's own float32 arithmetic, a few roundings of values below 4.
    for _ in range(2):
        run.run_round()
        plain.run_round()
    roundings = 8 * np.spacing(np.float32(4.0))
    difference = np.abs(run.parameters - plain.parameters.astype(np.float64))
    assert difference.max() <= 3 * (quantisation + roundings)
    if run.buffers.size:
        shared_difference = np.abs(run.buffers - plain.buffers.astype(np.float64))
        assert shared_difference.max() <= 3 * (quantisation + roundings)
        assert not np.array_equal(run.buffers, run.initial.buffers)


@every_variant
def test_a_client_that_drops_out_between_two_phases_is_survived(variant):
    run = SteppedRun(variant)
    run.run_round(dropping=[1])
    everybody, uploaders = list(range(CLIENTS)), [0, 2, 3]
    start = run.initial.starting_point()
    updates = {client: contraction(1, client, start).parameters - start.parameters for client in everybody}
    for update in updates.values():
        update[: variant.first_trained] = 0.0
    twin = twin_round(
        start.parameters,
        updates,
        masks_of(variant, 1, run, everybody),
        uploaders=uploaders,
        consensus=variant.settings.consensus,
        divisor=variant.settings.divisor,
    )
    spacing = float_spacing(run.parameters, twin.parameters)
    comparable = np.ones(variant.size, dtype=bool)
    if variant.settings.hide_personalised:
        # Who is missing is hidden, so the contributors outside the encrypted zone are an estimate.
        comparable = twin.encrypted
        assert any("dropped out" in note for note in run.account.notes)
    difference = np.abs(run.parameters - twin.parameters)
    # What has the twin's mask is compared after the twin's own rounding; a mean of roundings is off by half a step.
    quantisation = 2.0**-21 if variant.averages_all else 0.0
    assert np.all(difference[comparable] <= quantisation + spacing[comparable])
    assert twin.encrypted.any() or variant.averages_all
    # Whoever dropped out can come back.
    run.run_round()
    assert np.isfinite(run.parameters).all()


@pytest.mark.parametrize(
    "variant", [one for one in variants() if one.may_encrypt_nothing], ids=lambda variant: variant.label
)
def test_an_empty_encrypted_zone_works(variant):
    nothing = variant.encrypting_nothing()
    run, plain = SteppedRun(nothing), SteppedRun(plain_of(nothing))
    run.run_round()
    plain.run_round()
    # Nothing is encrypted and nothing kept: everything goes through the noise zone.
    difference = np.abs(run.parameters - plain.parameters.astype(np.float64))
    tolerance = float_spacing(run.parameters, plain.parameters) + (FAINT_TOLERANCE if variant.noisy else 0.0)
    assert np.all(difference <= tolerance)
    assert run.clients[0].disclosure.shares()["encrypted"] == 0.0
    assert run.clients[0].disclosure.shares()["personalised"] == 0.0


@every_variant
def test_asking_for_a_result_again_gives_it_again(variant):
    run = SteppedRun(variant)
    run.run_round()
    *_, last = run.closed
    again = run.aggregator.close(last)
    assert again == run.closed[last]
    if run.authority is not None:
        assert run.authority.answer(last, again) == run.model
    run.run_round()
    assert_same_model(run, honest_outcome(variant, 2), variant)
