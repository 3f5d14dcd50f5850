"""The example with transformers and PEFT: `make hugging-face` runs these tests, in an environment that has them."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from flower.example_app import Runs

pytest.importorskip("peft", reason="an environment of its own has transformers and PEFT: make hugging-face")

NAME, CLIENTS, ROUNDS = "lora_text", 4, 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Both forms of the app, in this process, which cannot connect to anything meanwhile."""

    def refused(*arguments):
        raise AssertionError("nothing may be downloaded")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refused)
        return Runs(NAME, tmp_path_factory.mktemp(NAME), nodes=CLIENTS)


def accuracies(result):
    return [metrics["accuracy"] for _, metrics in sorted(result.evaluate_metrics_clientapp.items())]


def test_accuracy_rises_to_more_than_words_alone_tell(runs):
    """Guessing is right in half. Who counts words is in two thirds, and in half of the third with "but"."""
    for result in runs.results:
        found = accuracies(result)
        assert len(found) == ROUNDS
        assert found[0] < 0.6
        assert found == sorted(found)
        assert found[-1] > 0.9 > 5 / 6


def test_a_protected_app_has_model_and_metrics_of_the_plain_one(runs):
    """AdamW makes whole steps of small gradients, so that what is off by 4e-7 after a round is more after five."""
    plain, protected = runs.results
    np.testing.assert_allclose(accuracies(protected), accuracies(plain), atol=2 / 800)
    for model in runs.evaluated[-CLIENTS:]:
        assert list(model) == list(plain.arrays)
        for name, own in plain.arrays.items():
            np.testing.assert_allclose(model[name].numpy(), own.numpy(), atol=1e-3)
