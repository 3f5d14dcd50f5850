"""Noise on the sums of methods that can do without: what leaves has a share of it, and ε is finite and charged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.small_plan import small_plan
from methods.variants import CLIENTS, LAYER_OFFSETS, PARAMETERS, Variant
from privacy.seeded_draws import noise_from_seeds
from shieldfl.errors import ParameterError
from shieldfl.methods.registry import BUILT_IN, MethodSettings, make_method, method_class
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import ClearUpload, Noise, NoiseShareUpload
from shieldfl.privacy.noise import clip_and_noise
from shieldfl.testing import conformance

DELTA = 1e-5
WHOLE = ("full-he", "top-2", "dict-pfl")
"""Of clients."""
BY_TURNS = ("alt-fl-pi", "alt-fl-si-he")
"""Of samples: rounds 1 and 3 encrypt, round 2 does not."""
OPENERS = ("authority", "clients", "aggregator")


def run_of(
    method: str, opener: str = "authority", *, restarts_roles: bool = False, **changes: object
) -> SteppedRun:
    usual = {"sum_noise_multiplier": 4.0, "delta": DELTA, "noise_multiplier": 4.0, "patience_rounds": 1}
    by_turns = {"interleaving_ratio": "1/4"} if method in BY_TURNS else {}
    variant = Variant(method, SelectiveShieldSettings(), method, opener=opener)
    # Alternating rounds need a model without buffers.
    model = conformance.initial_model(PARAMETERS, 0 if method in BY_TURNS else 5)
    return SteppedRun(
        variant.with_others(**usual | by_turns | changes),
        rounds=4,
        initial=model,
        restarts_roles=restarts_roles,
    )


def method_of(name: str, plan: object = None, **changes: object):
    usual = {"sum_noise_multiplier": 4.0} | ({"delta": DELTA} if name.startswith("alt") else {})
    settings = MethodSettings().changed(name, usual | changes)
    return make_method(name, settings, plan or small_plan(buffers=0, layer_offsets=LAYER_OFFSETS))


def mean_of_clipped(run: SteppedRun, norm: float) -> np.ndarray:
    updates = [run.updates[one].parameters - run.starts[one].parameters for one in run.updates]
    if run.method.trained is not None:
        for one in updates:
            one[~run.method.trained.to_bool()] = 0.0
    return np.mean([clip_and_noise(one, norm, 0.0)[0] for one in updates], axis=0, dtype=np.float64)


@pytest.mark.parametrize("method", [*WHOLE, *BY_TURNS])
def test_the_model_moves_by_the_mean_of_clipped_updates(method):
    run = run_of(method, sum_noise_multiplier=2e-8, sum_clip_norm=0.25)
    run.run_round()
    expected = mean_of_clipped(run, 0.25)
    assert np.linalg.norm(expected) > 0.05
    moved = run.parameters - run.initial.parameters
    np.testing.assert_allclose(moved, expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("method", [*WHOLE, *BY_TURNS])
@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_the_mean_has_the_noise_of_all_who_are_in_it(method, mechanism):
    run = run_of(method, sum_clip_norm=0.25, sum_mechanism=mechanism)
    run.run_round()
    noise = run.parameters - run.initial.parameters - mean_of_clipped(run, 0.25)
    if run.method.trained is not None:
        noise = noise[run.method.trained.to_bool()]
    # Of two clients one may be who looks at the sum, so that each adds the whole of z C.
    assert run.method.noise.honest_clients == 1
    deviation = 4.0 * 0.25 / math.sqrt(CLIENTS)
    assert noise.std() == pytest.approx(deviation, rel=6.0 / math.sqrt(2 * noise.size))
    assert run.method.noise.deviation_of_share == pytest.approx(4.0 * 0.25, rel=1e-6)


def test_full_encryption_with_noise_is_what_ddp_fedavg_is():
    numbers = {"clip_norm": 0.25, "mechanism": "discrete-gaussian", "colluders": 1}
    other = Variant("ddp-fedavg", SelectiveShieldSettings(), "ddp-fedavg")
    runs = (
        SteppedRun(other.with_others(noise_multiplier=4.0, delta=DELTA, **numbers), rounds=4),
        run_of("full-he", **{f"sum_{name}": value for name, value in numbers.items()}),
    )
    for run in runs:
        with noise_from_seeds():
            run.run_round()
            run.run_round([0, 2, 3])
    own, full = runs
    assert full.method.noise == own.method.noise
    assert full.method.purposes["update"] == own.method.purposes["update"]
    assert full.method.privacy_reading == own.method.privacy_reading
    assert type(full.clients[0]) is type(own.clients[0])
    assert full.account.book.all == own.account.book.all
    assert full.account.spent() == own.account.spent()
    np.testing.assert_array_equal(full.parameters, own.parameters)
    np.testing.assert_array_equal(full.merged(0).buffers, own.merged(0).buffers)


def openers_of(method: str) -> tuple[str, ...]:
    return OPENERS[:2] if method_class(method).needs_shared_secret else OPENERS


@pytest.mark.parametrize(
    ("method", "opener"), [(method, opener) for method in WHOLE for opener in openers_of(method)]
)
def test_a_client_is_charged_for_every_opened_sum_and_nothing_else_leaves(method, opener):
    run = run_of(method, opener)
    for _ in range(4):
        run.run_round()
    spent = run.account.spent()
    assert spent.reason is None
    assert spent.epsilon == epsilon_of({run.method.noise.charge: 4}, DELTA)
    assert run.method.noise.charge.unit == run.method.privacy_reading.unit == "client"
    assert {type(one) for one in run.account.book.all if hasattr(one, "client")} == {NoiseShareUpload}
    assert run.method.hides_all
    stated = run.clients[0].disclosure
    assert stated.encrypts_noised
    assert stated.buffers == "local"
    assert stated.kept.count + stated.encrypted.count == PARAMETERS
    assert len(run.model["buffers"]) == 0


@pytest.mark.parametrize("method", BY_TURNS)
@pytest.mark.parametrize("opener", OPENERS)
def test_a_sample_is_charged_for_encrypted_rounds_beside_private_training(method, opener):
    run = run_of(method, opener)
    for _ in range(4):
        run.run_round()
    private = {Noise(4.0, "sample", one.noise.sample_rate, one.noise.steps) for one in _noised(run)}
    charges = {run.method.noise.charge: 3} | dict.fromkeys(private, 1)
    assert len(private) == (method == "alt-fl-pi")
    spent = run.account.spent()
    assert spent.reason is None
    assert spent.epsilon == pytest.approx(epsilon_of(charges, DELTA))
    assert run.method.noise.charge.unit == run.method.privacy_reading.unit == "sample"
    # Without noise on sums, what follows from the first opened one has no epsilon.
    plain = run_of(method, opener, sum_noise_multiplier=0.0)
    for _ in range(4):
        plain.run_round()
    assert math.isinf(plain.account.spent().epsilon)
    assert method_class(method).privacy_reading == plain.method.privacy_reading != run.method.privacy_reading


def _noised(run: SteppedRun) -> list:
    return [one for one in run.account.book.all if type(one).__name__ == "NoisedUpload" and one.client == 0]


def test_rounds_with_private_training_are_as_they_are_without_noise_on_sums():
    runs = [
        run_of("alt-fl-pi", interleaving_ratio="1/2", sum_noise_multiplier=multiplier)
        for multiplier in (4.0, 0.0)
    ]
    for run in runs:
        run.run_round()
    noised, plain = runs
    assert noised.clients[0].disclosure == plain.clients[0].disclosure
    assert noised.sent["update"][0]["values"] == plain.sent["update"][0]["values"]
    np.testing.assert_array_equal(noised.parameters, plain.parameters)


@pytest.mark.parametrize("opener", ["authority", "clients"])
def test_what_is_pruned_follows_from_noised_sums_alone(opener):
    run = run_of("dict-pfl", opener, small_percent=70.0)
    for _ in range(4):
        run.run_round()
    sent = run.clients[0].disclosure.encrypted.count
    assert 0 < sent < PARAMETERS
    assert run.account.book.readable_parts == ()
    assert not any(isinstance(one, ClearUpload) for one in run.account.book.all)
    # Nobody's charge is for fewer values than there may be.
    assert run.method.noise.charge.dimension == PARAMETERS
    # What a client holds back would tell in which rounds it was.
    assert not run.method.clients_keep_nothing
    assert run.method.privacy_reading.if_participation_hidden is None
    without = run_of("dict-pfl", opener, sum_noise_multiplier=0.0)
    without.run_round()
    assert without.account.book.readable_parts == ("count",)


@pytest.mark.parametrize("method", [*WHOLE, *BY_TURNS])
def test_a_target_is_for_all_sums_with_noise_and_the_setup_says_by_which(method):
    run = run_of(method, sum_noise_multiplier=0.0, sum_target_epsilon=6.0)
    sums = 3 if method in BY_TURNS else 4
    assert 0.9 * 6.0 <= run.method.noise.epsilon(sums, DELTA) <= 6.0
    stated = run.setup.settings
    assert stated["sum_target_epsilon"] is None
    told = run.settings()
    assert told["sum_target_epsilon"] == 6.0
    assert told["sum_noise_multiplier"] == stated["sum_noise_multiplier"] > 0.0
    assert told["weights"] == "uniform"
    assert 0.0 < told["added_delta"] < DELTA / 1024
    again = make_method(method, MethodSettings().changed(method, stated), run.setup.plan)
    assert again.noise == run.method.noise


@pytest.mark.parametrize("method", [*WHOLE, *BY_TURNS])
def test_clients_weigh_alike_where_sums_have_noise(method):
    plan = small_plan((1, 3), buffers=0, layer_offsets=LAYER_OFFSETS)
    assert method_of(method, plan).most_weight == 1
    assert any("weighs all clients alike" in note for note in method_of(method, plan).notes)
    assert method_of(method, plan, sum_noise_multiplier=0.0).most_weight > 1


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("full-he", {"sum_target_epsilon": 4.0}, "not both"),
        ("full-he", {"sum_colluders": 2}, "take a min_clients of at least 3, not 2"),
        ("dict-pfl", {"sum_noise_multiplier": 1e-12}, "no grid fits"),
        ("top-2", {"sum_noise_multiplier": 0.0, "sum_target_epsilon": 500.0}, "take a smaller epsilon"),
        ("alt-fl-pi", {"encrypted_share": 0.5}, "needs encrypted_share = 1"),
        ("alt-fl-si-he", {"encrypted_share": 0.5}, "the mask that says which"),
        ("alt-fl-pi", {"interleaving_ratio": "1"}, "no round of this run encrypts"),
        ("alt-fl-mp", {}, "DP-SGD in every round"),
        ("alt-fl-si-dp", {}, "encrypts nothing"),
    ],
)
def test_what_would_have_no_finite_figure_is_refused_with_the_reason(method, changes, words):
    with pytest.raises(ParameterError, match=words):
        method_of(method, **changes)


def test_alternating_rounds_with_buffers_are_refused():
    with pytest.raises(ParameterError, match="without buffers"):
        method_of("alt-fl-si-he", small_plan(buffers=5))


@pytest.mark.parametrize("method", BUILT_IN)
def test_noise_on_all_sums_is_for_methods_that_can_have_it(method):
    able = (*WHOLE, *BY_TURNS, "plain-he", "ddp-fedavg")
    if method not in able:
        with pytest.raises(ParameterError, match=r"leave (it|noise on sums) out|leave out noise on sums"):
            MethodSettings().with_sum_noise(3.0, [method])
        return
    asked = MethodSettings().with_sum_noise(3.0, [method]).of(method).asked_noise
    assert (asked.multiplier, asked.target_epsilon) == (3.0, None)


def test_a_target_does_not_give_way_to_a_multiplier_unsaid():
    aimed = MethodSettings().changed("ddp-fedavg", {"target_epsilon": 8.0})
    with pytest.raises(ParameterError, match="a noise multiplier or target_epsilon, not both"):
        aimed.with_sum_noise(3.0, ["ddp-fedavg"])


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({}, False),
        ({"small_percent": 97.0}, True),
        ({"ranked": "sent"}, True),
        ({"ranked": "sent", "small_percent": 0.0}, False),
    ],
)
def test_pruning_to_few_positions_is_said_to_cut_values(changes, is_said):
    assert any("are cut" in note for note in method_of("dict-pfl", **changes).notes) == is_said
