"""Distributed noise: the opened sum alone has it, as much as is charged, whoever opens; norms that are adapted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, initial_model, resigned
from methods.small_plan import small_plan
from methods.variants import CLIENTS, FAINT_IN_SUMS, PARAMETERS, Variant, labelled
from privacy.seeded_draws import noise_from_seeds
from reference.distributed_noise import rotated
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.methods.noised_sums import NORM_EXPONENT
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import OpenedSum
from shieldfl.privacy.noise import MOST_EXPONENT, rotation_seed
from shieldfl.rounds.plan import GlobalModel

SPREAD = 0.25
"""What the deviation of 333 draws is within, but for one run in 10^9."""


def run_of(*, rounds: int = 3, weights: tuple[int, ...] | None = None, **changes: object) -> SteppedRun:
    return SteppedRun(labelled("ddp-fedavg").with_others(**changes), rounds=rounds, weights=weights)


def loud(**changes: object) -> SteppedRun:
    return run_of(**{"noise_multiplier": 4.0, "clip_norm": 0.25, **changes})


def method_of(plan=None, **changes: object):
    return make_method("ddp-fedavg", MethodSettings().changed("ddp-fedavg", changes), plan or small_plan())


def test_what_is_left_once_a_client_has_taken_its_own_part_from_a_sum_is_charged():
    """Every client knows what it drew itself, so that an honest one sees less noise in a sum than that has."""
    run = loud(clip_norm=1e-3)
    sent = {}
    for client in run.clients:
        original = client._vector
        client._vector = lambda answer, one=client.index, original=original: sent.setdefault(
            one, original(answer)
        )
    run.run_round(dropping=[0, 1])
    assert len(sent) == run.setup.plan.min_clients == 2
    noise, of_looker = run.method.noise, sent[3]
    moved = rotated(run.parameters - run.initial.parameters[:PARAMETERS], rotation_seed(run.setup.session, 1))
    left = 2 * noise.steps_per_unit * moved - of_looker[:PARAMETERS]
    victims = rotated(
        (run.updates[2].parameters - run.starts[2].parameters).astype(np.float64),
        rotation_seed(run.setup.session, 1),
    )
    victims *= noise.steps_per_unit * noise.clip_norm / np.linalg.norm(victims)
    charged = math.sqrt(noise.charge.honest_clients * noise.charge.share_variance)
    assert np.std(left - victims) == pytest.approx(charged, rel=0.2)


def test_what_a_client_encrypts_has_its_own_share_alone():
    """Whole numbers, within what is sent, whose sum has the bits that the plan of noise says."""
    run = loud()
    sent = []
    for client in run.clients:
        original = client._vector
        client._vector = lambda answer, original=original: sent.append(original(answer)) or sent[-1]
    run.run_round()
    noise = run.method.noise
    norm = noise.steps_per_unit * noise.clip_norm
    for one in sent:
        assert np.array_equal(one, np.rint(one))
        assert np.abs(one).max() <= noise.most_sent < 2 ** (noise.value_bits - 1)
        assert not one[PARAMETERS:].any()
        own = float(noise.share_variance) + norm**2 / PARAMETERS
        assert np.std(one[:PARAMETERS]) == pytest.approx(math.sqrt(own), rel=SPREAD)
    assert run.method.purposes["update"].fraction_bits == 0
    assert run.method.purposes["update"].value_bits == noise.value_bits
    assert run.method.purposes["update"]._facts["sum_bits"] == noise.sum_bits
    assert noise.clients == CLIENTS


@pytest.mark.parametrize(
    ("encryption", "opener"),
    [("kahe", "authority"), ("kahe", "clients"), ("pads", "clients"), ("ckks", "authority")],
)
def test_a_sum_of_fewer_than_are_charged_is_not_opened(encryption, opener):
    """The authority refuses it, and nobody else can."""
    variant = labelled("ddp-fedavg").with_others(noise_multiplier=4.0).under(encryption)
    run = SteppedRun(Variant(variant.method, variant.settings, "few", variant.others, opener))
    before = run.model
    with pytest.raises(PolicyError):
        run.run_round(dropping=[1, 2, 3])
    assert run.model == before
    events = run.account.book.all
    assert not any(isinstance(one, OpenedSum) for one in events)
    # Each client also refuses a round that is said to be so small.
    with pytest.raises(PolicyError, match="participants"):
        run.clients[0].begin_round(2, 1, run.method.message_for(0, run.model))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colluders": 2}, "take a min_clients of at least 3, not 2"),
        ({"colluders": 7}, "take a min_clients of at least 8, not 2"),
        ({"noise_multiplier": 1e-12}, "no grid fits"),
        ({"noise_multiplier": 1e12}, "no grid fits"),
        ({"noise_multiplier": 5e-324}, "so far from 1"),
        ({"noise_multiplier": 1e300}, "so far from 1"),
        ({"clip_norm": 5e-324}, r"from 2\^-100 to 2\^100"),
        ({"clip_norm": 1e300}, r"from 2\^-100 to 2\^100"),
        ({"target_epsilon": 500.0}, "take a smaller epsilon"),
        ({"target_epsilon": 1e-9}, "allow a larger epsilon or fewer rounds"),
        ({"target_epsilon": 5e-324}, "allow a larger epsilon or fewer rounds"),
        ({"encryption": "none"}, "encryption"),
    ],
)
def test_what_no_sum_can_have_is_refused_before_there_are_keys(changes, words):
    with pytest.raises(ParameterError, match=words):
        method_of(**changes)


def test_too_little_noise_for_any_figure_is_said_to_be():
    run = run_of(noise_multiplier=0.01)
    run.run_round()
    spent = run.account.spent()
    assert math.isinf(spent.epsilon)
    assert "too little noise" in spent.reason
    assert run.settings()["added_delta"] is None


OPENERS = ("authority", "clients", "aggregator")
# Noise that moves no count by a client in a million.
EXACT = {**FAINT_IN_SUMS, "clip_norm": 1.9, "clip_count_noise": 1e-6, "clip_learning_rate": 0.5}
LOUD = {"noise_multiplier": 4.0, "clip_norm": 0.25, "clip_count_noise": 0.5}


def adaptive_run(opener="authority", *, rounds=8, changes=EXACT, **others):
    variant = labelled("ddp-fedavg").with_others(**{"clipping": "adaptive", **changes})
    made = Variant(variant.method, variant.settings, "adaptive", variant.others, opener)
    return SteppedRun(made, rounds=rounds, **others)


def exponent(model) -> int:
    return int(model.vector(NORM_EXPONENT, np.int64, 1)[0])


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
    run = adaptive_run(changes={**EXACT, "clip_norm": norm, "encryption": encryption})
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
        run, rounds = adaptive_run(opener, changes=LOUD, restarts_roles=restarts), []
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
    run = adaptive_run(opener, changes=LOUD)
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
    run = adaptive_run(changes={**EXACT, "encryption": encryption}, initial=initial)
    run.run_round()
    assert exponent(run.model) != 0


def run_with_liar(sent, encryption, opener="authority"):
    """One client sends the largest number for its count that its own bits hold."""
    run = adaptive_run(opener, changes={**LOUD, "clip_count_noise": 0.01, "encryption": encryption})
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
    run = adaptive_run()
    run.run_round()
    first = run.begin_round(2)
    changed = {name: value for name, value in first.items() if name != NORM_EXPONENT}
    if part is not None:
        changed[NORM_EXPONENT] = part
    client = run.clients[1]
    before = client._clip_exponent
    with pytest.raises(WireFormatError):
        client.begin_round(2, CLIENTS, resigned(run, changed))
    assert (client.round, client._clip_exponent) == (1, before)
    client.begin_round(2, CLIENTS, first)
    assert client._clip_exponent == exponent(first)


def test_a_sum_that_the_model_cannot_take_leaves_the_norm_as_it_is(monkeypatch):
    run = adaptive_run()
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
    run, key = adaptive_run(), None
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
