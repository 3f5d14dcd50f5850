"""A federation's authority whose memory is in a file: whichever state it goes on from, it answers nobody twice."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.stored_run import KEY, run_in_file, set_back
from methods.variants import labelled, opened_by_clients
from shieldfl.authority.message import Message
from shieldfl.errors import DataError, KeyMismatchError, ParameterError, PolicyError, WireFormatError


def variant_of(label):
    return opened_by_clients([labelled(label)])[0] if label.startswith("full-he") else labelled(label)


def stored_run(path, label="full-he"):
    return run_in_file(path, variant_of(label))


def request_over(run, clients):
    """What an aggregator asks that has these clients' frames of the last round."""
    aggregator = run.new_aggregator()
    aggregator.begin_round(1, Message())
    aggregator.begin_phase("update", 1, None)
    for client in clients:
        aggregator.receive("update", client, run.sent["update"][client])
    aggregator.close("update")
    return aggregator.request("update")


# Who opens: each client, or the authority; one purpose, or two.
@pytest.mark.parametrize("label", ["full-he", "mask-crypt", "selective-shield/encrypted"])
def test_a_restart_after_every_round_changes_nothing(tmp_path, label):
    path = tmp_path / "store"
    stored, plain = stored_run(path, label), SteppedRun(variant_of(label))
    for participants in ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3]):
        for run in (stored, plain):
            run.run_round(participants)
        state = stored.authority.state(KEY)
        assert len(state) < 20_000 or not stored.method.clients_open  # the memory is not in it
        set_back(stored, state, path)
    np.testing.assert_array_equal(stored.merged(1).parameters, plain.merged(1).parameters)


def test_from_a_state_before_an_answer_the_same_request_gets_it_and_no_other_list_any(tmp_path):
    path = tmp_path / "store"
    run = stored_run(path)
    run.begin_round(1)
    begun = run.authority.state(KEY)
    run.run_round()
    asked = run.aggregator.request("update")
    answer = run.authority.answer("update", asked)
    others = request_over(run, [0, 1, 2])
    set_back(run, begun, path)
    with pytest.raises(PolicyError, match="with another list or total"):
        run.authority.answer("update", others)
    with pytest.raises(PolicyError, match="the store has 1 reply"):
        run.authority.begin_round(2)
    # What is not known is kept with the state.
    set_back(run, run.authority.state(KEY), path)
    with pytest.raises(PolicyError, match="send the same requests again"):
        run.authority.begin_round(2)
    assert run.authority.answer("update", asked) == answer
    run.run_round()
    # Had it its memory in the state, as without a file, the other list would have been answered.
    forgetful = SteppedRun(variant_of("full-he"))
    old = forgetful.authority.state(KEY)
    forgetful.run_round()
    others = request_over(forgetful, [0, 1, 2])
    again = forgetful.new_authority()
    again.restore(old, KEY)
    again.begin_round(1)
    assert again.answer("update", others)


def test_rounds_that_the_file_knows_to_be_over_are_not_begun_again(tmp_path):
    path = tmp_path / "store"
    run = stored_run(path)
    old = run.authority.state(KEY)
    for _ in range(3):
        run.run_round()
    set_back(run, old, path)
    with pytest.raises(PolicyError, match="round 2 is over since round 3 began"):
        run.authority.begin_round(2)


def test_a_state_that_knows_replies_that_the_file_does_not_have_is_refused(tmp_path):
    path = tmp_path / "store"
    run = stored_run(path)
    run.run_round()
    run.authority.keys._known = run.authority.keys._held_store().position.rows + 1
    state = run.authority.state(KEY)
    with pytest.raises(WireFormatError):
        set_back(run, state, path)


def test_an_older_file_than_the_state_and_the_file_of_others_are_refused(tmp_path):
    path, other = tmp_path / "store", tmp_path / "other"
    run = stored_run(path)
    begun = run.authority.state(KEY)
    run.authority.keys.close()
    shutil.copy(path, tmp_path / "old")
    set_back(run, begun, path)
    run.run_round()
    state = run.authority.state(KEY)
    run.authority.keys.close()
    stored_run(other).authority.keys.close()
    for wrong, error, words in (
        (tmp_path / "old", DataError, "old copy"),
        (other, KeyMismatchError, "store of another authority"),
    ):
        fresh = run.method.authority_steps(run.setup, run.initial, threads=1, store=wrong)
        with pytest.raises(error, match=words):
            fresh.restore(state, KEY)
    without = run.new_authority()
    with pytest.raises(WireFormatError):
        without.restore(state, KEY)
    set_back(run, state, path)
    with pytest.raises(PolicyError, match="exists: open it"):
        run.method.authority_setup(run.initial, store=path)
    with pytest.raises(ParameterError, match="a store is for an authority that clients enrol with"):
        SteppedRun(labelled("full-he/ckks")).method.authority_setup(run.initial, store=other)


def test_a_process_that_ended_between_the_purposes_of_a_round_goes_on(monkeypatch, tmp_path):
    """Each purpose's keys are moved on in a transaction of their own."""
    path = tmp_path / "store"
    run = stored_run(path, "selective-shield/encrypted")
    run.run_round()
    before = run.authority.state(KEY)
    *_, last = run.authority.keys._authorities.values()

    def ends(number):
        raise KeyboardInterrupt

    monkeypatch.setattr(last, "close_round", ends)
    with pytest.raises(KeyboardInterrupt):
        run.authority.begin_round(2)
    set_back(run, before, path)
    run._round = 2
    run.run_round()
    ended = {one.newest_closed_round for one in run.authority.keys._authorities.values()}
    assert ended == {2}
    set_back(run, run.authority.state(KEY), path)
    run.run_round()


def test_a_set_up_that_is_refused_leaves_no_file(tmp_path):
    run = SteppedRun(labelled("dict-pfl"))
    with pytest.raises(ParameterError):
        run.method.authority_setup(run.initial, shared_secret=b"short", store=tmp_path / "store")
    assert not (tmp_path / "store").exists()
