"""Which updates of a trial are attacked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from shieldfl.audit.attack import Recovered, UpdateAttack
from shieldfl.audit.attacks.labels import Ilrg
from shieldfl.audit.attacks.offered import usable_attacks
from shieldfl.audit.piece import AttackedTrial
from shieldfl.audit.result import Outcome
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.audit.views.trial import Trial
from shieldfl.audit.views.view import party_named
from shieldfl.methods.settings import MethodSettings


@pytest.fixture
def first_on_synthetic(digits, small) -> Trial:
    """Plain averaging whose clients say that their first round was on synthetic data alone."""
    trial = Trial("fedavg", MethodSettings(), small, digits, 0)
    stated = trial.record.disclosures
    stated |= {key: replace(one, synthetic=key[1] == 1) for key, one in stated.items()}
    return trial


@pytest.mark.parametrize("party", ["aggregator", "other-clients"])
def test_rounds_on_synthetic_data_are_not_held_against_the_clients_own(first_on_synthetic, party):
    attacked = AttackedTrial(first_on_synthetic, seed=0)
    found = list(attacked.outcomes(party_named(party), Ilrg()))
    forms = {form for form, outcome in found if isinstance(outcome, Outcome)}
    assert forms
    assert all("round 2" in form for form in forms)
    assert any("synthetic data alone" in outcome for _, outcome in found if isinstance(outcome, str))


def test_images_are_searched_for_in_the_first_round_on_the_client_s_own_data(first_on_synthetic):
    (search,) = usable_attacks(["inverting"]).on_updates
    search = replace(search, iterations=1)
    attacked = AttackedTrial(first_on_synthetic, seed=0)
    found = list(attacked.outcomes(party_named("aggregator"), search))
    assert [form for form, outcome in found if isinstance(outcome, Outcome)] == ["update, round 2"]


def test_sums_that_share_clients_are_one_try(trial_of):
    attacked = AttackedTrial(trial_of("full-he"), seed=0)

    def tries(party: str) -> int:
        return len([1 for form, _ in attacked.outcomes(party_named(party), Ilrg()) if "round 1" in form])

    assert tries("client") == 1  # of clients 0, 2 and 3, and of 1, 2 and 3
    assert tries("other-clients") == 4
    assert len(
        list(AttackedTrial(trial_of("fedavg"), 0).outcomes(party_named("aggregator"), Ilrg()))
    ) == 2 * (4 + 1)


class _Searches(UpdateAttack):
    """Finds nothing, and counts how often it is asked to."""

    name, recovers, source = "counting", "images", ""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        return None

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        self.seen.append(observed.change)
        return Recovered(images=torch.zeros(1, *observed.sample_shape))


def test_an_update_that_is_plain_averaging_s_up_to_rounding_is_searched_once_for_all_methods(trial_of):
    search, known, plain = _Searches(), {}, trial_of("fedavg")
    everybody = [party_named(name) for name in ("aggregator", "other-clients", "aggregator-and-client")]

    def remarks(method: str) -> set[str]:
        attacked = AttackedTrial(trial_of(method), 0, plain, known)
        found = [one for party in everybody for one in attacked.outcomes(party, search)]
        return {outcome.remark for _, outcome in found if isinstance(outcome, Outcome)}

    assert remarks("fedavg") == {""}
    assert len(search.seen) == 1  # its message, and what the others work out of the sum
    assert remarks("full-he") == {"attacked as fedavg's update, which it is up to rounding"}
    assert len(search.seen) == 1
    assert "" in remarks("mask-crypt")  # a part of it, with the model and without
    assert len(search.seen) == 3
    assert remarks("dp-fedavg") == {""}  # of its own, with noise: the message, and the sum that tells it
    assert len(search.seen) == 4
