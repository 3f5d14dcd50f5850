"""DictPFL's rounds: who sends which positions, what a secret decides, and what counts, once, of updates."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.dict_pfl.dict_pfl_run import SECRET, active_of, ask_count, held_by, run_of
from methods.method_conformance import contraction, initial_model
from methods.small_plan import small_plan
from methods.variants import BUFFERS, CLIENTS, PARAMETERS
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.method import HISTORY, DictPflSettings, HeldBack, PruningHistory, read_history
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.method import EmbeddedRoles


def test_all_roles_find_the_same_positions_after_dropouts_and_absences():
    run = run_of(first_probability=0.3)
    counts = []
    for participants, dropping in (([0, 1, 2, 3], [3]), ([0, 1], []), ([0, 1, 3], [0]), ([1, 2, 3], [])):
        run.run_round(participants, dropping)
        senders = sorted(set(participants) - set(dropping))
        for client in senders:
            np.testing.assert_array_equal(active_of(run, client), active_of(run, senders[0]))
        counts.append(active_of(run, senders[0]).sum())
        assert run.answers["count"].number("count") == counts[-1] + BUFFERS
    assert counts[0] == PARAMETERS > max(counts[1:])
    assert min(counts) > 0


def test_a_position_that_others_overtook_is_reactivated_and_moves_again():
    def train(round_number, client, start):
        update = contraction(round_number, client, start)
        # Quiet at first, then by far the largest.
        update.parameters[7] = start.parameters[7] + np.float32(1e-6 if round_number == 1 else 0.5)
        return update

    run = run_of(train, first_probability=0.5)
    before = run.parameters[7]
    was_held = 0.0
    for _ in range(12):
        run.run_round()
        if active_of(run)[7]:
            if was_held:
                break
        else:
            was_held = held_by(run.clients[0], run.model)[7]
    moved = float(run.parameters[7] - before)
    assert was_held == pytest.approx(0.5 * round(was_held / 0.5), abs=1e-6)
    assert was_held > 0.4
    assert moved == pytest.approx(was_held + 0.5 + 1e-6, abs=1e-5)


def test_a_client_refuses_a_count_or_tag_that_is_not_its_own():
    run = run_of()
    client = run.clients[0]
    run.train_client(0, 1, 2, run.begin_round(1, [0, 1]))
    right = ask_count(run, 1)
    run.begin_round(2)
    later = ask_count(run, 2)
    assert right.number("count") == PARAMETERS + BUFFERS
    for answer in (
        None,
        Message({**right, "count": Message.from_number(PARAMETERS)}),
        Message({**right, "tag": later["tag"]}),
        Message({**right, "tag": b""}),
    ):
        with pytest.raises(PolicyError, match="newest model"):
            client.step("update", answer)
    assert client.step("update", right) == client.step("update", right)


def test_an_authority_refuses_a_total_of_fewer_values():
    run = run_of()
    run.run_round()
    aggregator, count = run.new_aggregator(), 40
    aggregator.begin_round(2, run.begin_round(2))
    aggregator.begin_phase("update", 2, Message({"count": Message.from_number(count)}))
    for client in (0, 1):
        batch = run.encryptor("update", client).encrypt(
            np.zeros(count, dtype=np.float32), Mask.full(count), round=2
        )
        parts = {"round": Message.from_number(2), "weight": Message.from_number(1)}
        aggregator.receive("update", client, Message({**parts, "ciphertexts": batch.to_bytes()}))
    with pytest.raises(WireFormatError):
        run.authority.answer("update", aggregator.close("update"))
    history = run.model[HISTORY]
    run.run_round()
    assert run.model[HISTORY] != history


def test_a_history_is_read_back_and_damage_is_refused():
    settings = DictPflSettings()
    history = PruningHistory(PARAMETERS, SECRET, settings)
    part = zlib.compress(history.to_bytes())
    assert len(part) < len(history.to_bytes()) / 10
    read = read_history(Message({HISTORY: part}), PARAMETERS, SECRET, settings)
    assert read.to_bytes() == history.to_bytes()
    bomb = zlib.compress(bytes(10_000_000))
    for damaged in (b"", part[:-1], part + b"\0", b"\0" + part, bomb):
        with pytest.raises(WireFormatError):
            read_history(Message({HISTORY: damaged}), PARAMETERS, SECRET, settings)
    with pytest.raises(ParameterError, match="other settings"):
        read_history(Message({HISTORY: part}), PARAMETERS, SECRET, DictPflSettings(decay=0.5))


def test_each_federation_in_one_process_draws_its_own_secret():
    method = make_method("dict-pfl", MethodSettings(), small_plan())
    roles = [EmbeddedRoles(method, initial_model()) for _ in range(2)]
    assert roles[0].shared_secret != roles[1].shared_secret
    # Set-ups go to everybody: they tell of the secret neither as it is nor as text.
    for one in roles:
        data = one.setup.to_bytes()
        assert one.shared_secret not in data
        assert one.shared_secret.hex() not in data.decode()


@pytest.mark.parametrize("opener", ["authority", "clients"])
@pytest.mark.parametrize("secret", [b"", b"too short", "x" * 32, bytearray(32)])
def test_whoever_opens_refuses_a_secret_that_is_none(secret, opener):
    method = make_method("dict-pfl", MethodSettings(), small_plan(opener=opener))

    def client_of_a_new_set_up():
        _, setup = method.authority_setup(initial_model(), shared_secret=secret)
        return method.client_steps(setup, 0, 1, initial_model(), shared_secret=secret)

    with pytest.raises(ParameterError, match=r"at least 16 random bytes|share a secret"):
        client_of_a_new_set_up()


def test_a_client_without_the_secret_enrols_and_no_more_until_it_is_granted():
    method = make_method("dict-pfl", MethodSettings(), small_plan(opener="clients"))
    initial = initial_model()
    authority, setup = method.authority_setup(initial)
    found = []
    for index in range(method.plan.clients):
        enrolling = method.client_steps(setup, index, 1, initial)
        with pytest.raises(PolicyError, match="granted no answers"):
            method.granted_client_steps(setup, index, 1, initial, enrolling)
        with pytest.raises(PolicyError, match="can only enrol"):
            enrolling.begin_round(1, method.plan.clients, authority.newest_model())
        enrolling.enrolled(authority.enrol(index, enrolling.enrolment()))
        client, secret = method.granted_client_steps(setup, index, 1, initial, enrolling)
        assert not client.awaits_secret
        assert client.enrolment() == enrolling.enrolment()
        found.append(secret)
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert found[0] not in setup.to_bytes()


RULE = DictPflSettings(small_percent=50.0, patience_rounds=1, first_probability=0.5)


def copy_of(history: PruningHistory, size: int) -> PruningHistory:
    return PruningHistory.from_bytes(history.to_bytes(), size, SECRET, RULE)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=120)
def test_whatever_gets_lost_every_update_counts_once(size: int, seed: int, data: st.DataObject) -> None:
    """Whole numbers, whose sums are exact: what arrived and what is held are all updates together."""
    random = np.random.default_rng(seed)
    history, older = PruningHistory(size, SECRET, RULE), PruningHistory(size, SECRET, RULE)
    held = [HeldBack(size) for _ in range(CLIENTS)]
    trained, arrived = np.zeros((2, CLIENTS, size), dtype=np.float32)
    for round_number in range(1, data.draw(st.integers(2, 8), label="rounds")):
        active = history.active_mask(round_number)
        uploads = {}
        for client, mine in enumerate(held):
            if data.draw(st.booleans(), label="stays away"):
                continue
            if data.draw(st.booleans(), label="has an older model"):
                mine.begin_round(round_number, older)
                update = random.integers(-99, 100, size).astype(np.float32)
                mine.train(update)
                if data.draw(st.booleans(), label="and leaves"):
                    trained[client] += update
                    continue
            mine.begin_round(round_number, history)
            for _ in range(data.draw(st.integers(1, 2), label="trainings")):
                update = random.integers(-99, 100, size).astype(np.float32)
                mine.train(update)
            trained[client] += update
            if data.draw(st.booleans(), label="begins again"):
                mine.begin_round(round_number, history)
            if data.draw(st.booleans(), label="uploads"):
                uploads[client] = mine.values_at(active)
                mine.mark_uploaded(active)
        if uploads and data.draw(st.booleans(), label="is opened"):
            older = copy_of(history, size)
            history.observe(round_number, np.sum(list(uploads.values()), axis=0))
            for client, values in uploads.items():
                active.scatter_add(values, arrived[client])
                if data.draw(st.booleans(), label="hears the answer"):
                    held[client].settle(history)
    for client, mine in enumerate(held):
        mine.begin_round(99, history)
        np.testing.assert_array_equal(arrived[client] + mine.values_at(Mask.full(size)), trained[client])


def test_held_values_refuse_bad_updates_and_stay_as_they_were() -> None:
    held = HeldBack(3)
    history = PruningHistory(3, SECRET)
    held.begin_round(1, history)
    held.train(np.array([1.0, 2.0, 3e38], dtype=np.float32))
    held.begin_round(2, history)
    for update, error in (
        (np.array([0.0, np.nan, 0.0], dtype=np.float32), RangeError),
        (np.array([1.0, 1.0, 3e38], dtype=np.float32), RangeError),
    ):
        with pytest.raises(error):
            held.train(update)
    np.testing.assert_array_equal(held.values_at(Mask.full(3)), np.array([1.0, 2.0, 3e38], dtype=np.float32))
    with pytest.raises(ParameterError):
        held.values_at(Mask.full(4))


def once(round_number, client, start):
    """Train in the first round alone, every position by 0.1."""
    moved = start.parameters + np.float32(0.1 if round_number == 1 else 0.0)
    return replace(contraction(round_number, client, start), parameters=moved)


def test_an_upload_of_a_round_that_was_given_up_is_sent_again_also_after_rounds_away():
    run = run_of(once, small_percent=0.0)
    with pytest.raises(PolicyError, match="min_clients"):
        run.run_round(dropping=[1, 2, 3])
    run.run_round([1, 2])
    np.testing.assert_allclose(run.parameters, run.initial.parameters + 0.1, rtol=0.0, atol=1e-5)
    run.run_round([0, 3])
    np.testing.assert_allclose(run.parameters, run.initial.parameters + 0.2, rtol=0.0, atol=1e-5)
    assert not any(held_by(client, run.model).any() for client in run.clients)


def test_a_total_that_comes_after_a_later_round_has_begun_is_not_opened(monkeypatch):
    run = run_of(once, small_percent=0.0)
    late = []

    def hold_up(phase, message):
        if phase == "update":
            late.append(message)
            raise PolicyError("held up")
        return type(run.authority).answer(run.authority, phase, message)

    with monkeypatch.context() as held_up:
        held_up.setattr(run.authority, "answer", hold_up)
        with pytest.raises(PolicyError, match="held up"):
            run.run_round()
    run.begin_round(2)
    with pytest.raises(PolicyError, match="round 1 does not run"):
        run.authority.answer("update", late[0])
    run.run_round()
    np.testing.assert_allclose(run.parameters, run.initial.parameters + 0.1, rtol=0.0, atol=1e-5)


def test_an_update_that_does_not_fit_is_forgotten_and_its_client_goes_on():
    wild = {"on": True}

    def train(round_number, client, start):
        update = contraction(round_number, client, start)
        if wild["on"]:
            update.parameters[:] += np.float32(9.0)
        return update

    run = run_of(train)
    with pytest.raises(RangeError):
        run.run_round()
    assert not held_by(run.clients[0]).any()
    with pytest.raises(ParameterError, match="before training has finished"):
        run.clients[0].step("update", ask_count(run, 1))
    wild["on"] = False
    run.train_client(0, 2, CLIENTS, run.begin_round(2))
    assert run.clients[0].step("update", ask_count(run, 2))
