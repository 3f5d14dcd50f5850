"""An authority that is set back to an old state of its own, beside the newest file of what it has answered.

The file answers nobody twice. What the answers came to is in the state: the newest model, and that scores were opened.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from methods.stored_run import KEY, asked_over, run_in_file, same_in_every_round, set_back
from methods.variants import labelled, opened_by_aggregator, opened_by_clients
from shieldfl.authority.key_authority import SumKeyAuthority
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import PolicyError, RangeError
from shieldfl.rounds import authorities
from shieldfl.rounds.authorities import RoundAuthority


def test_no_later_round_begins_with_the_model_of_before_what_was_answered(monkeypatch, tmp_path):
    """Clients that have not opened the first sum yet would train once more from the same model, one client away."""
    path = tmp_path / "store"
    (variant,) = opened_by_clients([labelled("full-he")])
    run = run_in_file(path, variant, train=same_in_every_round, min_clients=3)
    old = run.authority.state(KEY)
    first = run.authority.begin_round(1)
    begun = run.authority.state(KEY)
    asked = asked_over(run, "update", 1, [0, 1, 2, 3], first)
    run.authority.answer("update", asked)
    for state in (old, begun):
        set_back(run, state, path)
        for number in (2, 3):
            with pytest.raises(PolicyError, match="the store has 1 reply"):
                run.authority.begin_round(number)
    # With what was answered it goes on, and says so to clients: those without the first sum train nothing.
    assert run.authority.answer("update", asked)
    second = run.authority.begin_round(2)
    with pytest.raises(PolicyError, match="begins from other sums than this client has opened"):
        run.train_client(2, 2, 4, second)


def test_one_round_has_one_model_and_one_list_of_invited_clients(monkeypatch, tmp_path):
    """A model whose gradient is zero, for all but one client, would make the sum that client's update."""
    path = tmp_path / "store"
    (variant,) = opened_by_aggregator([labelled("full-he")])
    run = run_in_file(path, variant, train=same_in_every_round, min_clients=3)
    run.run_round()
    old = run.authority.state(KEY)
    model = run.aggregator.newest_model()
    planted = Message({**model, "parameters": bytes(len(model["parameters"]))})
    first = run.authority.begin_round(2, None, digest_of_parts(model))
    assert run.clients[0].begin_round(2, 4, Message({**model, **first})) is not None
    set_back(run, old, path)
    for invited, other in ((None, planted), ([1, 2, 3], model)):
        with pytest.raises(PolicyError, match="round 2 was begun with another first message"):
            run.authority.begin_round(2, invited, digest_of_parts(other))
    assert run.authority.begin_round(3, None, digest_of_parts(model))


def test_scores_are_opened_once_whatever_the_state(monkeypatch, tmp_path):
    path = tmp_path / "store"
    (variant,) = opened_by_aggregator([labelled("fedml-he")])
    run = run_in_file(path, variant, train=same_in_every_round, min_clients=3)
    old = run.authority.state(KEY)
    model, digest = run.aggregator.newest_model(), run.aggregator.model_digest()

    def scores(number, clients):
        first = Message({**model, **run.authority.begin_round(number, None, digest)})
        return run.authority.answer("scores", asked_over(run, "scores", number, clients, first))

    assert scores(1, [0, 1, 2, 3])
    with pytest.raises(PolicyError, match="a total of phase 'scores' was answered in round 1"):
        scores(2, [0, 2, 3])
    set_back(run, old, path)
    with pytest.raises(PolicyError, match="the store has 1 reply"):
        scores(3, [0, 2, 3])


def test_nor_is_a_list_of_others_answered_in_the_place_of_one(monkeypatch, tmp_path):
    """Six clients, two lists of three: the second one in place of what the first one came to."""
    path = tmp_path / "store"
    (variant,) = opened_by_aggregator([labelled("fedml-he")])
    run = run_in_file(path, variant, clients=6, train=same_in_every_round, min_clients=3)
    first = Message(
        {**run.aggregator.newest_model(), **run.authority.begin_round(1, None, run.aggregator.model_digest())}
    )
    begun = run.authority.state(KEY)
    ones, others = (asked_over(run, "scores", 1, who, first, 6) for who in ([0, 1, 2], [3, 4, 5]))
    answer = run.authority.answer("scores", ones)
    set_back(run, begun, path)
    with pytest.raises(PolicyError, match="came to another reply"):
        run.authority.answer("scores", others)
    assert run.authority.answer("scores", ones) == answer


@pytest.mark.parametrize("label", ["full-he", "mask-crypt"])
def test_an_answer_of_which_an_error_came_is_not_known(monkeypatch, tmp_path, label):
    """The total opens, and what was stated beside it does not go with it: the model has not moved."""
    path = tmp_path / "store"
    run = run_in_file(
        path, opened_by_authority(label), weights=[1, 2, 3, 4], train=same_in_every_round, min_clients=3
    )
    run.begin_round(1)
    begun = run.authority.state(KEY)
    run.run_round()
    closed, moved = run.closed["update"], run.authority.newest_model()
    set_back(run, begun, path)
    (weight,) = (name for name in closed if name.startswith("weight"))
    forged = Message({**closed, weight: Message.from_number(closed.number(weight) - 1)})
    for _ in range(2):
        with pytest.raises(RangeError, match="do not sum to what the clients stated"):
            run.authority.answer("update", forged)
        with pytest.raises(PolicyError, match="the store has 1 reply"):
            run.authority.begin_round(2)
    run.authority.answer("update", closed)
    assert run.authority.newest_model() == moved
    assert run.authority.begin_round(2)


def test_a_state_from_between_an_error_and_the_answer_does_not_know_the_answer(monkeypatch, tmp_path):
    """It was kept before the answer left, as it has to be, and the file was as far as it is now."""
    path = tmp_path / "store"
    run = run_in_file(
        path, opened_by_authority("full-he"), weights=[1, 2, 3, 4], train=same_in_every_round, min_clients=3
    )
    kept = []

    def forge(phase, message):
        (weight,) = (name for name in message if name.startswith("weight"))
        forged = Message({**message, weight: Message.from_number(message.number(weight) - 1)})
        with pytest.raises(RangeError):
            answer(phase, forged)
        kept.append(run.authority.state(KEY))
        return answer(phase, message)

    answer = run.authority.answer
    with monkeypatch.context() as patch:
        patch.setattr(run.authority, "answer", forge, raising=False)
        run.run_round()
    moved = run.authority.newest_model()
    after = run.authority.state(KEY)
    set_back(run, kept[0], path)
    with pytest.raises(PolicyError, match="the store has 1 reply"):
        run.authority.begin_round(2)
    set_back(run, after, path)
    assert run.authority.begin_round(2)
    assert run.authority.newest_model() == moved


@pytest.mark.parametrize("opened_by", [opened_by_clients, opened_by_aggregator])
def test_what_was_interrupted_after_it_was_written_is_not_known(monkeypatch, tmp_path, opened_by):
    path = tmp_path / "store"
    (variant,) = opened_by([labelled("full-he")])
    run = run_in_file(path, variant, train=same_in_every_round, min_clients=3)
    model = {} if run.method.clients_open else dict(run.aggregator.newest_model())
    first = Message({**model, **run.authority.begin_round(1, None, run.aggregator.model_digest())})
    asked = asked_over(run, "update", 1, [0, 1, 2, 3], first)
    sum_key = SumKeyAuthority.sum_key

    def interrupted(self, request):
        sum_key(self, request)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SumKeyAuthority, "sum_key", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.authority.answer("update", asked)
    kept = run.authority.state(KEY)
    answer = run.authority.answer("update", asked)
    set_back(run, kept, path)
    with pytest.raises(PolicyError, match="the store has 1 reply"):
        run.authority.begin_round(2, None, run.aggregator.model_digest())
    assert run.authority.answer("update", asked) == answer
    assert run.authority.begin_round(2, None, run.aggregator.model_digest())


def test_a_round_that_ended_in_an_error_alone_is_followed_by_the_next(monkeypatch, tmp_path):
    """What a client forges ends its round, and not the federation."""
    path = tmp_path / "store"
    (variant,) = opened_by_clients([labelled("full-he")])
    run = run_in_file(path, variant, train=same_in_every_round, min_clients=3)
    first = run.authority.begin_round(1)
    asked = asked_over(run, "update", 1, [0, 1, 2, 3], first)
    with monkeypatch.context() as patch:
        patch.setattr(authorities, "next_history", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.authority.answer("update", asked)
    assert run.authority.begin_round(2)
    set_back(run, run.authority.state(KEY), path)
    assert run.authority.begin_round(3)


def test_a_restore_that_is_cut_off_changes_nothing(monkeypatch, tmp_path):
    path = tmp_path / "store"
    run = run_in_file(path, opened_by_authority("full-he"), train=same_in_every_round, min_clients=3)
    run.begin_round(1)
    begun = run.authority.state(KEY)
    run.run_round()
    newest = run.authority.state(KEY)

    def cut_off(state):
        with monkeypatch.context() as patch:
            patch.setattr(RoundAuthority, "check_changed", interrupt)
            with pytest.raises(KeyboardInterrupt):
                run.authority.restore(state, KEY)

    def interrupt(_):
        raise KeyboardInterrupt

    cut_off(begun)
    run.begin_round(2)
    run.authority.restore(begun, KEY)
    cut_off(newest)
    with pytest.raises(PolicyError):
        run.authority.begin_round(3)


def opened_by_authority(label):
    return replace(labelled(label), opener="authority")
