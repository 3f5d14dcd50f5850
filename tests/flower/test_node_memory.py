"""What a node keeps on its disk, whichever process is ended when; a server that ends early goes on where it stood."""

from __future__ import annotations

import errno
import shutil

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam

from flower.vector_app import ALL, VectorRun, cut_off, loses, moves, number_of
from shieldfl.authority.private_file import write_private_file
from shieldfl.errors import DataError, PolicyError
from shieldfl.flower.mod import DiskMemory

KEY = bytes(32)
SESSION, OTHER = b"a" * 16, b"b" * 16


@pytest.fixture
def stores(tmp_path):
    """Return the configuration of nodes that have a folder each."""
    return lambda number: {"shieldfl-store": str(tmp_path / f"node-{number}")}


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_reply_that_is_lost_is_given_again_and_nothing_is_trained_twice(stores, tmp_path, where):
    run = VectorRun(node_config=stores)
    setattr(run.grid, where, loses(2, "train", 2))
    run.start()
    run.check({1: ALL, 2: [0, 1, 3], 3: ALL})
    with np.load(tmp_path / "node-0" / "model.npz") as kept:
        np.testing.assert_array_equal(kept["bias"], run.evaluated[0]["bias"])
    # Nothing of a run is where Flower keeps it, or can be read by others.
    assert all(not state.ByteSize() for state in run.grid.states.values())
    for path in (tmp_path / "node-0").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_an_old_copy_of_a_store_sends_no_second_frame(stores, tmp_path):
    """The copy is of before round 2, and is put back before round 3."""
    run, errors = VectorRun(node_config=stores), []
    folder, copy = tmp_path / "node-1", tmp_path / "copy"

    def before(node, message):
        if number_of(node) == 1 and message.metadata.group_id == "round 2" and not copy.exists():
            shutil.copytree(folder, copy)
        if number_of(node) == 1 and message.metadata.group_id == "round 3":
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)

    def after(node, reply):
        if number_of(node) == 1 and reply.has_error():
            errors.append(reply.error.reason)

    run.grid.before, run.grid.after = before, after
    run.start()
    assert errors
    assert all(one.startswith("PolicyError") and "is an old copy" in one for one in errors)
    assert run.trained.count((1, 2)) == 1
    assert (1, 3) not in run.trained
    del run.evaluated[1]
    run.check({1: ALL, 2: ALL, 3: [0, 2, 3]})


def test_a_store_that_begins_anew_has_no_part_in_the_run(stores, tmp_path):
    run = VectorRun(node_config=stores)

    def before(node, message):
        if number_of(node) == 1 and message.metadata.group_id == "round 2":
            DiskMemory(tmp_path / "node-1").begin_anew()

    run.grid.before = before
    run.start()
    assert "no part in the run" in run.strategy.session.clients.failures[1]
    del run.evaluated[1]
    run.check({1: ALL, 2: [0, 2, 3], 3: [0, 2, 3]})
    # And takes part in the next one, in which it trains something else.
    run.grid.before = None
    run.train = lambda client, number, shape: moves(client, 10 + number, shape)
    run.start()
    assert run.strategy.session.clients.failures == {}


def test_a_full_disk_lets_nothing_leave(stores, monkeypatch):
    run, sent = VectorRun(node_config=stores), []
    keep = DiskMemory.keep

    def full(memory, session, contents, **more):
        if more["round_number"] == 2 and memory._path.parent.name == "node-3":
            raise DataError("the store's disk is full: nothing was kept")
        return keep(memory, session, contents, **more)

    def after(node, reply):
        if number_of(node) == 3 and reply.metadata.group_id == "round 2":
            sent.append(reply.error.reason)

    monkeypatch.setattr(DiskMemory, "keep", full)
    run.grid.after = after
    run.start()
    assert sent == ["DataError: the store's disk is full: nothing was kept"]
    run.check({1: ALL, 2: [0, 1, 2], 3: ALL})


def test_a_folder_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    def refuse(*arguments, **more):
        raise OSError(errno.EACCES, "permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(DataError, match="cannot be made or read"):
        DiskMemory(tmp_path / "node")


def test_what_was_kept_is_read_again_by_session(tmp_path):
    memory = DiskMemory(tmp_path / "node")
    since, nothing = memory.read(SESSION)
    assert nothing == {}
    memory.keep(SESSION, {"one": b"1", "two": b"2"}, since=since, round_number=1, update=None)
    since, kept = memory.read(SESSION)
    assert kept == {"one": b"1", "two": b"2"}
    memory.keep(SESSION, {"one": b"3"}, since=since, round_number=1, update=None)
    assert DiskMemory(tmp_path / "node").read(SESSION)[1] == {"one": b"3", "two": b"2"}
    assert DiskMemory(tmp_path / "node").read(OTHER)[1] == {}


def test_one_update_is_of_one_round_of_one_run_unless_the_operator_lets_it_repeat(tmp_path):
    memory = DiskMemory(tmp_path / "node")
    memory.keep(SESSION, {}, since=memory.read(SESSION)[0], round_number=1, update=b"u")
    since = memory.read(OTHER)[0]
    with pytest.raises(PolicyError, match="trained in another round or run"):
        memory.keep(OTHER, {"one": b"1"}, since=since, round_number=1, update=b"u")
    repeating = DiskMemory(tmp_path / "node", repeats=True)
    repeating.keep(OTHER, {"one": b"1"}, since=since, round_number=1, update=b"u")
    assert memory.read(OTHER)[1] == {"one": b"1"}


def test_two_runs_on_one_node_do_not_keep_each_other_up(tmp_path):
    """Nor does who comes second, in one run, with what was read before."""
    memory = DiskMemory(tmp_path / "node")
    since, _ = memory.read(SESSION)
    other, _ = memory.read(OTHER)
    memory.keep(OTHER, {"one": b"1"}, since=other, round_number=1, update=None)
    memory.keep(SESSION, {"one": b"2"}, since=since, round_number=1, update=None)
    with pytest.raises(PolicyError, match="has kept newer contents since"):
        memory.keep(OTHER, {"one": b"3"}, since=other, round_number=1, update=None)
    assert memory.read(OTHER)[1] == {"one": b"1"}
    memory.begin_anew()
    with pytest.raises(PolicyError, match="has kept newer contents since"):
        memory.keep(b"c" * 16, {"one": b"3"}, since=since, round_number=1, update=None)


def test_two_processes_that_draw_a_nodes_key_at_once_have_one(tmp_path, monkeypatch):
    begun = []

    def write(path, content):
        if not begun:
            begun.append(path)
            DiskMemory(tmp_path / "node").read(SESSION)
        write_private_file(path, content)

    monkeypatch.setattr("shieldfl.authority.private_file.write_private_file", write)
    DiskMemory(tmp_path / "node").read(SESSION)
    DiskMemory(tmp_path / "node").read(SESSION)
    assert not list((tmp_path / "node").glob("*.drawn"))


SETTINGS = [
    {},
    {"opener": "aggregator"},
    {"opener": "authority"},
    {"method": "dict-pfl"},
    {"method": "mask-crypt"},
    {"method": "fedavg"},
]


PLACES = [("round 1", "train"), ("evaluation 1", "model"), ("round 2", "train"), ("evaluation 3", "model")]


@pytest.mark.every_run("dict-pfl, round 2 train", "authority, round 2 train", "full-he, evaluation")
@pytest.mark.parametrize(
    ("settings", "group", "kind"),
    [
        # Of every method one place, and of full-he two; `every_run` says which of them `make test` runs.
        pytest.param(
            settings,
            *place,
            id=f"{', '.join(settings.values()) or 'full-he'}, {' '.join(place)}",
            marks=() if place == PLACES[2] or (not settings and place == PLACES[1]) else pytest.mark.slow,
        )
        for settings in SETTINGS
        for place in PLACES
    ],
)
def test_a_run_that_was_cut_off_goes_on_to_the_same_model(tmp_path, settings, group, kind):
    whole = VectorRun(**settings)
    expected = whole.start()
    run = VectorRun(**settings, checkpoint=str(tmp_path / "run"))
    cut_off(run, group, kind)
    # The simulation's own memory is gone with its process.
    for node in run.grid.states:
        run.grid.states[node] = type(run.grid.states[node])()
    result = run.start()
    assert set(run.evaluated) == set(ALL)
    for client, arrays in whole.evaluated.items():
        for name, one in arrays.items():
            np.testing.assert_array_equal(run.evaluated[client][name], one)
    assert result.train_metrics_clientapp == expected.train_metrics_clientapp
    assert result.evaluate_metrics_clientapp == expected.evaluate_metrics_clientapp


def test_an_optimiser_goes_on_with_its_moments(tmp_path):
    def adam():
        return FedAdam(min_available_nodes=1, min_train_nodes=1, min_evaluate_nodes=1, eta=0.05, tau=0.1)

    expected = VectorRun(strategy=adam(), opener="aggregator").start()
    run = VectorRun(strategy=adam(), opener="aggregator", checkpoint=str(tmp_path / "run"))
    cut_off(run, "round 3", "train")
    run.own = adam()
    result = run.start()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(result.arrays[name].numpy(), array.numpy())


def test_a_checkpoint_is_of_one_run(tmp_path):
    folder = str(tmp_path / "run")
    run = VectorRun(checkpoint=folder)
    run.start()
    with pytest.raises(PolicyError, match=r"resume it with shieldfl.resume"):
        run.start()
    (tmp_path / "run" / "checkpoint").unlink()
    run.config["shieldfl.resume"] = True
    with pytest.raises(DataError, match="there is no checkpoint"):
        run.start()


def test_a_run_goes_on_with_the_settings_that_it_began_with(tmp_path):
    weighted = {"samples": lambda context: 20, "weighting": "samples", "most_weight": 2**14}
    run = VectorRun(checkpoint=str(tmp_path / "run"), **weighted)
    cut_off(run, "round 2", "train")
    given = run.config
    for changes, names in (
        ({"method": "fedavg", "clients": 3}, "clients, method, the method's own settings"),
        ({"min-clients": 3, "opener": "aggregator"}, "min-clients, opener"),
        ({"server-learning-rate": 0.5}, "server-learning-rate"),
        ({"settings.value_bits": 25}, "the method's own settings"),
        ({"weighting": "uniform"}, "weighting"),
        ({"most-weight": 2**13}, "most-weight"),
        ({"buffers": "*running_mean"}, "buffers"),
    ):
        run.config = given | {f"shieldfl.{name}": value for name, value in changes.items()}
        with pytest.raises(PolicyError, match=f"differs in {names}: a resumed run keeps the settings"):
            run.start()
    run.config, run.rounds = given, 4
    with pytest.raises(PolicyError, match="differs in rounds: "):
        run.start()
    run.rounds = 3
    run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


def test_a_run_that_has_ended_ends_again_with_what_it_came_to(tmp_path):
    run = VectorRun(checkpoint=str(tmp_path / "run"))
    first = run.start()
    trained = list(run.trained)
    run.config["shieldfl.resume"] = True
    again = run.start()
    assert run.trained == trained
    assert again.train_metrics_clientapp == first.train_metrics_clientapp
