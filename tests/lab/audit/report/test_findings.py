"""Sentences of an audit's report, against the cells that they are read off."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from lab.audit.report.made_up_audits import audit_of, audit_of_one_try, cell, small_audit
from shieldfl.lab.report.audit_report import LIMITS, findings


def test_says_what_was_not_attacked_and_what_that_leaves_open() -> None:
    assert findings(small_audit()) == [
        "Of 18 cells 2 were not attacked and 1 too few times to tell anything.",
        LIMITS,
    ]
    assert "No cell has more tries than 1: intervals of so few are too narrow." in findings(
        audit_of_one_try()
    )


def test_an_attack_of_which_plain_averaging_says_nothing_is_named() -> None:
    weak = [cell(method, "ilrg", "aggregator", "chance") for method in ("fedavg", "full-he")]
    first, *_ = findings(audit_of(*weak))
    assert first == "ilrg gets nothing of plain averaging: so weak an attack tells nothing of a method."
    first, *_ = findings(audit_of(cell("top-2", "ilrg", "client", "some")))
    assert first.startswith("There is no figure of ilrg of plain averaging")
