"""What honest rounds of a variant come to: run once, for all tests that compare with it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from methods.method_conformance import SteppedRun
from methods.variants import FAINT_TOLERANCE, Variant
from shieldfl.learning.local_update import StartingPoint
from shieldfl.rounds.reports import Disclosure


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run has come to after a round; its vectors cannot be written to."""

    parameters: np.ndarray
    buffers: np.ndarray
    merged: list[StartingPoint]
    """By client: what it would use for inference."""
    disclosures: list[Disclosure]
    """By client."""
    sent_parts: dict[str, set[str]]
    """By phase: the names of what the first client sent."""
    events: list[str]
    privacy_spent: str
    """As it is written, since delta may be NaN."""
    settings: dict[str, object]

    @classmethod
    def of(cls, run: SteppedRun) -> Outcome:
        outcome = cls(
            run.parameters.copy(),
            run.buffers.copy(),
            [run.merged(client) for client in range(len(run.clients))],
            [client.disclosure for client in run.clients],
            {phase: set(messages[0]) for phase, messages in run.sent.items()},
            recorded(run),
            repr(run.account.spent()),
            dict(run.settings()),
        )
        for one in (outcome, *outcome.merged):
            one.parameters.setflags(write=False)
            one.buffers.setflags(write=False)
        return outcome


def recorded(run: SteppedRun) -> list[str]:
    """Every privacy event, written out: in whatever order the roles report, the same list."""
    return sorted(map(repr, run.account.book.all))


@functools.cache
def _honest_run(variant: Variant) -> tuple[SteppedRun, list[Outcome]]:
    return SteppedRun(variant), []


def honest_outcome(variant: Variant, rounds: int = 1) -> Outcome:
    """What so many rounds of everybody give if nobody does anything wrong: the same for all tests, so run once."""
    run, outcomes = _honest_run(variant)
    while len(outcomes) < rounds:
        try:
            run.run_round()
        except BaseException:
            # Half a round is no start for the next test that asks.
            _honest_run.cache_clear()
            raise
        outcomes.append(Outcome.of(run))
    return outcomes[rounds - 1]


def assert_same_model(run: SteppedRun, expected: SteppedRun | Outcome, variant: Variant) -> None:
    """Equal to the last bit, but for the faint noise where there is some."""
    tolerance = FAINT_TOLERANCE if variant.noisy else 0.0
    np.testing.assert_allclose(run.parameters, expected.parameters, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(run.buffers, expected.buffers, rtol=0.0, atol=tolerance)
