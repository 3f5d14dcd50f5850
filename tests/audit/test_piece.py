"""Pieces of an audit's work: a planted layer with fewer rows, and what federations of one number share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shieldfl.audit import piece
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.piece import Asked, Piece, PieceWorker
from shieldfl.errors import ParameterError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset


@pytest.fixture
def worker_of(small: AuditConfig, digits: Dataset) -> Callable[[str], PieceWorker]:
    """A worker for one attack, for what the aggregator gets."""

    def made(attack: str) -> PieceWorker:
        asked = Asked(replace(small, samples=2, rounds=1), (attack,), ("aggregator",), MethodSettings())
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
