"""The examples' protected forms differ from their plain ones in a few lines, and otherwise do the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from flower.example_app import EXAMPLES, Runs

NAMES = ["numpy_digits", "torch_digits"]
IN_ANOTHER_ENVIRONMENT = "lora_text"
"""Run by test_lora_text.py."""


def test_every_example_is_tested():
    assert sorted(path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")) == sorted(
        [*NAMES, IN_ANOTHER_ENVIRONMENT]
    )


@pytest.mark.parametrize("name", [*NAMES, IN_ANOTHER_ENVIRONMENT])
def test_protection_takes_five_lines(name):
    lines = (EXAMPLES / name / "protected.diff").read_text().splitlines()
    added = [line for line in lines if re.match(r"\+(?!\+\+ )", line)]
    removed = [line for line in lines if re.match(r"-(?!-- )", line)]
    assert len(added) == 5
    assert len(removed) == 2
    for line in removed:  # another stands in its place, which says what it said, and more
        call = line.removeprefix("-").rstrip("()").rpartition(" = ")[0]
        assert any(one.startswith(f"+{call} = ") for one in added)


def test_the_page_shows_what_protects():
    def changed(text):
        return sorted(line for line in text.splitlines() if re.match(r"[+-](?!\+\+ |-- )", line))

    shown = re.search(r"```diff\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)[1]
    assert changed(shown) == changed((EXAMPLES / IN_ANOTHER_ENVIRONMENT / "protected.diff").read_text())


@pytest.fixture(scope="module", params=NAMES)
def runs(request, tmp_path_factory):
    return Runs(request.param, tmp_path_factory.mktemp(request.param))


KINDS = "train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"


def test_a_protected_app_has_the_metrics_of_the_plain_one(runs):
    plain, protected = runs.results
    assert set(plain.train_metrics_clientapp) == set(plain.evaluate_metrics_clientapp) == {1, 2, 3}
    for kind in KINDS:
        assert set(getattr(protected, kind)) == set(getattr(plain, kind))
        for number, metrics in getattr(plain, kind).items():
            assert dict(getattr(protected, kind)[number]) == pytest.approx(dict(metrics), rel=1e-3)
    assert protected.evaluate_metrics_clientapp[3]["accuracy"] > 0.6


def test_a_protected_app_has_the_model_of_the_plain_one(runs):
    plain, protected = runs.results
    models = [*runs.evaluated[20:], protected.arrays]
    assert len(models) == 11
    written = [one.folder / "model.npz" for one in runs.apps]
    assert [one.exists() for one in written] == 2 * [runs.apps[0].name == "numpy_digits"]
    if written[1].exists():
        arrays = map(Array, np.load(written[1]).values())
        models.append(ArrayRecord(dict(zip(plain.arrays, arrays, strict=True))))
    for name, own in plain.arrays.items():
        for model in models:
            np.testing.assert_allclose(model[name].numpy(), own.numpy(), atol=3e-6)
        assert np.abs(own.numpy()).max() > 0.05
