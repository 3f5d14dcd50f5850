"""What a phase of a round came to is kept before it leaves: one reply for ever, whatever fails or is set back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.stored_run import KEY, asked_over, closed_over, run_in_file, same_in_every_round, set_back
from methods.variants import labelled, opened_by_aggregator, opened_by_clients
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message
from shieldfl.authority.round_keys import SessionKeys
from shieldfl.errors import PolicyError, RangeError
from shieldfl.rounds import authorities
from shieldfl.rounds.authorities import ListAuthority

METHODS = ["full-he", "mask-crypt", "selective-shield/encrypted", "sense-crypt/clusters", "dict-pfl"]


def stored(path, label, **changes):
    variant = replace(labelled(label), opener="authority")
    settings = {"train": same_in_every_round, "min_clients": 3, "weights": [1, 2, 3, 4]}
    return run_in_file(path, variant, **(settings | changes))


def forged(closed):
    (weight,) = (name for name in closed if name.startswith("weight"))
    return Message({**closed, weight: Message.from_number(closed.number(weight) - 1)})


@pytest.mark.parametrize("kept", ["begun", "failed", "answered"])
def test_a_list_that_ended_in_an_error_keeps_no_honest_authority_from_going_on(tmp_path, kept):
    """A client forges a weight, others are answered in its list's place, and the process ends: state is the newest."""
    path = tmp_path / "store"
    run = stored(path, "full-he", min_clients=2)
    first = run.authority.begin_round(1)
    states = {"begun": run.authority.state(KEY)}
    _, closed = closed_over(run, "update", 1, [0, 1], first)
    with pytest.raises(RangeError):
        run.authority.answer("update", forged(closed))
    states["failed"] = run.authority.state(KEY)
    if kept == "answered":
        _, others = closed_over(run, "update", 1, [2, 3], first)
        run.authority.answer("update", others)
        states["answered"] = run.authority.state(KEY)
    moved = run.authority.newest_model()
    set_back(run, states[kept], path)
    second = run.authority.begin_round(2)
    assert {name: second[name] for name in moved} == moved


def test_an_answer_that_opens_nothing_is_a_reply_too(tmp_path):
    """Clusters that are settled without any sum: another clustering would be a second answer of the round."""
    path = tmp_path / "store"
    run = stored(path, "sense-crypt/clusters")
    run.authority.begin_round(1)
    begun = run.authority.state(KEY)

    def clusters(*of):
        parts = {"round": Message.from_number(1), "clusters": np.array(of, np.int64).tobytes()}
        return Message(parts)

    left = run.authority.answer("update", clusters(0, 0, 1, 1))
    set_back(run, begun, path)
    with pytest.raises(PolicyError, match="the store has 1 reply"):
        run.authority.begin_round(2)
    with pytest.raises(PolicyError, match="got another reply"):
        run.authority.answer("update", clusters(0, 1, 1, 1))
    assert run.authority.answer("update", clusters(0, 0, 1, 1)) == left
    assert run.authority.begin_round(2)


def test_what_goes_beside_a_total_is_as_fixed_as_the_total(tmp_path):
    """Values in the clear, which the aggregator adds up: others would move the model of an answered round elsewhere."""
    path = tmp_path / "store"
    run = stored(path, "mask-crypt")
    run.authority.begin_round(1)
    begun = run.authority.state(KEY)
    run.run_round()
    closed, moved = run.closed["update"], run.authority.newest_model()
    set_back(run, begun, path)
    sums = np.frombuffer(bytes(closed["sums"]), np.float32) / 2
    with pytest.raises(PolicyError, match="got another reply"):
        run.authority.answer("update", Message({**closed, "sums": sums.tobytes()}))
    run.authority.answer("update", closed)
    assert run.authority.newest_model() == moved


@pytest.mark.parametrize("where", ["decided", "kept"])
@pytest.mark.parametrize("label", METHODS)
def test_an_error_before_a_reply_is_kept_leaves_everything_as_it_was(monkeypatch, tmp_path, label, where):
    """The same message again moves the model once, to where it would have come without the error."""
    path, reference = tmp_path / "store", stored(tmp_path / "reference", label)
    run = stored(path, label)
    answer, between = run.authority.answer, []

    def fails_first(phase, message):
        if phase == "count":  # follows from what was opened before, and moves nothing
            return answer(phase, message)
        name = (authorities, "digest_of_parts") if where == "decided" else (AuthorityStore, "keep_message")
        kept = getattr(*name)

        def fail(*arguments, **named):
            if where == "kept":
                kept(*arguments, **named)
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(*name, fail)
            with pytest.raises(MemoryError):
                answer(phase, message)
        between.append((phase, message, run.authority.state(KEY)))
        return answer(phase, message)

    monkeypatch.setattr(run.authority, "answer", fails_first, raising=False)
    for _ in range(2):
        run.run_round()
        reference.run_round()
        np.testing.assert_array_equal(run.merged(1).parameters, reference.merged(1).parameters)
    events = [set(authority.report().events) for authority in (run.authority, reference.authority)]
    assert events[0] == events[1]
    # From what was kept between error and reply, the reply that has left is asked for again first.
    phase, message, state = between[-1]
    left = answer(phase, message)
    set_back(run, state, path)
    with pytest.raises(PolicyError, match="the store has 1 reply"):
        run.authority.begin_round(3)
    assert run.authority.answer(phase, message) == left
    assert run.authority.begin_round(3)


@pytest.mark.parametrize("opened_by", [opened_by_clients, opened_by_aggregator])
def test_nor_does_one_where_others_open(monkeypatch, tmp_path, opened_by):
    (variant,) = opened_by([labelled("full-he")])
    run = run_in_file(tmp_path / "store", variant, train=same_in_every_round, min_clients=3)
    model = {} if run.method.clients_open else dict(run.aggregator.newest_model())
    first = Message({**model, **run.authority.begin_round(1, None, run.aggregator.model_digest())})
    asked = asked_over(run, "update", 1, [0, 1, 2, 3], first)
    before = run.authority.newest_model()
    with monkeypatch.context() as patch:
        patch.setattr(SessionKeys, "sum_key", lambda *_: b"" / 1)
        with pytest.raises(TypeError):
            run.authority.answer("update", asked)
    with monkeypatch.context() as patch:
        patch.setattr(AuthorityStore, "keep_message", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.authority.answer("update", asked)
    assert run.authority.newest_model() == before
    assert isinstance(run.authority, ListAuthority)
    run.authority.answer("update", asked)
    assert len(run.authority.report().events) == 1


def test_replies_that_are_unknown_are_asked_for_in_their_order(tmp_path):
    path = tmp_path / "store"
    run = stored(path, "fedml-he")
    run.authority.begin_round(1)
    begun = run.authority.state(KEY)
    run.run_round()
    newest = run.authority.newest_model()
    set_back(run, begun, path)
    with pytest.raises(PolicyError, match="the store has 2 reply"):
        run.authority.answer("update", run.closed["update"])
    for phase in ("scores", "update"):
        run.authority.answer(phase, run.closed[phase])
    assert run.authority.newest_model() == newest


def test_a_round_that_was_begun_is_begun_again_as_it_was(tmp_path):
    """The state was not kept before the first message left, and the process ended: the round is not lost."""
    path = tmp_path / "store"
    (variant,) = opened_by_clients([labelled("full-he")])
    run = run_in_file(path, variant, train=same_in_every_round, min_clients=3)
    run.run_round()
    before = run.authority.state(KEY)
    first = run.authority.begin_round(2, [0, 1, 3])
    set_back(run, before, path)
    with pytest.raises(PolicyError, match="round 2 was begun with another first message"):
        run.authority.begin_round(2)
    assert run.authority.begin_round(2, [0, 1, 3]) == first
    run._round = 1
    run.run_round([0, 1, 3])


@pytest.mark.parametrize("label", ["fedml-he", "selective-shield/encrypted"])
def test_a_round_is_begun_again_after_its_first_phase_too(tmp_path, label):
    """Where clients open, what was answered moves on within the round; who is invited does not."""
    path = tmp_path / "store"
    (variant,) = opened_by_clients([labelled(label)])
    run = run_in_file(path, variant, min_clients=3)
    answer, between = run.authority.answer, []

    def keeping(phase, message):
        reply = answer(phase, message)
        between.append(run.authority.state(KEY))
        assert run.authority.begin_round(1)
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.authority, "answer", keeping, raising=False)
        with pytest.raises(PolicyError, match="round 1 has been answered"):
            run.run_round()
    set_back(run, between[0], path)
    assert run.authority.begin_round(1)
    with pytest.raises(PolicyError, match="round 1 was begun with"):
        run.authority.begin_round(1, [0, 1, 2])


def test_a_count_that_follows_from_sums_has_one_answer_in_a_round(tmp_path):
    path = tmp_path / "store"
    run = stored(path, "dict-pfl")
    states = [run.authority.state(KEY)]
    for _ in range(2):
        run.run_round()
        states.append(run.authority.state(KEY))
    run.authority.begin_round(3)
    ask = Message({"round": Message.from_number(3)})
    left = run.authority.answer("count", ask)
    set_back(run, states[1], path)
    with pytest.raises(PolicyError, match=r"the store has 3 reply|does not run"):
        run.authority.answer("count", ask)
    set_back(run, states[2], path)
    run.authority.begin_round(3)
    assert run.authority.answer("count", ask) == left


def test_a_sum_is_reported_by_whoever_answers_again(monkeypatch, tmp_path):
    """The process ends once the sum is opened, before a state is kept: the account must not miss it."""
    path = tmp_path / "store"
    run = stored(path, "full-he")
    run.authority.begin_round(1)
    begun = run.authority.state(KEY)
    run.run_round()
    events = run.authority.report().events
    set_back(run, begun, path)
    run.authority.answer("update", run.closed["update"])
    assert set(run.authority.report().events) == set(events) != set()


@pytest.mark.parametrize("label", ["full-he", "selective-shield/encrypted"])
def test_a_memory_without_a_file_is_restored_after_a_begin_that_was_cut_off(label):
    """Each purpose's keys are moved on apart: an error may come in between."""
    run = SteppedRun(replace(labelled(label), opener="authority"), min_clients=3)
    run.run_round()
    *_, last = run.authority.keys._authorities.values()
    with pytest.MonkeyPatch.context() as patch:
        for one in (last, run.authority.keys):
            patch.setattr(one, "close_round" if one is last else "keep_first_message", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.authority.begin_round(2)
            patch.undo()
    again = run.new_authority()
    again.restore(run.authority.state(KEY), KEY)
    run.authority = again
    run.run_round()
