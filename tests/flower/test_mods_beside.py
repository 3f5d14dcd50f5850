"""Flower's own mods before and after ShieldMod: they do what they do, or one sentence says which order does."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.clientapp import mod
from flwr.clientapp.mod import LocalDpMod

from flower.vector_app import SHAPES, VectorRun, moves
from shieldfl.errors import PolicyError
from shieldfl.flower.mod import ShieldMod

ALL = [0, 1, 2, 3]
NORM = 0.05
MODS = {
    "message_size_mod": lambda: mod.message_size_mod,
    "arrays_size_mod": lambda: mod.arrays_size_mod,
    "fixedclipping_mod": lambda: mod.fixedclipping_mod,
    "adaptiveclipping_mod": lambda: mod.adaptiveclipping_mod,
    "LocalDpMod": lambda: LocalDpMod(clipping_norm=NORM, sensitivity=1e-9, epsilon=1.0, delta=1e-5),
}
CHANGING = {"fixedclipping_mod", "adaptiveclipping_mod", "LocalDpMod"}


def test_these_are_all_of_flowers_mods():
    assert set(MODS) == set(mod.__all__)


def clipped(client, number, shape):
    """What an update of two arrays is, cut down to the norm."""
    both = {one: moves(client, number, one) for one in SHAPES.values()}
    norm = np.sqrt(sum(float(np.sum(np.square(one, dtype=np.float64))) for one in both.values()))
    return both[shape] * min(1.0, NORM / norm)


@pytest.mark.parametrize("name", MODS)
def test_a_mod_before_the_shield_sees_what_leaves(name):
    """Two of them found records that they cannot count, and others would have clipped or noised ciphertexts."""
    run = VectorRun(mods=[MODS[name](), ShieldMod()], rounds=1)
    if name in CHANGING:
        with pytest.raises(PolicyError, match=rf"{name}.*\[ShieldMod\(\), \.\.\.\].*before every other mod"):
            run.start(train_config=ConfigRecord({"clipping_norm": NORM}))
        assert not run.trained
    else:
        run.start(train_config=ConfigRecord({"clipping_norm": NORM}))
        run.check({1: ALL})


def functions(mods=(), train=(), evaluate=()):
    run = VectorRun(mods=list(mods), rounds=1)
    run.train_mods, run.evaluate_mods = train, evaluate
    return run


@pytest.mark.parametrize("name", MODS)
def test_a_mod_after_the_shield_sees_what_the_app_sees(name, caplog):
    caplog.set_level("INFO")
    # Those that change updates are of training alone, as without protection: an evaluation returns no arrays.
    run = (
        functions([ShieldMod()], [MODS[name]()])
        if name in CHANGING
        else functions([ShieldMod(), MODS[name]()])
    )
    run.start(train_config=ConfigRecord({"clipping_norm": NORM}))
    run.train = clipped if name in CHANGING else moves
    run.check({1: ALL})
    if name == "message_size_mod":
        assert sum("Outgoing message size" in one.getMessage() for one in caplog.records) == 8


def test_a_round_that_asks_for_more_than_training_is_none_for_a_mod_that_clips(caplog):
    run = VectorRun(mods=[ShieldMod(), mod.fixedclipping_mod], rounds=1, method="fedml-he")
    with pytest.raises(PolicyError, match="not one round ended"):
        run.start(train_config=ConfigRecord({"clipping_norm": NORM}))
    assert "fixedclipping_mod expects exactly one ConfigRecord" in caplog.text


@pytest.mark.parametrize(
    ("mods", "train"),
    [
        ([ShieldMod()], (ShieldMod(),)),
        ([], (ShieldMod(),)),
        ([ShieldMod()], (mod.message_size_mod, ShieldMod())),
    ],
)
def test_shields_on_an_app_and_on_its_functions_are_one_shield(mods, train):
    """The inner one said that the server's strategy is to be wrapped, which it was."""
    run = functions(mods, train, [ShieldMod()])
    run.start()
    run.check({1: ALL})


def test_an_evaluation_without_a_shield_is_told_where_it_belongs(caplog):
    run = functions(train=[ShieldMod()])
    run.start()
    said = [one.getMessage() for one in caplog.records if "left evaluation 1" in one.getMessage()]
    assert len(said) == len(ALL)
    assert all("ClientApp(mods=[ShieldMod(), ...])" in one for one in said)
    assert not run.evaluated


@pytest.mark.parametrize("mods", [{}, {"evaluate": [ShieldMod()]}])
def test_an_app_without_a_shield_is_told_to_take_one(mods):
    run = functions(**mods)
    with pytest.raises(
        PolicyError, match=r"0 of 4 clients.*KeyError.*ClientApp\(mods=\[ShieldMod\(\), \.\.\.\]\)"
    ):
        run.start()
    assert not run.trained


def test_an_apps_own_error_is_not_said_to_be_a_missing_shield(caplog):
    def fails(message, context, call_next):
        raise KeyError("label")

    run = VectorRun(mods=[ShieldMod(), fails])
    with pytest.raises(PolicyError, match="not one round ended"):
        run.start()
    said = [one.getMessage() for one in caplog.records if "left round 1" in one.getMessage()]
    assert said
    assert not [one for one in said if "ShieldMod" in one]
