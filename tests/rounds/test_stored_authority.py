"""A federation's authority whose state is in a file: from there it continues, and answers nobody twice."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from methods.method_conformance import SteppedRun, assert_same_models
from methods.stored_run import KEY, restart, run_in_file
from methods.variants import labelled, opened_by_aggregator, opened_by_clients
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message
from shieldfl.errors import DataError, KeyMismatchError, PolicyError, ShieldError, WireFormatError


def variant_of(label, opener):
    change = {"clients": opened_by_clients, "aggregator": opened_by_aggregator}.get(opener)
    return replace(labelled(label), opener="authority") if change is None else change([labelled(label)])[0]


# Who opens; one purpose, or two; keys that clients share, or pairs.
@pytest.mark.parametrize(
    ("label", "opener"),
    [
        ("full-he", "clients"),
        ("full-he", "aggregator"),
        ("full-he", "authority"),
        ("mask-crypt", "authority"),
        ("selective-shield/encrypted", "clients"),
        ("full-he/ckks", "authority"),
    ],
)
def test_a_restart_after_every_round_changes_nothing(tmp_path, label, opener):
    path, variant = tmp_path / "store", variant_of(label, opener)
    stored, plain = run_in_file(path, variant), SteppedRun(variant)
    for participants in ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3]):
        for run in (stored, plain):
            run.run_round(participants)
        restart(stored, path)
    assert_same_models(stored, plain)


def test_a_state_too_long_for_the_table_is_a_file_that_changes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("shieldfl.authority.private_file.LONGEST_IN_TABLE_BYTES", 100)
    path = tmp_path / "store"
    run = run_in_file(path, variant_of("full-he", "authority"))
    names = set()
    for _ in range(3):
        run.run_round()
        kept = [one.name for one in (tmp_path / "store-kept").iterdir()]
        assert len(kept) <= 2  # the newest, and the one before, which a failed commit would need
        names |= {*kept}
        restart(run, path)
    assert len(names) > 3
    run.authority.close()
    for one in (tmp_path / "store-kept").iterdir():
        one.write_bytes(one.read_bytes()[:-1] + b"x")
    with pytest.raises(WireFormatError, match="was altered, or belongs to another copy"):
        restart(run, path)


def test_it_takes_no_state_but_that_of_its_store(tmp_path):
    run = run_in_file(tmp_path / "store", variant_of("full-he", "clients"))
    old = run.authority.state(KEY)
    run.run_round()
    with pytest.raises(PolicyError, match="is in its store"):
        run.authority.restore(old, KEY)
    with pytest.raises(WireFormatError):
        run.new_authority().restore(old, KEY)


def test_another_key_another_federation_and_a_new_file_have_no_state_for_it(tmp_path):
    path, other, fresh = tmp_path / "store", tmp_path / "other", tmp_path / "fresh"
    run, others = (run_in_file(one, variant_of("full-he", "clients")) for one in (path, other))
    for one in (run, others):
        one.run_round()
        one.authority.close()
    AuthorityStore.create(fresh, KEY).close()

    def resumed(path, key=KEY, **options):
        with AuthorityStore(path, key, **options) as store:
            run.method.authority_steps(run.setup, run.initial, threads=1, store=store)

    with pytest.raises(KeyMismatchError, match="another key"):
        resumed(path, b"k" * 32)
    with pytest.raises(KeyMismatchError, match="another session"):
        resumed(other)
    with pytest.raises(PolicyError, match="it is new, or was restored"):
        resumed(fresh)
    resumed(path)
    with pytest.raises(PolicyError, match="it is new, or was restored"):
        resumed(path, restored=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError("the disk"), MemoryError])
def test_a_step_that_is_cut_off_between_two_purposes_has_not_begun(monkeypatch, tmp_path, error):
    path = tmp_path / "store"
    run = run_in_file(path, labelled("selective-shield/encrypted"))
    run.run_round()

    def ended():
        return {one.newest_closed_round for one in run.authority.keys._authorities.values()}

    *_, last = run.authority.keys._authorities.values()

    def ends(number):
        raise error

    monkeypatch.setattr(last, "close_round", ends)
    before = ended()
    with pytest.raises(error if isinstance(error, type) else DataError):
        run.authority.begin_round(2)
    assert ended() == before
    run.run_round()
    assert ended() == {1}
    restart(run, path)
    run.run_round()


@pytest.mark.parametrize("label", ["full-he", "full-he/ckks"])
def test_a_store_is_of_one_federation_alone(tmp_path, label):
    path = tmp_path / "store"
    run = run_in_file(path, labelled(label))
    store = run.authority._store
    with pytest.raises(PolicyError, match="the store is not new"):
        run.method.authority_setup(run.initial, store=store)
    run.run_round()


def test_a_set_up_whose_state_cannot_be_kept_leaves_the_store_new(tmp_path, monkeypatch):
    run = SteppedRun(labelled("full-he"))
    with AuthorityStore.create(tmp_path / "store", KEY) as store:
        with monkeypatch.context() as patch:
            patch.setattr(AuthorityStore, "keep_state", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.method.authority_setup(run.initial, store=store)
        assert store.position == (0, 0)
        authority, setup = run.method.authority_setup(run.initial, store=store)
        client = run.method.client_steps(setup, 0, 1, run.initial)
        authority.enrol(0, client.enrolment())


def test_a_store_that_fails_in_a_step_that_opens_says_what_was_refused(tmp_path, monkeypatch):
    run = run_in_file(tmp_path / "store", variant_of("full-he", "authority"))
    run.authority.begin_round(1)

    def fails(*_):
        raise DataError("failed before")

    monkeypatch.setattr(AuthorityStore, "keep_state", fails)
    with pytest.raises(DataError, match="failed before") as failed:
        run.authority.answer("update", Message({"round": Message.from_number(1)}))
    assert isinstance(failed.value.__context__, WireFormatError)


def test_a_refused_step_keeps_no_message(tmp_path):
    run = run_in_file(tmp_path / "store", variant_of("full-he", "authority"))
    gc.collect()
    gc.disable()
    try:
        message = Message({"round": Message.from_number(1)})
        kept = weakref.ref(message)
        with pytest.raises(ShieldError):
            run.authority.answer("update", message)
        del message
        assert kept() is None
    finally:
        gc.enable()


def test_a_state_that_is_put_back_while_the_store_is_held_is_refused(tmp_path):
    run = run_in_file(tmp_path / "store", variant_of("full-he", "clients"))
    connection = run.authority._store._connection
    select = "SELECT number, sealed FROM records WHERE kind = 'state'"
    before = connection.execute(select).fetchone()
    run.run_round()
    connection.execute("UPDATE records SET number = ?, sealed = ? WHERE kind = 'state'", before)
    for _ in range(2):
        with pytest.raises(WireFormatError, match="the record 'state' is an earlier one"):
            run.authority.begin_round(2)
