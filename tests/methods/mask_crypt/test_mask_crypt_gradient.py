"""What MaskCrypt's clients rank by: the gradient that training brings along, or what training itself has moved."""

from __future__ import annotations

import numpy as np

from methods.mask_crypt.mask_crypt_twin import twin_ranking
from methods.method_conformance import SteppedRun
from methods.variants import PARAMETERS, Variant
from shieldfl.methods.mask_crypt.method import decode_ranking
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings


def ranked_by(run: SteppedRun, slope_of) -> None:
    """Every client's ranking in this round is the one by these slopes."""
    for index, client in enumerate(run.clients):
        ranking = decode_ranking(run.sent["ranking"][index]["ranking"], PARAMETERS)
        scores = (run.exposed[index] - client.update.parameters) * slope_of(index, client)
        np.testing.assert_array_equal(ranking, twin_ranking(scores, ranking.size))


def run_of(gradient: str) -> SteppedRun:
    plain = Variant("mask-crypt", SelectiveShieldSettings(), "mask-crypt")
    return SteppedRun(plain.with_others(key_bits=2048, gradient=gradient))


def test_update_ranks_by_what_training_has_moved_and_asks_training_for_nothing():
    run = run_of("update")
    assert run.method.scores is None
    for _ in range(2):
        run.exposed = [client._exposed.copy() for client in run.clients]
        run.run_round()
        ranked_by(run, lambda index, client: client.start.parameters - client.update.parameters)


def test_full_batch_ranks_by_the_gradient_that_training_brings():
    run = run_of("full-batch")
    assert run.method.scores == "gradient"
    run.exposed = [client._exposed.copy() for client in run.clients]
    run.run_round()
    ranked_by(run, lambda index, client: client.trained_scores)
