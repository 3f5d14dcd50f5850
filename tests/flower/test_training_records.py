"""What an app's reply has to say and to bring, by what its round asks for."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.training_records import SCORES, asked_training, done_training, update_of
from shieldfl.flower.wire import TRAINING
from shieldfl.training.local_update import GradientNoise, PrivateSteps, StartingPoint

PARAMETERS = np.arange(6, dtype=np.float32)
NO_BUFFERS = np.empty(0, np.float32)


def record(**arrays):
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


TRAINED = {"weight": np.ones((2, 2), np.float32), "bias": np.zeros(2, np.float32)}
LAYOUT = RecordLayout.of(record(**TRAINED))


def start_of(**asked):
    return StartingPoint(PARAMETERS, NO_BUFFERS, round=2, **asked)


def reply_of(start, *, synthetic=False, steps=None, **more):
    update = start.trained(PARAMETERS, NO_BUFFERS, None, steps)
    content = {"arrays": record(**TRAINED), TRAINING: done_training(update, synthetic=synthetic)}
    return RecordDict(content | more)


def test_what_was_trained_is_read_by_the_layout():
    update = update_of(reply_of(start_of()), start_of(), LAYOUT)
    np.testing.assert_array_equal(update.parameters, [1, 1, 1, 1, 0, 0])
    assert update.scores is update.private_steps is None


def test_a_round_on_synthetic_data_takes_no_reply_that_does_not_say_so():
    start = start_of(synthetic=True)
    assert asked_training(start, 0)["synthetic"] is True
    assert asked_training(start_of(synthetic_share=0.25), 0)["synthetic-share"] == 0.25
    update_of(reply_of(start, synthetic=True), start, LAYOUT)
    for reply in (reply_of(start), RecordDict({"arrays": record(**TRAINED)})):
        with pytest.raises(PolicyError, match="sends what it trains in the clear: the app has to say"):
            update_of(reply, start, LAYOUT)


def test_a_round_of_dp_sgd_takes_no_reply_that_does_not_say_its_steps():
    start, steps = start_of(noise=GradientNoise(1.5, 1.0)), PrivateSteps(3, 0.25)
    asked = asked_training(start, 0)
    assert (asked["private"], asked["noise-multiplier"], asked["max-grad-norm"]) == (True, 1.5, 1.0)
    assert update_of(reply_of(start, steps=steps), start, LAYOUT).private_steps == steps
    for reply in (reply_of(start), RecordDict({"arrays": record(**TRAINED)})):
        with pytest.raises(PolicyError, match="trains by DP-SGD: the app has to say how many steps"):
            update_of(reply, start, LAYOUT)


def test_scores_are_of_every_parameter():
    start = start_of(scores="gradient")
    scores = {name: np.full_like(array, 2.0) for name, array in TRAINED.items()}
    found = update_of(reply_of(start, **{SCORES: record(**scores)}), start, LAYOUT)
    np.testing.assert_array_equal(found.scores, np.full(6, 2.0))
    with pytest.raises(ParameterError, match="needs scores of the kind 'gradient'"):
        update_of(reply_of(start), start, LAYOUT)
    with pytest.raises(ParameterError, match="scores are arrays under the names"):
        update_of(reply_of(start, **{SCORES: record(bias=scores["bias"])}), start, LAYOUT)


def test_a_reply_has_one_record_of_arrays():
    with pytest.raises(ParameterError, match="has 2 records of arrays: return the trained model in one"):
        update_of(reply_of(start_of(), more=record(**TRAINED)), start_of(), LAYOUT)
    with pytest.raises(ParameterError, match="has 0 records of arrays"):
        update_of(RecordDict(), start_of(), LAYOUT)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bias": None}, "'bias' is in one of the two alone"),
        ({"more": np.zeros(1, np.float32)}, "'more' is in one of the two alone"),
        ({"bias": np.zeros(3, np.float32)}, r"'bias' has the shape \(3,\) .* has floats of the shape \(2,\)"),
        ({"bias": np.zeros(2, np.int64)}, "'bias' has the shape .* and the type int64"),
    ],
)
def test_other_arrays_than_the_models_are_named(changes, words):
    arrays = {name: array for name, array in (TRAINED | changes).items() if array is not None}
    with pytest.raises(ParameterError, match=words):
        LAYOUT.model_of(record(**arrays))


def test_a_model_that_cannot_be_protected_is_refused():
    with pytest.raises(ParameterError, match="has no parameters: there is nothing to train or protect"):
        RecordLayout.of(record(count=np.zeros(1, np.int64)))
    brain_float = Array("bfloat16", (1,), "numpy.ndarray", bytes(2))
    with pytest.raises(ParameterError, match="'half' is of type bfloat16, which NumPy does not know"):
        RecordLayout.of(ArrayRecord({"half": brain_float}))


def test_a_layout_and_what_stays_apart_come_back_from_their_text():
    arrays = {**TRAINED, "bn.running_mean": np.ones(3, np.float32), "bn.count": np.array(7)}
    layout = RecordLayout.of(record(**arrays))
    assert RecordLayout.from_json(layout.to_json()) == layout
    apart = layout.apart_from_message(layout.apart_to_message(layout.apart_of(record(**arrays))))
    model = layout.model_of(record(**arrays))
    found = layout.record_of(model.parameters, model.buffers, apart)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
    with pytest.raises(WireFormatError, match="no layout of a model"):
        RecordLayout.from_json('{"order": 1}')
