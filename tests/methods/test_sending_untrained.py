"""A client that has not trained in a round has nothing to send in it, whatever it kept of the round before."""

from __future__ import annotations

import pytest

from methods.method_conformance import CLIENTS, SteppedRun, Variant
from shieldfl.errors import ParameterError
from shieldfl.methods.selective_shield_settings import SelectiveShieldSettings

METHODS = (
    "fedavg",
    "dp-fedavg",
    "dp-sgd",
    "alt-fl-si-dp",
    "alt-fl-mp",
    "full-he",
    "selective-shield",
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rounds", [0, 2])
def test_nothing_is_sent_before_training(method, rounds):
    """The third round of SI/DP is synthetic, and must not send what real data gave in the second."""
    variant = Variant(method, SelectiveShieldSettings(), method).with_others(
        interleaving_ratio="1/4", delta=1e-5
    )
    run = SteppedRun(variant)
    for _ in range(rounds):
        run.run_round()
    client, before = run.clients[0], run.method.privacy_spent()
    start = client.begin_round(rounds + 1, CLIENTS, run.model)
    assert start.synthetic == (method == "alt-fl-si-dp" and rounds == 2)
    with pytest.raises(ParameterError, match="before training has finished"):
        client.step(run.method.phases_of(run.model, rounds + 1)[0].name, None)
    assert repr(run.method.privacy_spent()) == repr(before)  # delta may be NaN
