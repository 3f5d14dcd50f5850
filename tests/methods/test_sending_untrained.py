"""What a client sends is what it trained in the round: nothing before that, and the same whenever it is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from methods.honest_outcome import assert_same_model, honest_outcome
from methods.method_conformance import SteppedRun
from methods.variants import FAINT_TOLERANCE, every_variant
from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.local_update import PrivateSteps


def refused_updates(client, kept):
    """Updates that a client must refuse; all that is good in them differs from what it keeps."""
    steps = None if kept.private_steps is None else PrivateSteps(steps=9, sample_rate=1.0)
    other = replace(
        kept, parameters=-kept.parameters, buffers=-kept.buffers, scores=1 - kept.scores, private_steps=steps
    )
    yield replace(other, parameters=np.full_like(other.parameters, np.nan))
    if client.scores is not None:
        yield replace(other, scores=None)
    if steps is not None:
        yield replace(other, private_steps=None)


@every_variant
def test_training_that_is_refused_does_not_take_the_place_of_what_was_trained(variant):
    run = SteppedRun(variant)

    def finish_and_be_refused(update, finish, client):
        finish(update)
        for refused in refused_updates(client, update):
            with pytest.raises((ParameterError, RangeError)):
                finish(refused)

    for client in run.clients:
        client.finish_training = partial(finish_and_be_refused, finish=client.finish_training, client=client)
    for _ in range(3):  # the third is Alt-FL's first of the other kind
        run.run_round()
    twin = honest_outcome(variant, 3)
    assert_same_model(run, twin, variant)
    tolerance = FAINT_TOLERANCE if variant.noisy else 0.0
    for index, client in enumerate(run.clients):
        assert client.disclosure == twin.disclosures[index]
        own, expected = run.merged(index), twin.merged[index]
        np.testing.assert_allclose(own.parameters, expected.parameters, rtol=0.0, atol=tolerance)
        np.testing.assert_array_equal(own.buffers, expected.buffers)
    assert repr(run.account.spent()) == twin.privacy_spent
    # Steps that were charged are counted also where epsilon is infinite.
    assert run.settings() == twin.settings
