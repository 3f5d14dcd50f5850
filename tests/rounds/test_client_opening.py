"""Each client opens sums itself: what the others then cannot do, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SOME_ABSENT, SteppedRun, check_alike
from methods.variants import each_as_parameter, labelled, opened_by_clients, variants
from shieldfl.authority.message import Message
from shieldfl.authority.total_opener import AnswerOpener
from shieldfl.encryption.enrolment import grant_key, sealed_grant
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, ShieldError, WireFormatError
from shieldfl.rounds.opening_rule import ANSWER, ANSWERED_PHASE, ANSWERED_ROUND, OpenedTogether, _Opened
from shieldfl.rounds.plan import OPENED

OPENED_BY_CLIENTS = [one for one in opened_by_clients(variants()) if not one.noisy]
each_method = pytest.mark.parametrize("variant", each_as_parameter(OPENED_BY_CLIENTS))


def run_of(label: str, **options: object) -> SteppedRun:
    (variant,) = opened_by_clients([labelled(label)])
    return SteppedRun(variant, **options)


def end_of(run: SteppedRun) -> Message:
    """What every client gets at the end of the last round."""
    return run.answers["update"]


@each_method
def test_the_models_are_those_that_the_authority_opens_whoever_was_in_which_round(variant):
    answered = SteppedRun(labelled(variant.label.removesuffix("/opened by clients")))
    check_alike(SteppedRun(variant), answered, [*SOME_ABSENT, [0, 1, 2, 3]])


@each_method
def test_the_authority_sees_no_total_and_the_aggregator_no_model(variant):
    run = SteppedRun(variant)
    seen = []
    honest = run.authority.answer
    run.authority.answer = lambda phase, message: (seen.append(message), honest(phase, message))[1]
    run.run_round()
    assert seen
    assert all(message.keys() == {"round", "request", "earlier answers"} for message in seen)
    model = run.clients[0].global_model(run.model)["parameters"]
    for part in (bytes(part) for message in run.answers.values() for part in message.values()):
        assert bytes(model) not in part
    # A list of four clients takes no more than a few hundred bytes, however long the update is.
    assert max(message.nbytes for message in seen) < 600


def test_a_grant_for_another_is_refused():
    run = run_of("full-he")
    session = run.setup.digest
    for key, of in ((bytes(32), session), (grant_key(bytes(32), session), bytes(32))):
        with pytest.raises(KeyMismatchError, match="another client or session"):
            run.clients[0].enrolled(Message({"grant": sealed_grant(key, of, bytes(32))}))


def test_clients_enrol_once_and_with_the_last_one_enrolment_ends():
    run = run_of("full-he")
    authority, setup = run.method.authority_setup(run.initial)
    clients = [run.method.client_steps(setup, index, 1, run.initial) for index in range(4)]
    with pytest.raises(KeyMismatchError, match="names another client"):
        authority.enrol(1, clients[0].enrolment())
    grants = [authority.enrol(index, clients[index].enrolment()) for index in range(3)]
    with pytest.raises(PolicyError, match="enrolled in the session before"):
        authority.enrol(0, run.method.client_steps(setup, 0, 1, run.initial).enrolment())
    opens_requests = authority.keys._owner.enrolment_key
    assert opens_requests is not None
    # Sealed, until it is erased.
    assert opens_requests not in authority.keys._secrets + authority.keys._memory
    with authority.keys._store._transaction() as change:
        ((sealed,),) = change._execute("SELECT sealed FROM records WHERE kind = 'enrolment key'")
    assert sealed in authority.keys._memory
    grants.append(authority.enrol(3, clients[3].enrolment()))
    assert authority.keys._owner.enrolment_key is None
    left = authority.keys._memory
    assert not [start for start in range(0, len(sealed) - 16, 16) if sealed[start : start + 16] in left]
    for index in (0, 3):
        with pytest.raises(PolicyError, match="enrolment has ended"):
            authority.enrol(index, run.method.client_steps(setup, index, 1, run.initial).enrolment())
    # What was lost on the way is given again, also then.
    assert [authority.enrol(index, clients[index].enrolment()) for index in range(4)] == grants


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sums": bytes(8)}, (KeyMismatchError, WireFormatError)),
        ({"weight": Message.from_number(5)}, (KeyMismatchError, WireFormatError)),
        ({"round": Message.from_number(2)}, (KeyMismatchError, WireFormatError, PolicyError)),
        ({"more": b"1"}, KeyMismatchError),
        ({ANSWERED_ROUND: Message.from_number(2)}, ShieldError),
        ({ANSWERED_ROUND: Message.from_number(10**6)}, PolicyError),
        ({ANSWERED_PHASE: b"scores"}, PolicyError),
        ({ANSWERED_PHASE: b"\xff"}, PolicyError),
        ({ANSWER: bytes(200)}, KeyMismatchError),
    ],
)
def test_one_client_cannot_be_given_another_end_of_a_round(change, error):
    """A model made for one client: the answer is bound to all that the aggregator sends with the total."""
    run = run_of("full-he")
    driver_end = {}
    client = run.clients[0]
    honest = client.end_round
    client.end_round = lambda message: driver_end.setdefault("message", message)
    run.run_round()
    client.end_round = honest
    end = driver_end["message"]
    before = client.global_model(run.model)
    with pytest.raises(error):
        client.end_round(Message({**end, **change}))
    assert client.global_model(run.model) == before
    client.end_round(end)
    assert client.global_model(run.model) == run.clients[1].global_model(run.model) != before


def test_who_missed_a_round_gets_it_or_does_not_go_on():
    run = run_of("full-he")
    run.run_round([0, 1, 2])
    first = run.begin_round(2)
    with pytest.raises(PolicyError, match="other sums than this client has opened"):
        run.clients[3].begin_round(2, 4, first)
    missed = run.aggregator.missed(3)
    assert list(missed)
    assert run.aggregator.missed(0).keys() == set()
    run.clients[3].begin_round(2, 4, Message({**first, **missed}))
    assert run.clients[3].global_model(first) == run.clients[0].global_model(first)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_end_of_a_round_that_was_lost_is_sent_again(restarts):
    run = run_of("full-he", restarts_roles=restarts)
    lost = run.clients[2]
    end_round = lost.end_round
    lost.end_round = lambda message: None
    run.run_round()
    run.run_round([0, 1, 3])
    del lost.end_round
    assert lost.end_round == end_round or restarts
    first = run.begin_round(3)
    missed = run.aggregator.missed(2)
    with pytest.raises(PolicyError, match="follows sums that this client has not opened"):
        lost.begin_round(3, 4, Message({**first, **missed}))
    assert lost.global_model(first)["parameters"] == run.initial.to_message()["parameters"]
    lost.begin_round(3, 4, Message({**first, **run.aggregator.missed(2, again=True)}))
    assert lost.global_model(first) == run.clients[0].global_model(first)


def test_an_older_first_message_is_refused():
    run = run_of("full-he")
    first = run.begin_round(1)
    run.run_round()
    with pytest.raises((PolicyError, KeyMismatchError)):
        run.clients[0].begin_round(2, 4, first)
    again = {**run.begin_round(2), "earlier answers": bytes(32)}
    with pytest.raises(KeyMismatchError):
        run.clients[0].begin_round(2, 4, Message(again))


@pytest.mark.parametrize("label", ["fedml-he", "dict-pfl", "selective-shield/encrypted"])
@pytest.mark.parametrize("liars", [{2}, {0, 2, 3}], ids=["minority", "majority"])
def test_what_most_say_is_gone_on_with_where_a_client_has_opened_it_too(label, liars):
    lying, honest = run_of(label), run_of(label)

    def lie(phase, aggregator, messages):
        for client in liars if phase == OPENED else ():
            told = messages[client]
            name = next(name for name in told if name != "round")
            messages[client] = Message({**told, name: bytes(len(told[name]))})

    if len(liars) > 2:
        with pytest.raises((PolicyError, WireFormatError)):
            lying.run_round(intrude=lie)
    else:
        # The liar itself has opened the same as the others, and goes on.
        lying.run_round(intrude=lie)
        honest.run_round()
        assert lying.model == honest.model


@pytest.mark.parametrize("label", ["dict-pfl", "selective-shield/encrypted", "selective-shield/hidden"])
def test_a_client_does_not_go_on_with_what_was_opened_in_an_earlier_round(label):
    """An aggregator that leaves out what a round agrees on would have the positions of its choice encrypted."""
    run = run_of(label)
    run.run_round()
    (before, opened, *_) = run.sent
    zone = Message({name: part for name, part in run.sent[opened][0].items() if name != "round"})
    run.train_client(0, 2, 4, run.begin_round(2))
    client = run.clients[0]
    with pytest.raises(PolicyError, match="opened to something else"):
        client.step("update", zone)
    with pytest.raises(PolicyError, match=f"the end of phase '{before}' is missing"):
        client.step(OPENED, None)
    run.run_round()
    assert opened in run.sent


def test_an_authority_answers_for_the_round_and_purpose_that_run():
    run = run_of("full-he")
    run.run_round()
    request = run.aggregator.request("update")
    assert run.authority.answer("update", request)[ANSWER] == end_of(run)[ANSWER]
    with pytest.raises(PolicyError):
        run.authority.answer("update", Message({**request, "round": Message.from_number(2)}))
    run.begin_round(2)
    with pytest.raises(PolicyError, match="follows other answers"):
        run.authority.answer("update", Message({**request, "round": Message.from_number(2)}))
    newest = {
        "round": Message.from_number(2),
        "earlier answers": run.authority.newest_model()["earlier answers"],
    }
    with pytest.raises(PolicyError, match="not for 'update' of round 2"):
        run.authority.answer("update", Message({**request, **newest}))
    with pytest.raises(ParameterError):
        run.authority.answer("scores", request)
    of_two = run_of("selective-shield/encrypted")
    of_two.run_round()
    (other,) = of_two.authority.keys.check.parameters.keys() - {"update"}
    with pytest.raises(PolicyError, match=f"not for '{other}' of round 1"):
        of_two.authority.keys.sum_key(1, other, bytes(of_two.aggregator.request("update")["request"]))


def test_a_phase_that_opens_nothing_is_not_answered_by_the_authority():
    run = run_of("dict-pfl")
    run.begin_round(1)
    with pytest.raises(ParameterError, match="opens nothing"):
        run.authority.answer("count", Message({"round": Message.from_number(1), "request": b""}))


def test_roles_of_the_other_kind_say_so():
    run = SteppedRun(labelled("full-he"))
    run.run_round()
    with pytest.raises(ParameterError):
        run.aggregator.request("update")
    with pytest.raises(ParameterError):
        run.aggregator.keep(Message(), Message(), [])
    assert not run.aggregator.missed(0)


@pytest.mark.parametrize("label", ["fedml-he", "alt-fl-mp"])
def test_a_round_that_was_given_up_after_its_scores_stops_nobody(label):
    """What scores have opened to is good for the whole run: no second sum of them is opened, and rounds go on."""
    run = run_of(label)
    with pytest.raises(PolicyError, match="min_clients"):
        run.run_round([0, 1, 2], dropping=[1, 2])
    phases = []
    run.run_round(intrude=lambda phase, aggregator, messages: phases.append(phase))
    assert phases == [OPENED, "update"]
    run.run_round([1, 2, 3])
    run.run_round()
    models = [client.global_model(run.model) for client in run.clients]
    assert models == models[:1] * 4


CLIENTS = 4
LABELS = (
    "full-he",
    "selective-shield/encrypted",
    "sense-crypt/clusters",
    "dict-pfl",
    "fedml-he/paillier-dense",
)


def sharing_run(variant) -> SteppedRun:
    """A run whose clients open together; one that shares nothing is the same without this."""
    run = SteppedRun(variant)
    run.together = OpenedTogether(CLIENTS)
    for client in run.clients:
        client.open_together(run.together)
    return run


def full_he() -> SteppedRun:
    return sharing_run(opened_by_clients([labelled("full-he")])[0])


@pytest.fixture
def openings(monkeypatch):
    """Totals that were opened, by their digest."""
    found = []
    honest = AnswerOpener._answer
    monkeypatch.setattr(
        AnswerOpener, "_answer", lambda self, total: (found.append(total.digest()), honest(self, total))[1]
    )
    return found


@pytest.mark.parametrize("variant", each_as_parameter(opened_by_clients(map(labelled, LABELS))))
def test_clients_that_share_have_the_models_of_clients_that_do_not(variant):
    check_alike(sharing_run(variant), SteppedRun(variant), [*SOME_ABSENT, [0, 1, 2, 3]])


@pytest.mark.parametrize("label", ["full-he", "dict-pfl"])
def test_each_total_is_opened_once_and_kept_until_all_have_it(openings, label):
    run = sharing_run(opened_by_clients([labelled(label)])[0])
    run.run_round([0, 1, 2])
    run.run_round([0, 1, 2])
    assert len(openings) == len(set(openings)) == 2
    assert len(run.together._known) == 2
    run.run_round([1, 2, 3])  # opens what it has missed
    assert len(openings) == len(set(openings)) == 3
    assert len(run.together._known) == 1
    run.run_round([0, 1, 2, 3])
    assert len(openings) == 4
    assert not run.together._known


def test_the_seconds_of_the_first_one_count_for_all(monkeypatch):
    run = full_he()
    monkeypatch.setattr(type(run.clients[0]._opening.opener), "repeat", lambda *arguments: None)
    clock = iter((0.0, 10.0, 11.0))  # begin of each, and end of the second
    monkeypatch.setattr("shieldfl.rounds.opening_rule.time.perf_counter", lambda: next(clock))
    for client in run.clients[:2]:
        opened = run.together.found(b"history", Message(), "update", 1, client._opening)
        if opened is None:
            before, keys = client._opening.opener.standing(), client._opening.keys
            opened = _Opened(Message(), keys, before, Message(), Message(), b"", before, (), 5.0)
            run.together.keep(b"history", opened)
    monkeypatch.undo()
    assert run.together.take_saved() == 4.0
    assert run.together.take_saved() == 0.0


def test_what_others_have_opened_lets_nobody_take_an_altered_end():
    run = full_he()
    run.run_round([0, 1, 2])
    end = run.answers["update"]
    late = run.clients[3]
    before = late.merged_model(run.model).parameters.copy()
    forged = bytearray(end[ANSWER])
    forged[-1] ^= 1
    with pytest.raises(KeyMismatchError):
        late.end_round(Message({**end, ANSWER: bytes(forged)}))
    with pytest.raises(ShieldError):
        late.end_round(Message({**end, "total": bytes(end["total"])[:-1]}))
    np.testing.assert_array_equal(late.merged_model(run.model).parameters, before)
    late.end_round(end)
    np.testing.assert_array_equal(late.merged_model(run.model).parameters, run.merged(0).parameters)


def test_an_opener_that_stands_elsewhere_opens_by_itself(openings):
    run = full_he()
    run.run_round([0, 1, 2])
    late = run.clients[3]._opening.opener.rule
    late.model = late.model.moved_finite(
        np.ones(run.merged(0).parameters.size + run.merged(0).buffers.size), 1.0
    )
    run.clients[3].end_round(run.answers["update"])
    assert len(openings) == 2
    assert not np.array_equal(run.merged(3).parameters, run.merged(0).parameters)


def test_a_client_that_was_granted_nothing_opens_nothing_that_others_have():
    run = full_he()
    run.run_round([0, 1, 2])
    stranger = run.new_client(3)
    stranger.open_together(run.together)
    with pytest.raises(ShieldError, match="granted no answers"):
        stranger.end_round(run.answers["update"])


def test_an_end_that_was_missed_is_read_once_from_one_object_and_anew_from_others():
    together = OpenedTogether(CLIENTS)
    end = Message({"round": bytes(8), "total": b"sums"}).to_bytes()
    assert together.read(end) is together.read(end)
    assert together.read(end) == together.read(memoryview(end)) == together.read(bytes(bytearray(end)))
    assert together.read(memoryview(end)) is not together.read(end)
    assert together.read(bytes(bytearray(end))) is not together.read(end)
    # What somebody can write to is read as it is now.
    written = bytearray(end)
    before = together.read(memoryview(written))
    written[-4:] = b"SUMS"
    assert bytes(together.read(memoryview(written))["total"]) == b"SUMS"
    assert before is not together.read(memoryview(written))
