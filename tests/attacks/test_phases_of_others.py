"""An aggregator asks the key authority under another phase than the message is of: one round would give two models."""

from __future__ import annotations

import pytest

from methods.method_conformance import SteppedRun
from methods.variants import every_variant
from shieldfl.errors import ParameterError
from shieldfl.stateful import encode_record

OTHERS = ("cluster", "mask", "negotiate", "ranges", "ranking", "scores", "count", "update2", "")


@every_variant
def test_the_authority_answers_the_phases_alone_that_are_its_own(variant):
    """Refused before anything changes: what it opens under another name would not count as the round's answer."""
    run = SteppedRun(variant)
    if run.authority is None:
        return
    answered = {phase.name for phase in run.method.phases if phase.answered_by_authority}
    answer, asked = run.authority.answer, []

    def ask_under_other_names(phase, message):
        before = encode_record(run.authority.changed(), {})
        for other in sorted(set(OTHERS) - answered):
            with pytest.raises(ParameterError, match="phase"):
                answer(other, message)
            asked.append(other)
        assert encode_record(run.authority.changed(), {}) == before
        return answer(phase, message)

    run.authority.answer = ask_under_other_names
    run.run_round()
    run.run_round()
    assert {"cluster", "update2"} <= set(asked)
    key = bytes(32)
    run.new_authority().restore(run.authority.state(key), key)
