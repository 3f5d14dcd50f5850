"""What ``print`` shows of the result of ``shieldfl.run``: notes, and rounds that changed nothing."""

from __future__ import annotations

import torch
from torch import nn

import shieldfl as sf

QUICK = {"clients": 3, "rounds": 2, "local_epochs": 1}


def task(**changes):
    features = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    classes = (features[:, 0] > 0).long()
    given = {
        "model": lambda: nn.Linear(4, 2),
        "train_data": (features[:60], classes[:60]),
        "test_data": (features[60:], classes[60:]),
    }
    return sf.Task(**(given | changes))


def test_a_round_that_changes_nothing_is_told_by_the_printed_result():
    still = task(train=lambda model, *_: 0.0)
    result = sf.run(still, ["fedavg", "full-he"], **QUICK)
    shown = str(result)
    for method in ("fedavg", "full-he"):
        assert f"{method}: 2 of 2 rounds changed nothing: every client has the model" in shown
    assert "changed nothing" not in str(sf.run(task(), "full-he", **QUICK))


def test_the_printed_result_has_the_notes_of_all_seeds_once():
    result = sf.run(task(), ["fedavg", "dp-fedavg"], seeds=(0, 1), weighting="samples", **QUICK)
    (note,) = [line for line in str(result).splitlines() if "weighs all clients alike" in line]
    assert note.startswith("dp-fedavg: ")
