"""The lies that an audit tells, told to more variants of methods: refused, and rounds go on as if none was told.

What each lie gets where it is not refused is in audit/protocol.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from methods.honest_outcome import assert_same_model, honest_outcome
from methods.method_conformance import SteppedRun
from methods.variants import CLIENTS, Variant, labelled, opened_by_aggregator, opened_by_clients
from shieldfl.errors import PolicyError
from shieldfl.lab.audit.protocol.lies import FewTotal, LateTotal, LoneTotal, SecondTotal
from shieldfl.lab.audit.protocol.protocol_attack import LyingAggregator

READER = CLIENTS - 1
ROUNDS = 3
BY_AUTHORITY = ["full-he/ckks", "fedml-he", "selective-shield/encrypted", "batch-crypt", "dict-pfl"]
BY_CLIENTS = ["full-he", "fedml-he", "selective-shield/encrypted", "dict-pfl"]
VARIANTS = [
    *map(labelled, BY_AUTHORITY),
    *opened_by_clients([labelled(label) for label in BY_CLIENTS]),
    *opened_by_aggregator([labelled("full-he"), labelled("fedml-he")]),
]


@pytest.mark.every_run(
    "selective-shield/encrypted/opened by clients by clients",
    "dict-pfl by authority",
    "full-he/opened by the aggregator by aggregator",
    "full-he/ckks by authority",
)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant.label} by {variant.opener}")
def test_lies_about_sums_are_refused_and_change_nothing(variant: Variant):
    run = SteppedRun(variant, min_clients=3)
    refused: dict[str, int] = {}

    def tell(liar: LyingAggregator, phase: str) -> None:
        for attack in (LoneTotal, FewTotal, LateTotal, SecondTotal):
            victim = (liar.round + 1) % READER
            try:
                told = attack.obtain(liar, phase, victim)
            except PolicyError:
                refused[attack.name] = refused.get(attack.name, 0) + 1
            else:
                assert told is None  # of the first round, which a later one comes back to
                assert attack is LateTotal

    def changes():
        return {client: one.parameters - run.starts[client].parameters for client, one in run.updates.items()}

    LyingAggregator(run, READER, changes, tell)
    for _ in range(ROUNDS):
        run.run_round()
    assert refused == {
        "lone-total": ROUNDS,
        "few-total": ROUNDS,
        "late-total": ROUNDS - 1,
        "second-total": ROUNDS,
    }
    assert_same_model(run, honest_outcome(variant, ROUNDS), variant)
