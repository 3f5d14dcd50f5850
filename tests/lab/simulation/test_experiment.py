"""Experiment files: what they say, and what they may not say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.compared_runs import (
    FIGURES,
    Experiment,
    PaperFigure,
    load_experiment,
    parse_experiment,
)
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.registry import BUILT_IN, MethodSettings

FOLDER = Path(__file__).parents[3] / "bench" / "experiments"
FILES = sorted(path for path in FOLDER.glob("*.toml") if not path.name.startswith("fleet-"))

WHOLE = """
title = "what it is"
methods = ["fedavg", "selective-shield"]

[run]
dataset = "mnist"
alpha = "iid"
learning_rate = 1
threads = 2

[settings.selective-shield]
threshold = [0.1, 0.2]
target_epsilon = 8.0

[[paper]]
source = "its table 1"
method = "selective-shield"
figure = "accuracy"
value = 0.98

[[paper]]
source = "its table 2"
method = "selective-shield"
figure = "bytes_up"
against = "fedavg"
value = [2, 3.5]
note = "on a larger model"
"""
LEAST = 'methods = ["fedavg"]\n'


def test_a_whole_file():
    experiment = parse_experiment(WHOLE)
    assert experiment.title == "what it is"
    assert experiment.methods == ("fedavg", "selective-shield")
    assert experiment.config == RunConfig(dataset="mnist", alpha=math.inf, learning_rate=1.0, threads=2)
    assert experiment.settings.of("selective-shield").threshold == (0.1, 0.2)
    assert experiment.settings.of("selective-shield").target_epsilon == 8.0
    assert experiment.paper == (
        PaperFigure("its table 1", "selective-shield", "accuracy", (0.98,)),
        PaperFigure("its table 2", "selective-shield", "bytes_up", (2.0, 3.5), "fedavg", "on a larger model"),
    )


def test_methods_are_all_that_a_file_needs():
    assert parse_experiment(LEAST) == Experiment("", RunConfig(), ("fedavg",), MethodSettings())


PAPER = '[[paper]]\nsource = "a table"\nmethod = "fedavg"\nfigure = "accuracy"\nvalue = 0.5\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("methods = ", "not valid TOML"),
        ("methods = []", "lacks methods"),
        ('methods = ["fedavgg"]', "'fedavgg'.*fedavg, selective-shield"),
        ('methods = ["fedavg", "fedavg"]', "twice"),
        (LEAST + "epochs = 3", "unknown key 'epochs'"),
        (LEAST + "run = 3", r"write \[run\]"),
        (LEAST + "[run]\nepochs = 3", r"\[run\] has the unknown key 'epochs'.*local_epochs"),
        (LEAST + '[run]\nclients = "many"', r"\[run\] clients must be a whole number, .*, not 'many'"),
        (LEAST + "[run]\nmodel = 3", r"\[run\] model must be one of linear, .*, tiny-vit, not 3"),
        (LEAST + "[settings]\nfull-he = 3", r"write \[settings.full-he\]"),
        (LEAST + "[settings.fedavg]\nx = 3", r"\[settings.fedavg\] fedavg has no settings"),
        (LEAST + "[settings.full-he]\nkey = 3", r"\[settings.full-he\] full-he has no setting 'key'"),
        (LEAST + "[paper]\nvalue = 3", "two brackets"),
        (LEAST + PAPER + "page = 3", r"\[\[paper\]\] 1 has the unknown key 'page'"),
        (LEAST + PAPER + PAPER.replace('source = "a table"', ""), r"\[\[paper\]\] 2 lacks source"),
        (LEAST + PAPER.replace("fedavg", "full-he"), "'full-he', which methods does not name"),
        (LEAST + PAPER + 'against = "full-he"', "'full-he', which methods does not name"),
        (LEAST + PAPER.replace("accuracy", "speed"), "figure must be one of accuracy, .* not 'speed'"),
        (
            LEAST + PAPER.replace("0.5", "[1, 2, 3]"),
            "value must be a list of length 1 to 2 in which each item is a number, not",
        ),
        (LEAST + PAPER.replace("0.5", "[2, 1]"), "smaller one first"),
        (LEAST + PAPER.replace("0.5", "nan"), "a number, not nan"),
        (LEAST + PAPER.replace("value = 0.5\n", ""), "lacks value"),
    ],
)
def test_what_a_file_may_not_say(text, words):
    with pytest.raises(ParameterError, match=words):
        parse_experiment(text)


def test_a_wrong_file_is_named(tmp_path):
    (tmp_path / "wrong.toml").write_text("methods = []")
    with pytest.raises(ParameterError, match=r"wrong\.toml: .*methods"):
        load_experiment(tmp_path / "wrong.toml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_files_of_the_project_name_what_exists(path):
    experiment = load_experiment(path)
    assert experiment.title
    assert set(experiment.methods) <= set(BUILT_IN)
    for figure in experiment.paper:
        assert figure.figure in FIGURES


def test_there_are_files_of_every_method():
    for name in ("all-methods-mnist", "all-methods-cifar10"):
        assert set(load_experiment(FOLDER / f"{name}.toml").methods) == set(BUILT_IN), name
