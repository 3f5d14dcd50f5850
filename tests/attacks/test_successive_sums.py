"""Nobody lies: sums of two rounds, of which one has a client more, differ by what that client sent.

What docs/explanation/what-leaks.md says of sums round after round, carried out by a client that opens them.
"""

from __future__ import annotations

import numpy as np

from methods.method_conformance import contraction, run_of

FEW, ALL = [0, 1, 2], [0, 1, 2, 3]
VICTIM, READER = 3, 1


def steady(round_number, client, start):
    """Training whose scores stay what they were, as those of a model that hardly moves do."""
    return contraction(1, client, start)


def test_tallies_of_two_rounds_tell_the_mask_of_who_came():
    run, tallies = run_of("selective-shield/encrypted", "clients", train=steady), []
    for participants in (FEW, ALL):
        run.run_round(participants)
        tallies.append(run.clients[READER]._opening.opener.rule._tallies)
    mask = run.clients[VICTIM]._mask.to_bool()
    assert 0 < mask.sum() < mask.size
    np.testing.assert_array_equal(tallies[1] - tallies[0], mask)
    assert any("the difference is its vote" in note for note in run.account.notes)


def test_sums_of_updates_tell_that_of_who_came_but_for_what_the_others_changed():
    """The others' targets stay: the model moves towards them by a tenth of the way, and so do their updates change."""
    run, means = run_of("full-he", "clients", train=steady), []
    before = run.parameters.copy()
    for participants in (FEW, ALL):
        run.run_round(participants)
        means.append(len(participants) * (run.parameters.astype(np.float64) - before))
        before = run.parameters.copy()
    start, client = run.starts[VICTIM], run.clients[VICTIM]
    update = client.update.parameters.astype(np.float64) - start.parameters
    guess = means[1] - means[0]
    assert np.corrcoef(guess, update)[0, 1] > 0.9
