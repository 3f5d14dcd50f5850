"""Pieces of an audit's work: which updates of a trial are attacked, and what federations of one number share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from shieldfl.errors import ParameterError
from shieldfl.lab.audit import piece
from shieldfl.lab.audit.attack import Recovered, UpdateAttack, usable_attacks
from shieldfl.lab.audit.attacks.labels import Ilrg
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.piece import AttackedTrial, Piece, PieceWorker
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.audit.views.view import Trial, party_named
from shieldfl.lab.simulation.data import Dataset
from shieldfl.methods.settings import MethodSettings


@pytest.fixture
def worker_of(small: AuditConfig, digits: Dataset) -> Callable[[str], PieceWorker]:
    """A worker for one attack, for what the aggregator gets."""

    def made(attack: str) -> PieceWorker:
        asked = replace(small, samples=2, rounds=1), (attack,), ("aggregator",), MethodSettings()
        return PieceWorker(asked, digits)

    return made


def test_a_planted_layer_has_the_rows_that_a_piece_says_and_its_form_tells_of_them(worker_of):
    name = "robbing-the-fed"
    ((whole,), (few,)) = (worker_of(name).do(Piece("fedavg", 0, (name,), rows=rows)) for rows in (None, 16))
    assert whole.parameters > 1000
    assert few.parameters is None  # it says nothing of how large a whole one is
    forms, fewer = ({form for form, _ in done.found["aggregator"].outcomes} for done in (whole, few))
    assert forms == {"update, round 1", "sum of 4, round 1"}
    assert fewer == {f"{form}, with 16 rows, since more would have taken too long" for form in forms}
    assert few.round_seconds is None  # of another model than others train


def test_plain_averaging_that_is_refused_is_asked_for_once_for_all_methods_of_a_number(
    worker_of, monkeypatch
):
    real, refused = piece.Trial, []

    def trial(name: str, *others: Any) -> Any:
        if name == "fedavg":
            refused.append(others[-1])
            raise ParameterError("not this one")
        return real(name, *others)

    monkeypatch.setattr(piece, "Trial", trial)
    worker = worker_of("idlg")
    for number in (0, 1):
        for method in ("mask-crypt", "dp-fedavg"):
            (done,) = worker.do(
                Piece(method, number, ("idlg",), {"idlg": 0.0})
            )  # over before its first search
            assert done.left_out is None
            assert done.found["aggregator"].received
    assert refused == [0, 1]


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
    found = attacked.found(party_named(party), Ilrg())
    assert found.outcomes
    assert all("round 2" in form for form, _ in found.outcomes)
    assert "synthetic data alone" in found.reason


def test_images_are_searched_for_in_the_first_round_on_the_client_s_own_data(first_on_synthetic):
    (search,), _ = usable_attacks(["inverting"])
    search = replace(search, iterations=1)
    attacked = AttackedTrial(first_on_synthetic, seed=0)
    found = attacked.found(party_named("aggregator"), search)
    assert [form for form, _ in found.outcomes] == ["update, round 2"]


def test_sums_that_share_clients_are_one_try(trial_of):
    attacked = AttackedTrial(trial_of("full-he"), seed=0)

    def tries(party: str) -> int:
        return len(
            [1 for form, _ in attacked.found(party_named(party), Ilrg()).outcomes if "round 1" in form]
        )

    assert tries("client") == 1  # of clients 0, 2 and 3, and of 1, 2 and 3
    assert tries("other-clients") == 4
    plain = AttackedTrial(trial_of("fedavg"), 0).found(party_named("aggregator"), Ilrg())
    assert len(plain.outcomes) == 2 * (4 + 1)


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
        return {outcome.remark for one in everybody for _, outcome in attacked.found(one, search).outcomes}

    assert remarks("fedavg") == {""}
    assert len(search.seen) == 1  # its message, and what the others work out of the sum
    assert remarks("full-he") == {"attacked as fedavg's update, which it is up to rounding"}
    assert len(search.seen) == 1
    assert "" in remarks("mask-crypt")  # a part of it, with the model and without
    assert len(search.seen) == 3
    assert remarks("dp-fedavg") == {""}  # of its own, with noise: the message, and the sum that tells it
    assert len(search.seen) == 4
