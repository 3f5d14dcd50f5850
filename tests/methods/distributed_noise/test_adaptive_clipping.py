"""Clipping that follows a quantile: every party has the same norm, by counts that are charged for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, initial_model, resigned
from methods.small_plan import small_plan
from methods.variants import CLIENTS, FAINT_IN_SUMS, PARAMETERS, Variant, labelled
from privacy.seeded_draws import noise_from_seeds
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.methods.masked_average.method import CLIP_EXPONENT
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.noise import MOST_EXPONENT
from shieldfl.rounds.plan import GlobalModel

OPENERS = ("authority", "clients", "aggregator")
# Noise that moves no count by a client in a million.
EXACT = {**FAINT_IN_SUMS, "clip_norm": 1.9, "clip_count_noise": 1e-6, "clip_learning_rate": 0.5}
LOUD = {"noise_multiplier": 4.0, "clip_norm": 0.25, "clip_count_noise": 0.5}


def run_of(opener="authority", *, rounds=8, changes=EXACT, **others):
    variant = labelled("ddp-fedavg").with_others(**{"clipping": "adaptive", **changes})
    made = Variant(variant.method, variant.settings, "adaptive", variant.others, opener)
    return SteppedRun(made, rounds=rounds, **others)


def exponent(model) -> int:
    return int(model.vector(CLIP_EXPONENT, np.int64, 1)[0])


def differences(run):
    return {
        one: (run.updates[one].parameters - run.starts[one].parameters).astype(np.float64)
        for one in run.updates
    }


@pytest.mark.parametrize(
    "encryption",
    [
        pytest.param(one, marks=[pytest.mark.slow] if one.startswith("paillier") else [])
        for one in encryptions()
    ],
)
def test_the_norm_follows_the_share_within_and_the_model_the_mean_of_clipped(encryption):
    """A twin in real numbers, without noise: C exp(-eta (b - gamma)), and updates clipped to C."""
    size = labelled("ddp-fedavg").with_others(encryption=encryption).size
    norm, shares = 1.9 * math.sqrt(size / PARAMETERS), []
    run = run_of(changes={**EXACT, "clip_norm": norm, "encryption": encryption})
    for _ in range(3):
        before = run.parameters
        run.run_round()
        own = differences(run)
        lengths = {one: np.linalg.norm(update) for one, update in own.items()}
        clipped = [update * min(1.0, norm / lengths[one]) for one, update in own.items()]
        np.testing.assert_allclose(run.parameters - before, np.mean(clipped, axis=0), rtol=2e-5, atol=1e-6)
        shares.append(np.mean([one <= norm for one in lengths.values()]))
        norm *= math.exp(-0.5 * (shares[-1] - 0.5))
        assert run.method.clip_rule.norm_at(exponent(run.model)) == pytest.approx(norm, rel=2e-5)
    assert len(set(shares)) > 1, "some rounds have others within the norm"


def test_whoever_opens_and_also_resumed_runs_come_to_the_same_model_and_norm():
    """Of the same draws. Clients that were not in the rounds before get the norm with the model, or by its sums."""
    found = []
    for opener, restarts in [*((one, False) for one in OPENERS), ("clients", True), ("aggregator", True)]:
        run, rounds = run_of(opener, changes=LOUD, restarts_roles=restarts), []
        with noise_from_seeds():
            for participants in ([0, 1, 2, 3], [0, 1], [1, 2, 3]):
                run.run_round(participants)
                assert len({run.clients[one]._clip_exponent for one in participants}) == 1
                rounds.append((exponent(run.model), run.parameters.tobytes()))
        found.append(rounds)
    assert all(one == found[0] for one in found)
    assert len({clip for clip, _ in found[0]}) == 3


@pytest.mark.parametrize("opener", OPENERS)
def test_every_sum_is_charged_with_its_count_whatever_the_norm_is(opener):
    run = run_of(opener, changes=LOUD)
    for _ in range(3):
        run.run_round()
    noise = run.method.noise
    assert noise.charge.norm_bound_squared == noise.norm_bound_squared + noise.count_steps**2
    assert run.account.spent().epsilon == epsilon_of({noise.charge: 3}, 1e-5)
    settings = run.settings()
    assert settings["clipping"] == "adaptive"
    assert settings["noise_multiplier_with_count"] < noise.noise_multiplier
    (note,) = [one for one in run.account.notes if "leads to" in one]
    assert note.endswith(f"round 3 leads to is {run.method.clip_rule.norm_at(exponent(run.model)):.4g}")
    fixed = SteppedRun(labelled("ddp-fedavg"))
    assert not {"clipping", "clip_quantile", "noise_multiplier_with_count"} & fixed.settings().keys()


@pytest.mark.parametrize("encryption", ["kahe", "ckks"])
def test_a_model_without_buffers_has_room_for_the_count(encryption):
    initial = GlobalModel(initial_model().parameters, np.empty(0, np.float32))
    run = run_of(changes={**EXACT, "encryption": encryption}, initial=initial)
    run.run_round()
    assert exponent(run.model) != 0


def run_with_liar(sent, encryption, opener="authority"):
    """One client sends the largest number for its count that its own bits hold."""
    run = run_of(opener, changes={**LOUD, "clip_count_noise": 0.01, "encryption": encryption})
    liar, most = run.clients[2], run.method.noise.most_sent
    original = liar._vector

    def lying(answer):
        vector = original(answer)
        vector[PARAMETERS] = sent * most
        return vector

    liar._vector = lying
    return run, liar, original


@pytest.mark.parametrize("sent", [-1.0, 1.0])
def test_a_client_that_lies_of_its_norm_moves_it_by_a_round_at_most(sent):
    """Where sums have room for what it says."""
    run, *_ = run_with_liar(sent, "ckks")
    run.run_round()
    rule = run.method.clip_rule
    assert rule.moved(0, 1.0) <= exponent(run.model) <= rule.moved(0, 0.0)


@pytest.mark.parametrize("encryption", ["kahe", "pads"])
def test_a_client_that_sends_what_sums_have_no_room_for_spoils_its_round_and_no_other(encryption):
    """As one does that alters its ciphertexts; sums that nobody lies in have room, but for a chance of 2^-40."""
    run, liar, original = run_with_liar(1.0, encryption, "clients")
    of_a_round = abs(run.method.clip_rule.moved(0, 0.0))
    run.run_round()
    # The count opens as another number, or the sum is of no use to anybody and the model stays.
    assert abs(exponent(run.model)) <= of_a_round
    liar._vector, before = original, run.parameters
    run.run_round()
    assert not np.array_equal(run.parameters, before)
    assert abs(exponent(run.model)) <= 2 * of_a_round


@pytest.mark.parametrize(
    "part",
    [
        None,
        b"",
        bytes(7),
        bytes(9),
        np.float64(math.nan).tobytes(),
        np.int64(MOST_EXPONENT + 1).tobytes(),
        np.int64(-MOST_EXPONENT - 1).tobytes(),
    ],
)
def test_a_client_refuses_a_norm_that_no_round_has_before_it_trains(part):
    run = run_of()
    run.run_round()
    first = run.begin_round(2)
    changed = {name: value for name, value in first.items() if name != CLIP_EXPONENT}
    if part is not None:
        changed[CLIP_EXPONENT] = part
    client = run.clients[1]
    before = client._clip_exponent
    with pytest.raises(WireFormatError):
        client.begin_round(2, CLIENTS, resigned(run, changed))
    assert (client.round, client._clip_exponent) == (1, before)
    client.begin_round(2, CLIENTS, first)
    assert client._clip_exponent == exponent(first)


def test_a_sum_that_the_model_cannot_take_leaves_the_norm_as_it_is(monkeypatch):
    run = run_of()
    run.run_round()
    before = run.authority.newest_model()

    def refused(model, mean, learning_rate):
        raise RangeError("not finite")

    with monkeypatch.context() as patch:
        patch.setattr(GlobalModel, "moved_finite", refused)
        with pytest.raises(RangeError):
            run.run_round()
    assert run.authority.newest_model() == before
    assert run.authority.opener.rule._clip_exponent == exponent(before)


@pytest.mark.parametrize("role", ["clients", "authority"])
def test_a_state_of_a_norm_that_no_round_has_is_refused(role):
    run, key = run_of(), None
    run.run_round()
    one = run.clients[0] if role == "clients" else run.authority
    key = bytes(32) if one.needs_sealing else None
    holder = one if role == "clients" else one.opener.rule
    holder._clip_exponent = MOST_EXPONENT + 1
    state = one.state(key)
    fresh = run.new_client(0) if role == "clients" else run.new_authority()
    with pytest.raises(WireFormatError):
        fresh.restore(state, key)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clip_norm": 2.0**-90}, r"from 2\^-84 to 2\^84"),
        ({"clip_norm": 2.0**90}, r"from 2\^-84 to 2\^84"),
        ({"clipping": "other"}, "clipping"),
        ({"clip_quantile": 1.0}, "clip_quantile"),
        ({"clip_count_noise": 0.0}, "clip_count_noise"),
        ({"target_epsilon": 0.5}, "raise clip_count_noise"),
    ],
)
def test_what_no_norm_can_follow_is_refused_before_there_are_keys(changes, words):
    def made():
        settings = MethodSettings().changed("ddp-fedavg", {"clipping": "adaptive", **changes})
        return make_method("ddp-fedavg", settings, small_plan())

    with pytest.raises(ParameterError, match=words):
        made()


def test_what_an_epsilon_is_of_names_the_count_where_there_is_one():
    plan = small_plan()
    fixed, adaptive = (
        make_method("ddp-fedavg", MethodSettings().changed("ddp-fedavg", {"clipping": clipping}), plan)
        for clipping in ("fixed", "adaptive")
    )
    assert "count" not in fixed.privacy_reading.neighbours
    assert "count" in adaptive.privacy_reading.neighbours
    assert "count" in adaptive.privacy_reading.meaning
    assert "count" in adaptive.privacy_reading.if_participation_hidden
