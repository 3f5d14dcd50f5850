"""Clients that train in processes beside the first one come to what they come to in it; memory that they share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from multiprocessing import active_children, get_context

import numpy as np
import pytest
import torch
from torch import nn

from lab.simulation.small_runs import run_methods
from shieldfl.errors import ParameterError, RangeError
from shieldfl.lab.simulation import federation
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import ClientTraining, can_copy_process
from shieldfl.lab.simulation.task import Task
from shieldfl.learning.local_trainer import LocalTrainer
from shieldfl.learning.local_update import StageClock, StartingPoint
from shieldfl.methods.registry import MethodSettings
from shieldfl.privacy.noise import gaussian_noise

pytestmark = pytest.mark.skipif(not can_copy_process(), reason="processes are copied on Linux alone")

SMALL = RunConfig(
    model="mlp",  # of which a batch of the test set is worth threads: torch has begun them when the next method forks
    clients=6,
    rounds=2,
    local_epochs=1,
    sample_rate=0.8,
    dropout=0.15,
    min_clients=2,
    threads=1,
)
SETTINGS = MethodSettings().changed("selective-shield", {"noise_multiplier": 0.0})
# Models in clusters are what is tried of it; Paillier's ciphertexts of them would take seconds.
SETTINGS = SETTINGS.changed("sense-crypt", {"encryption": "kahe"})
OF_TIME = ("seconds", "stage_seconds")


def figures(result):
    """All that was measured but for times."""
    return [
        [
            {name: repr(one) for name, one in vars(record).items() if name not in OF_TIME}
            for record in method.rounds
        ]
        + [method.notes, method.training]
        for method in result.methods
    ]


@pytest.fixture
def begun(monkeypatch):
    """The numbers of the processes that were begun."""
    known, fork = [], os.fork

    def counting():
        number = fork()
        if number:
            known.append(number)
        return number

    monkeypatch.setattr(os, "fork", counting)
    yield known
    assert not active_children()


@pytest.mark.parametrize("most", [128, 3])
def test_figures_are_those_of_one_process(most, begun, monkeypatch):
    """Scores, shares of their own, models in clusters, a dictionary; also where trainings wait for memory."""
    monkeypatch.setattr(federation, "_MOST_TRAININGS", most)
    monkeypatch.setattr(federation, "_MOST_BYTES", most << 20)
    names = ["fedavg", "full-he", "mask-crypt"] if most == 128 else ["selective-shield", "sense-crypt"]
    alone = run_methods(SMALL, names, SETTINGS)
    assert not begun
    beside = run_methods(replace(SMALL, threads=3), names, SETTINGS)
    assert len(begun) == 3 * len(names)
    assert figures(beside) == figures(alone)


def test_copies_draw_other_noise(begun):
    """No two of them go on from one state of a generator."""
    everybody, drawn = get_context("fork").Barrier(3), []
    trainers = [Draws(everybody) for _ in range(6)]
    training = ClientTraining(trainers, lambda one: drawn.append(one.outcome.parameters.tobytes()), 3)
    for client in range(6):
        training.begin(client, START, 0)
    training.wait_for_all()
    training.close()
    assert set().union(*(one.kinds for one in trainers)) == set(map(str, begun))
    assert len(set(drawn)) == 6


def test_a_training_that_diverges_is_refused_as_in_one_process(begun):
    raised = []
    for threads in (1, 2):
        with pytest.raises(RangeError) as error:
            run_methods(replace(SMALL, threads=threads, learning_rate=1e30), ["full-he"])
        raised.append(str(error.value))
    assert raised[0] == raised[1]
    assert len(begun) == 2


@pytest.fixture
def second_round(monkeypatch):
    """Something that happens where a client trains in the second round."""
    train, here = LocalTrainer.train, os.getpid()

    def replaced(what):
        def trained(self, start, seed):
            if start.round == 2:
                assert os.getpid() != here
                what()
            return train(self, start, seed)

        monkeypatch.setattr(LocalTrainer, "train", trained)

    return replaced


def fails():
    raise ParameterError("there is no such thing")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (fails, "there is no such thing"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            r"ended by itself: is there enough memory\? .*--threads 1",
        ),
    ],
    ids=["an error", "killed"],
)
def test_what_ends_a_training_is_told_here_and_earlier_rounds_are_kept(begun, second_round, what, said):
    second_round(what)
    with pytest.raises(ParameterError, match=said) as error:
        run_methods(replace(SMALL, threads=2), ["full-he"])
    (method,) = error.value.ended.result.methods
    assert len(method.rounds) == 1


@pytest.mark.parametrize("begun_before", [0, 1])
def test_where_no_process_can_be_begun_the_run_ends_with_advice(begun_before, monkeypatch):
    fork, left = os.fork, [None] * begun_before

    def full():
        if left:
            left.pop()
            return fork()
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(ParameterError, match="could not be begun"):
        run_methods(replace(SMALL, threads=2), ["full-he"])
    assert not active_children()


@pytest.fixture
def _ctrl_c():
    """Also where a shell has turned it off, as for what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_ctrl_c_ends_them_and_what_is_finished_is_kept(begun, second_round):
    parent = os.getpid()
    second_round(lambda: (os.kill(parent, signal.SIGINT), time.sleep(60)))
    with pytest.raises(KeyboardInterrupt) as error:
        run_methods(replace(SMALL, threads=2), ["full-he"])
    (method,) = error.value.result.methods
    assert len(method.rounds) == 1


@pytest.mark.usefixtures("_ctrl_c")
def test_ctrl_c_while_they_begin_leaves_none(monkeypatch):
    fork = os.fork

    def interrupted():
        number = fork()
        if number:
            signal.raise_signal(signal.SIGINT)  # of this thread: no later fork hears of it
        return number

    monkeypatch.setattr(os, "fork", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_methods(replace(SMALL, threads=2), ["full-he"])
    assert not active_children()


class Remembers(nn.Linear):
    """Counts its trainings: in processes, each would count its own."""


@pytest.mark.parametrize("why", ["own model", "own loss", "counts batches", "accelerator"])
def test_what_copies_cannot_train_trains_in_this_process(why, begun, monkeypatch):
    """torch, once it has begun a thread for an accelerator, refuses gradients in a copy."""
    features, task, config = torch.randn(40, 4), None, replace(SMALL, threads=2, rounds=1)
    if why == "accelerator":
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    elif why == "counts batches":
        config = replace(config, model="simple-cnn", clients=2, sample_rate=1.0)
    else:
        data, own = (features, (features.sum(1) > 0).long()), why == "own model"
        task = Task(
            model=lambda: (Remembers if own else nn.Linear)(4, 2),
            train_data=data,
            test_data=data,
            loss=None if own else nn.functional.cross_entropy,
        )
    run_methods(config, ["fedavg"], task=task)
    assert not begun


START = StartingPoint(np.zeros(3, np.float32), np.zeros(0, np.float32))


class Draws:
    """A trainer whose update is the core's noise, when as many train as there are copies."""

    def __init__(self, everybody):
        self.clock, self.kinds, self._everybody = StageClock(), set(), everybody

    def train(self, start, seed):
        self.kinds.add(str(os.getpid()))
        self._everybody.wait(60)
        return start.trained(gaussian_noise(np.zeros(3, np.float32), 1.0), start.buffers), 0.0


class Sleeper:
    """A trainer that takes as long as the test."""

    def train(self, start, seed):
        time.sleep(600)


def test_processes_end_with_the_one_that_began_them():
    script = f"""
        import os, signal, sys
        sys.path.insert(0, {os.path.dirname(os.path.dirname(os.path.dirname(__file__)))!r})
        from multiprocessing import active_children
        from shieldfl.lab.simulation.federation import ClientTraining
        from lab.simulation.test_training_processes import START, Sleeper
        training = ClientTraining([Sleeper()] * 2, print, 2)
        for client in range(2):
            training.begin(client, START, 0)
        print(*(one.pid for one in active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [int(number) for number in done.stdout.split()]
    assert len(left) == 2
    deadline = time.monotonic() + 30
    while any(map(_runs, left)):
        assert time.monotonic() < deadline, "processes run without the one that began them"
        time.sleep(0.05)


def _runs(number: int) -> bool:
    try:
        with open(f"/proc/{number}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
