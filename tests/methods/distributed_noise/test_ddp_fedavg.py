"""Distributed noise: the opened sum alone has it, as much as is charged, whoever opens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.small_plan import small_plan
from methods.variants import CLIENTS, PARAMETERS, Variant, labelled
from reference.distributed_noise import rotated
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.privacy.events import OpenedSum
from shieldfl.privacy.noise import rotation_seed

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
