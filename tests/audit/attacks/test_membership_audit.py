"""Membership in the last model: who has it, and when two methods' models are one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from shieldfl.audit.attacks.membership import MembershipAudit
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.views.view import PARTIES
from shieldfl.errors import ParameterError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset


@pytest.fixture(scope="module")
def audit(digits: Dataset) -> MembershipAudit:
    found = MembershipAudit(AuditConfig(model="linear", threads=1), MethodSettings(), digits, PARTIES)
    found.models = 6
    found._run_config = replace(found._run_config, rounds=1, local_epochs=1)
    return found


def test_parties_that_have_the_model_get_the_figure_and_others_nothing(audit):
    told: list[tuple[str, int]] = []
    cells = {one.party: one for one in audit.cells("full-he", lambda *told_of: told.append(told_of))}
    assert {name for name, one in cells.items() if one.status == "attacked"} == {
        "client",
        "other-clients",
        "aggregator-and-client",
        "outsider",
    }
    assert cells["aggregator"].status == cells["network"].status == "does not apply"
    assert "the model is that of fedavg" in cells["client"].form
    assert cells["client"].tries == 6 * 400
    assert cells["client"].chance == 0.01
    assert told == [("fedavg", number) for number in range(6)]
    # The same models, so nothing is trained again.
    plain = {one.party: one for one in audit.cells("fedavg", lambda *told_of: told.append(told_of))}
    assert plain["aggregator"].figure == cells["client"].figure
    assert len(told) == 6


def test_a_method_with_a_model_of_its_own_is_attacked_itself(audit):
    told: list[tuple[str, int]] = []
    (first, *_) = audit.cells("dp-fedavg", lambda *told_of: told.append(told_of))
    assert told == [("dp-fedavg", number) for number in range(6)]
    assert "fedavg" not in first.form


def test_clusters_with_models_of_their_own_have_no_one_model_to_ask(audit, monkeypatch):
    monkeypatch.setattr(
        "shieldfl.simulation.method_run.MethodRun.last_models", lambda run: SimpleNamespace(of_all=None)
    )
    with pytest.raises(ParameterError, match="no one model at its end"):
        audit.cells("full-he", lambda *told_of: None)


def test_too_few_samples_are_refused(digits):
    few = replace(digits, train_labels=digits.train_labels[:300])
    with pytest.raises(ParameterError, match="takes 400 samples"):
        MembershipAudit(AuditConfig(), MethodSettings(), few, PARTIES)


@pytest.mark.slow
def test_an_overfitted_plain_model_tells_its_members_and_a_noised_one_does_not(digits):
    audit = MembershipAudit(AuditConfig(threads=1), MethodSettings(), digits, PARTIES)
    plain, noised = (audit.cells(name, lambda *told_of: None)[1] for name in ("fedavg", "dp-fedavg"))
    assert plain.low > 5 * plain.chance
    assert noised.low <= noised.chance
