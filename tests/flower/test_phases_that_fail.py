"""A node that is lost in any phase of a round of several comes back, and all have one model."""

from __future__ import annotations

import numpy as np
import pytest

from core.wire_twin import reseal
from flower.test_messages_that_fail import ALL, number_of
from flower.vector_app import VectorRun
from shieldfl.errors import PolicyError
from shieldfl.flower.wire import ASK, MESSAGE, message_in, packed
from shieldfl.roles.message import Message as RoleMessage

METHODS = {
    "mask-crypt": {"settings.encryption": "kahe"},
    "dict-pfl": {},
    "selective-shield, clear": {"settings.noise_multiplier": 0.0},
    "selective-shield, encrypted": {"settings.noise_multiplier": 0.0, "settings.negotiation": "encrypted"},
}


def phases_of(run):
    """Return the phases that a round was seen to have."""
    found = []

    def hook(node, message):
        if message.metadata.group_id == "round 2":
            found.append(message.content[ASK]["phase"])

    run.grid.before = hook
    run.start()
    return list(dict.fromkeys(found))


def made(label):
    run = VectorRun(method=label.partition(",")[0])
    run.config |= {f"shieldfl.{name}": value for name, value in METHODS[label].items()}
    return run


IN_EVERY_RUN = {("mask-crypt", "after"), ("dict-pfl", "before")}


@pytest.mark.parametrize(
    ("label", "where"),
    [
        pytest.param(label, where, marks=() if (label, where) in IN_EVERY_RUN else pytest.mark.slow)
        for label in METHODS
        for where in ("before", "after")
    ],
)
def test_a_client_that_leaves_in_any_phase_comes_back(label, where):
    phases = phases_of(made(label))
    assert len(phases) > 1
    for lost in phases:
        run, hits = made(label), []

        def hook(node, message, lost=lost, hits=hits):
            asked = message.content.get(ASK, {}) if message.has_content() else {}
            if number_of(node) != 1 or message.metadata.group_id != "round 2":
                return None
            # A reply does not say of which phase it is: they come in order.
            hits.append(asked.get("phase", lost if len(hits) == phases.index(lost) else ""))
            return False if hits[-1] == lost else None

        setattr(run.grid, where, hook)
        run.start()
        assert lost in hits
        assert 1 in run.strategy.session.clients.trained
        assert run.strategy.session.clients.failures == {}
        whole = [
            np.concatenate([one.ravel() for one in arrays.values()]) for arrays in run.evaluated.values()
        ]
        assert len(whole) == len(ALL)
        assert all(np.isfinite(one).all() for one in whole)
        if not label.startswith("selective"):  # which has personalised positions
            assert all(np.array_equal(one, whole[0]) for one in whole)


@pytest.mark.every_run("votes-selective-shield, encrypted", "ciphertexts-mask-crypt")
@pytest.mark.parametrize(
    ("part", "label"),
    [
        # One method alone sends votes as a frame: what is altered of the others is nothing.
        pytest.param(
            part, label, marks=pytest.mark.slow if part == "votes" and "encrypted" not in label else ()
        )
        for part in ("ciphertexts", "votes")
        for label in METHODS
    ],
)
def test_a_frame_that_is_altered_in_any_phase_leaves_all_clients_with_one_model(label, part):
    models, altered = {}, []
    for is_altered in (False, True):
        run = made(label)

        def after(node, reply, is_altered=is_altered):
            here = reply.metadata.group_id == "round 2" and not reply.has_error()
            if (
                is_altered
                and here
                and number_of(node) == 3
                and part in (message := message_in(reply.content))
            ):
                frame = bytearray(message[part])
                frame[len(frame) // 2] ^= 1
                reply.content[MESSAGE] = packed(RoleMessage({**message, part: reseal(bytes(frame))}))
                altered.append(part)

        run.grid.after = after
        run.start()
        assert run.strategy.session.clients.failures == {}
        models[is_altered] = [run.evaluated[client]["bias"] for client in (0, 1, 2)]
        if not label.startswith("selective"):  # which has personalised positions
            assert all(np.array_equal(one, models[is_altered][0]) for one in models[is_altered])
    assert np.array_equal(models[True], models[False]) == (not altered)


def test_a_method_whose_scores_the_app_does_not_bring_says_what_is_missing():
    run = made("mask-crypt")
    run.brings_scores = False
    with pytest.raises(PolicyError, match="not one round ended"):
        run.start()
    why = run.strategy.session.clients.failures[0]
    assert "needs scores of the kind" in why
    assert "'shieldfl.scores'" in why
