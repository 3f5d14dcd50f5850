"""Users' own models and data: what is taken, as what, and what is refused before anything trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ArrayTypeError, DataError, ParameterError
from shieldfl.lab.simulation.task import Task

FEATURES, CLASSES = np.arange(24.0).reshape(8, 3), np.arange(8) % 2


def linear():
    return nn.Linear(3, 2)


def task(**changes):
    given = {"model": linear, "train_data": (FEATURES, CLASSES), "test_data": (FEATURES[:2], CLASSES[:2])}
    return Task(**(given | changes))


class Pairs(torch.utils.data.Dataset):
    def __init__(self, features, targets):
        self.pairs = list(zip(features, targets, strict=True))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return self.pairs[index]


def halves():
    return [(FEATURES[:3], CLASSES[:3]), (FEATURES[3:], CLASSES[3:])]


@pytest.mark.parametrize(
    "data",
    [
        (FEATURES, CLASSES),
        (FEATURES.astype(np.float16), CLASSES.astype(np.uint8)),
        (torch.tensor(FEATURES), torch.tensor(CLASSES)),
        (FEATURES.tolist(), CLASSES.tolist()),
        Pairs(FEATURES, CLASSES),
        Pairs(torch.tensor(FEATURES), CLASSES),
        torch.utils.data.TensorDataset(torch.tensor(FEATURES), torch.tensor(CLASSES)),
        halves(),
        [Pairs(*part) for part in halves()],
    ],
    ids=lambda data: type(data).__name__,
)
def test_data_come_in_as_people_hold_them(data):
    made = task(train_data=data).dataset()
    assert (made.train_features.dtype, made.train_labels.dtype) == (torch.float32, torch.int64)
    np.testing.assert_array_equal(made.train_features, FEATURES)
    np.testing.assert_array_equal(made.train_labels, CLASSES)
    assert (made.classes, made.feature_shape) == (2, (3,))


@pytest.mark.parametrize(
    "changes",
    [
        {"train_data": (np.ma.masked_less(FEATURES, 3), CLASSES)},
        {"train_data": (FEATURES, np.ma.masked_equal(CLASSES, 1))},
        {"train_data": [(FEATURES, CLASSES), (np.ma.masked_less(FEATURES, 3), CLASSES)]},
        {"train_data": Pairs(np.ma.masked_less(FEATURES, 3), CLASSES)},
        {"test_data": (np.ma.masked_less(FEATURES, 3), CLASSES)},
        {"partition": [np.ma.masked_equal(np.arange(4), 0), np.arange(4, 8)]},
    ],
    ids=["features", "targets", "a client's", "a data set's", "tests'", "positions"],
)
def test_a_mask_of_samples_is_not_lost(changes):
    one = task(**changes)
    with pytest.raises(ArrayTypeError, match=r"whose mask would be lost: pass \.filled"):
        one.parts(one.dataset(), 2, 1.0, 0)


def test_parts_of_clients_are_theirs():
    parts = task(train_data=halves()).parts(task(train_data=halves()).dataset(), 2, 0.5, 0)
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    own = task(partition=[[7, 0], np.arange(1, 7)])
    assert [part.tolist() for part in own.parts(own.dataset(), 2, 0.5, 0)] == [[0, 7], [1, 2, 3, 4, 5, 6]]
    assert own.concentration(own.dataset(), 0.5) is None


def test_targets_that_are_no_classes_are_dealt_out_evenly():
    targets = np.linspace(0.0, 1.0, 8)
    one = task(train_data=(FEATURES, targets), test_data=(FEATURES, targets), loss=nn.MSELoss())
    made = one.dataset()
    assert made.classes == 0
    assert [len(part) for part in one.parts(made, 4, 0.01, 0)] == [2, 2, 2, 2]
    assert one.concentration(made, 0.01) == float("inf")
    assert task().concentration(task().dataset(), 0.01) == 0.01


def test_a_factory_is_seeded_and_a_module_is_the_same_for_all():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert torch.equal(task().built(1).weight, task().built(1).weight)
    assert not torch.equal(task().built(1).weight, task().built(2).weight)
    assert torch.equal(torch.get_rng_state(), before)
    module = linear()
    one = task(model=module)
    assert torch.equal(one.built(1).weight, one.built(2).weight)
    assert one.built(1) is not module


SEVERAL_SHAPES = Pairs([FEATURES[0], FEATURES[0, :2]], [0, 1])
REFUSED = [
    ({"partition": [[0, 1], [2, 3]]}, ParameterError, "4 of 8 samples at no client and 0 at several"),
    ({"partition": [[0, 1, 2, 3], [3, 4, 5, 6, 7]]}, ParameterError, "at no client and 1 at several"),
    ({"partition": [[0, 8], [1]]}, ParameterError, "outside of the 8 samples"),
    ({"partition": [[0, -1], [1]]}, ParameterError, "outside of the 8 samples"),
    ({"partition": [[], range(8)]}, ParameterError, "client 0 must be positions"),
    ({"partition": [CLASSES == 0, CLASSES == 1]}, ParameterError, "must be positions"),
    ({"partition": [range(8)]}, ParameterError, "1 parts of the data, and 2 clients"),
    ({"train_data": []}, ParameterError, "empty list"),
    ({"train_data": Pairs([], [])}, ParameterError, "has no samples"),
    ({"train_data": np.zeros((4, 3))}, ParameterError, "must be pairs"),
    ({"train_data": 5}, ArrayTypeError, "not int"),
    ({"train_data": (FEATURES, CLASSES[:7])}, ParameterError, "8 features and 7 targets"),
    ({"train_data": (FEATURES * np.nan, CLASSES)}, DataError, "NaN or infinite"),
    ({"train_data": (["a"] * 8, CLASSES)}, ArrayTypeError, "no array of numbers"),
    ({"train_data": (FEATURES * 1j, CLASSES)}, ArrayTypeError, "complex"),
    ({"train_data": (1.0, 1)}, ArrayTypeError, "single number"),
    ({"train_data": SEVERAL_SHAPES}, ParameterError, "cannot be put into one tensor"),
    ({"train_data": (FEATURES, CLASSES - 1)}, ParameterError, "a target -1"),
    (
        {"train_data": [(FEATURES, CLASSES), (FEATURES[:, :2], CLASSES)]},
        ParameterError,
        r"features of train_data of client 1 are \(2,\)",
    ),
    (
        {"test_data": (FEATURES[:, :2], CLASSES)},
        ParameterError,
        r"features of test_data are \(2,\) of torch.float32, those of train_data \(3,\)",
    ),
    ({"test_data": (CLASSES[:, None].repeat(3, 1), CLASSES)}, ParameterError, "torch.int64"),
    (
        {"train_data": (FEATURES, FEATURES), "test_data": (FEATURES, FEATURES)},
        ParameterError,
        "give a loss",
    ),
]


@pytest.mark.parametrize(("changes", "kind", "words"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(changes, kind, words):
    one = task(**changes)
    with pytest.raises(kind, match=words):
        one.parts(one.dataset(), 2, 0.5, 0)


def test_what_contradicts_itself_is_refused_at_once():
    with pytest.raises(ParameterError, match="leave out partition"):
        task(train_data=halves(), partition=[[0], [1]])
    with pytest.raises(ParameterError, match="and not both"):
        task(train=lambda *given: 0.0, optimizer=torch.optim.SGD)


@pytest.mark.parametrize(
    ("model", "words"),
    [(lambda: 5, "gives int"), (lambda: nn.Linear(3, 2).double(), "'weight' has another dtype")],
)
def test_models_that_runs_cannot_train_are_refused(model, words):
    with pytest.raises(ParameterError, match=words):
        task(model=model).built(0)
