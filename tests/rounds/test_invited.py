"""Whom a round asks: what is no choice of the plan's clients is refused, and changes nothing."""

from __future__ import annotations

import pytest

from methods.method_conformance import run_of
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.rounds.authorities import Invitations


@pytest.fixture(scope="module")
def plan():
    return run_of("full-he").method.plan


@pytest.mark.parametrize(
    "clients",
    [
        5,
        [0, 0, 1],
        [0, 99, 1],
        [-1, 0, 1],
        ["a", 0, 1],
        [0, 1, 2.5],
        [2**63, 0, 1],
        [2**64, 0, 1],
        [0, None, 1],
    ],
    ids=repr,
)
def test_others_than_the_clients_of_the_plan_are_refused_by_name(plan, clients):
    invitations = Invitations(plan)
    with pytest.raises(ParameterError, match=r"client|index|position"):
        invitations.settled(1, clients)
    assert invitations.settled(1, None) == Mask.full(plan.clients)


def test_as_many_as_the_plan_says_are_asked_and_stay_those_that_they_were(plan):
    invitations = Invitations(plan)
    with pytest.raises(PolicyError, match="fewer than min_clients"):
        invitations.settled(1, range(plan.min_clients - 1))
    few = invitations.settled(1, iter(range(plan.min_clients)))
    assert few.to_indices().tolist() == list(range(plan.min_clients))
    invitations.settle(1, few)
    with pytest.raises(PolicyError, match="was begun with other clients"):
        invitations.settled(1, None)
    assert invitations.settled(2, None) == Mask.full(plan.clients)
