"""What a phase of a round came to is on the disk before it leaves: one reply for ever, whatever fails."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import run_of
from methods.stored_run import KEY, asked_over, closed_over, restart, run_in_file, same_in_every_round
from methods.variants import labelled
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.key_authority import SumKeyAuthority
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import DataError, PolicyError, RangeError
from shieldfl.rounds import authorities
from shieldfl.rounds.opening_rule import Replies

METHODS = ["full-he", "mask-crypt", "selective-shield/encrypted", "sense-crypt/clusters", "dict-pfl"]


def stored(path, label, **changes):
    settings = {"train": same_in_every_round, "min_clients": 3, "weights": [1, 2, 3, 4]}
    return run_in_file(path, labelled(label), **(settings | changes))


def forged(closed):
    (weight,) = (name for name in closed if name.startswith("weight"))
    return Message({**closed, weight: Message.from_number(closed.number(weight) - 1)})


def test_a_list_that_ended_in_an_error_keeps_no_honest_authority_from_going_on(path):
    """A client forges a weight, others are answered in its list's place; the process ends at every step."""
    run = stored(path, "full-he", min_clients=2)
    first = run.authority.begin_round(1)
    restart(run, path)
    _, closed = closed_over(run, "update", 1, [0, 1], first)
    for _ in range(2):
        with pytest.raises(RangeError, match="do not sum to what the clients stated"):
            run.authority.answer("update", forged(closed))
        restart(run, path)
    _, others = closed_over(run, "update", 1, [2, 3], first)
    run.authority.answer("update", others)
    moved = run.authority.newest_model()
    restart(run, path)
    second = run.authority.begin_round(2)
    assert {name: second[name] for name in moved} == moved


def test_an_answer_that_opens_nothing_is_a_reply_too(path):
    """Clusters that are settled without any sum: another clustering would be a second answer of the round."""
    run = stored(path, "sense-crypt/clusters")
    run.authority.begin_round(1)

    def clusters(*of):
        parts = {"round": Message.from_number(1), "clusters": np.array(of, np.int64).tobytes()}
        return Message(parts)

    left = run.authority.answer("update", clusters(0, 0, 1, 1))
    restart(run, path)
    with pytest.raises(PolicyError, match="another answer is not given"):
        run.authority.answer("update", clusters(0, 1, 1, 1))
    assert run.authority.answer("update", clusters(0, 0, 1, 1)) == left
    assert run.authority.begin_round(2)


def test_what_goes_beside_a_total_is_as_fixed_as_the_total(path):
    """Values in the clear, which the aggregator adds up: others would move the model of an answered round elsewhere."""
    run = stored(path, "mask-crypt")
    run.run_round()
    closed, moved = run.closed["update"], run.authority.newest_model()
    restart(run, path)
    sums = np.frombuffer(bytes(closed["sums"]), np.float32) / 2
    with pytest.raises(PolicyError, match="another answer is not given"):
        run.authority.answer("update", Message({**closed, "sums": sums.tobytes()}))
    run.authority.answer("update", closed)
    assert run.authority.newest_model() == moved


@pytest.mark.parametrize(
    "place", [(Replies, "keep"), (AuthorityStore, "keep_state")], ids=["decided", "kept"]
)
@pytest.mark.parametrize("label", METHODS)
def test_an_error_before_a_reply_is_kept_leaves_everything_as_it_was(monkeypatch, tmp_path, label, place):
    """The same message again moves the model once, to where it would have come without the error."""
    reference, run = (stored(tmp_path / name, label) for name in ("reference", "store"))
    answer = run.authority.answer

    def fails_first(phase, message):
        whole = getattr(*place)

        def fail(*arguments, **named):
            whole(*arguments, **named)
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(*place, fail)
            with pytest.raises(MemoryError):
                answer(phase, message)
        return answer(phase, message)

    monkeypatch.setattr(run.authority, "answer", fails_first, raising=False)
    for _ in range(2):
        run.run_round()
        reference.run_round()
        np.testing.assert_array_equal(run.merged(1).parameters, reference.merged(1).parameters)
    events = [set(authority.report().events) for authority in (run.authority, reference.authority)]
    assert events[0] == events[1] != set()


@pytest.mark.parametrize("opener", ["clients", "aggregator"])
def test_nor_does_one_where_others_open(monkeypatch, path, opener):
    """Of what an interrupted step has answered nothing left: a list of others is answered then, and no third one."""
    run = run_in_file(path, labelled("full-he", opener), clients=6, train=same_in_every_round, min_clients=3)
    model = {} if run.method.clients_open else dict(run.aggregator.newest_model())
    first = Message({**model, **run.authority.begin_round(1, None, run.aggregator.model_digest())})
    ones, others = (asked_over(run, "update", 1, who, first, 6) for who in ([0, 1, 2], [3, 4, 5]))
    before, sum_key = run.authority.newest_model(), SumKeyAuthority.sum_key

    def interrupted(self, request):
        sum_key(self, request)
        raise KeyboardInterrupt

    for place, error in (
        ((SumKeyAuthority, "sum_key", interrupted), KeyboardInterrupt),
        ((authorities, "next_history", lambda *_: 1 / 0), ZeroDivisionError),
        ((AuthorityStore, "keep_state", lambda *_: 1 / 0), ZeroDivisionError),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(*place)
            for _ in range(2):
                with pytest.raises(error):
                    run.authority.answer("update", ones)
        assert run.authority.newest_model() == before
    answer = run.authority.answer("update", others)
    assert len(run.authority.report().events) == 1
    for _ in range(2):
        with pytest.raises(PolicyError, match="another answer is not given"):
            run.authority.answer("update", ones)
        assert run.authority.answer("update", others) == answer
        restart(run, path)


def test_an_answer_that_may_be_on_the_disk_is_asked_for_there(monkeypatch, path):
    """A commit that failed may turn out to be done: what is true is in the file, and no longer in memory."""
    run = run_in_file(path, labelled("full-he", "clients"), train=same_in_every_round, min_clients=3)
    first = run.authority.begin_round(1)
    asked = asked_over(run, "update", 1, [0, 1, 2, 3], first)
    together = AuthorityStore.together

    def done_and_failed(store, work):
        together(store, work)
        raise DataError("the disk says that it failed")

    with monkeypatch.context() as patch:
        patch.setattr(AuthorityStore, "together", done_and_failed)
        with pytest.raises(DataError, match="says that it failed"):
            run.authority.answer("update", asked)
    assert run.authority.answer("update", asked)
    assert run.authority.begin_round(2)


@pytest.mark.parametrize("asked", ["restarted", "beside it"])
def test_one_round_has_one_model_and_one_list_of_invited_clients(path, asked):
    """A model whose gradient is zero, for all but one client, would make the sum that client's update.

    Two objects of one store are one authority: else each would sign a model, and a list of who is invited.
    """
    run = run_in_file(path, labelled("full-he", "aggregator"), train=same_in_every_round, min_clients=3)
    run.run_round()
    model = run.aggregator.newest_model()
    planted = Message({**model, "parameters": bytes(len(model["parameters"]))})
    authorities = [run.authority]
    if asked == "beside it":
        store = run.authority._store
        authorities.append(run.method.authority_steps(run.setup, run.initial, threads=1, store=store))
    first = run.authority.begin_round(2, None, digest_of_parts(model))
    assert run.clients[0].begin_round(2, 4, Message({**model, **first})) is not None
    if asked == "restarted":
        restart(run, path)
        authorities = [run.authority]
    for one in authorities[::-1]:
        for number in (2, 3):
            with pytest.raises(PolicyError, match="another model was signed"):
                one.begin_round(number, None, digest_of_parts(planted))
        with pytest.raises(PolicyError, match="round 2 was begun with other clients"):
            one.begin_round(2, [1, 2, 3], digest_of_parts(model))
        assert one.begin_round(2, None, digest_of_parts(model)) == first
    assert run.authority.begin_round(3, None, digest_of_parts(model))


def test_scores_are_opened_once_and_of_one_list(path):
    """Six clients, two lists of three: the second one in place of what the first one came to, or a round later."""
    variant = labelled("fedml-he", "aggregator")
    run = run_in_file(path, variant, clients=6, train=same_in_every_round, min_clients=3)
    model, digest = run.aggregator.newest_model(), run.aggregator.model_digest()
    first = Message({**model, **run.authority.begin_round(1, None, digest)})
    ones, others = (asked_over(run, "scores", 1, who, first, 6) for who in ([0, 1, 2], [3, 4, 5]))
    answer = run.authority.answer("scores", ones)
    restart(run, path)
    with pytest.raises(PolicyError, match="another answer is not given"):
        run.authority.answer("scores", others)
    assert run.authority.answer("scores", ones) == answer
    later = Message({**model, **run.authority.begin_round(2, None, digest)})
    with pytest.raises(PolicyError, match="a total of phase 'scores' was answered in round 1"):
        run.authority.answer("scores", asked_over(run, "scores", 2, [3, 4, 5], later, 6))


def test_a_round_that_was_begun_is_begun_again_as_it_was(path):
    run = run_in_file(path, labelled("full-he", "clients"), train=same_in_every_round, min_clients=3)
    run.run_round()
    first = run.authority.begin_round(2, [0, 1, 3])
    restart(run, path)
    with pytest.raises(PolicyError, match="round 2 was begun with other clients"):
        run.authority.begin_round(2)
    assert run.authority.begin_round(2, [0, 1, 3]) == first
    run._round = 1
    run.run_round([0, 1, 3])


@pytest.mark.parametrize("label", ["fedml-he", "selective-shield/encrypted"])
def test_a_round_is_begun_again_after_its_first_phase_too(path, label):
    """Where clients open, what was answered moves on within the round; who is invited does not."""
    run = run_in_file(path, labelled(label, "clients"), min_clients=3)
    answer = run.authority.answer

    def interrupted(phase, message):
        answer(phase, message)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.authority, "answer", interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            run.run_round()
    restart(run, path)
    assert run.authority.begin_round(1)
    with pytest.raises(PolicyError, match="round 1 was begun with"):
        run.authority.begin_round(1, [0, 1, 2])


def test_a_count_that_follows_from_sums_has_one_answer_in_a_round(path):
    run = stored(path, "dict-pfl")
    for _ in range(2):
        run.run_round()
    run.authority.begin_round(3)
    ask = Message({"round": Message.from_number(3)})
    left = run.authority.answer("count", ask)
    restart(run, path)
    assert run.authority.answer("count", ask) == left


@pytest.mark.parametrize("label", ["full-he", "selective-shield/encrypted"])
def test_a_memory_without_a_file_is_restored_after_a_begin_that_was_cut_off(label):
    """Each purpose's keys are moved on apart: an error may come in between."""
    run = run_of(label, min_clients=3)
    run.run_round()
    *_, last = run.authority.keys._authorities.values()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last, "close_round", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.authority.begin_round(2)
    again = run.new_authority()
    again.restore(run.authority.state(KEY), KEY)
    run.authority = again
    run.run_round()


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_a_total_that_was_opened_stays_the_rounds_whatever_came_of_it(monkeypatch, path, error):
    """Of pairs of keys: an error that the aggregator can cause must not make a second opening."""
    run = run_in_file(path, labelled("full-he/ckks"), train=same_in_every_round, min_clients=3)
    first = run.authority.begin_round(1)
    _, total = closed_over(run, "update", 1, [0, 1, 2, 3], first)
    _, other = closed_over(run, "update", 1, [0, 1, 2], first, trained=[0, 1, 2])
    with monkeypatch.context() as patch:

        def fail(*_):
            raise error

        patch.setattr(Replies, "keep", fail)
        with pytest.raises(error):
            run.authority.answer("update", total)
    with pytest.raises(PolicyError, match="a different total of round 1 was opened"):
        run.authority.answer("update", other)
    assert run.authority.answer("update", total)
