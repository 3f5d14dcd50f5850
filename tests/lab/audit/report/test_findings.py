"""Sentences of an audit's report, against the cells that they are read off."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from lab.audit.report.made_up_audits import audit_of, audit_of_one_try, cell, small_audit
from shieldfl.lab.audit.attack import Cell
from shieldfl.lab.report.audit_report import LIMITS, findings


def test_says_what_was_recovered_what_was_not_and_what_that_leaves_open() -> None:
    assert findings(small_audit()) == [
        "ilrg recovered most for the client under mask-crypt: LnAcc 0.95 where chance has 0.25. Of plain averaging, "
        "which protects nothing, the aggregator gets 0.90 (chance 0.25).",
        "dlg recovered most for the aggregator under mask-crypt: IIP 0.60 where chance has 0.25. Of plain averaging, "
        "which protects nothing, the aggregator gets 0.90 (chance 0.25).",
        "Of 18 cells 2 were not attacked and 1 too few times to tell anything.",
        LIMITS,
    ]


def test_parties_that_got_as_much_are_named_together() -> None:
    cells = [
        cell(method, "ilrg", party, "some")
        for method in ("top-2", "full-he", "dp-sgd")
        for party in ("network", "client")
    ]
    first, *_ = findings(audit_of(cell("fedavg", "ilrg", "aggregator"), *cells))
    assert "most for the network and the client under top-2: LnAcc 0.60 where chance has 0.25" in first


def test_what_chance_leaves_counts_and_not_the_figure_alone() -> None:
    complete = replace(cell("top-2", "ilrg", "network"), figure=1.0, high=1.0, low=1.0, chance=0.8)
    larger_step = replace(cell("full-he", "ilrg", "client"), figure=0.85, low=0.8, high=0.9, chance=0.5)
    first, *_ = findings(audit_of(cell("fedavg", "ilrg", "aggregator"), larger_step, complete))
    assert "for the network under top-2: LnAcc 1.00" in first


def test_an_attack_that_fails_without_protection_is_called_too_weak() -> None:
    weak = [cell(method, "ilrg", "aggregator", "chance") for method in ("fedavg", "full-he")]
    first, *_ = findings(audit_of(*weak))
    assert first.startswith("ilrg got nothing above chance of any protected method.")
    assert "so weak an attack tells nothing of a method" in first


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([cell("top-2", "ilrg", "client", "some")], "There is no figure of it of plain averaging"),
        ([Cell("top-2", "ilrg", "client", "does not apply", "why")], "on no protected update often enough"),
        (
            [replace(cell("top-2", "ilrg", "client"), low=-float("inf"), high=float("inf"), tries=1)],
            "ilrg was tried on no protected update often enough to tell.",
        ),
    ],
)
def test_what_cannot_be_said_is_not(cells: list[Cell], said: str) -> None:
    sentences = findings(audit_of(*cells))
    assert said in sentences[0]
    assert sentences[-1] == LIMITS
    assert "chance of any protected" not in " ".join(sentences)


def test_few_tries_are_said_to_be_few() -> None:
    assert "No cell has more tries than 1: intervals of so few are too narrow." in findings(
        audit_of_one_try()
    )
    assert not any("too narrow" in sentence for sentence in findings(small_audit()))
