"""The memory of a client: one frame for each session, round, purpose and part, whatever ends the process."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import shieldfl as sf
from authority.client_store_cases import CLIENT, KEY, PUBLIC_KEY, SIZE, begun, encrypt, kept, opened, update
from authority.enrolled_session import PARAMETERS
from authority.store_cases import parts_left, sealed_rows
from authority.test_store_faults import attempts, check_done_whole_or_not_at_all, killed_at_random
from encryption.child_process import run_python
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.client_store import ClientStore
from shieldfl.authority.key_authority import SumKeyAuthority, session_key
from shieldfl.authority.store import Position, StoreKeys
from shieldfl.encryption import kahe, pads
from shieldfl.encryption.enrolment import AuthorityGroup
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, RangeError


@pytest.fixture
def store(path):
    with begun(path) as store:
        yield store


def test_a_key_that_was_enrolled_elsewhere_takes_no_grant(store):
    with pytest.raises(PolicyError, match="enrolled elsewhere"):
        store.take_grant(PUBLIC_KEY, bytes(60))


@pytest.mark.parametrize(
    ("scheme", "parameters", "count"),
    [(kahe, PARAMETERS, 1), (kahe, PARAMETERS, 2), (pads, pads.Parameters(max_clients=8), 2)],
)
def test_clients_that_are_new_processes_each_time_go_through_a_session(tmp_path, scheme, parameters, count):
    """Each step opens the store anew: enrolment, the answers of one or two authorities, two rounds, what opens them."""
    owners = [AuthoritySecrets() for _ in range(count)]
    group = AuthorityGroup(tuple(one.identity for one in owners)) if count > 1 else owners[0].identity
    public_key = session_key(parameters, group, 2)
    authorities = [SumKeyAuthority(parameters, 2, owner=owner, public_key=public_key) for owner in owners]
    clients = {client: tmp_path / f"client {client}" for client in ("clinic-0", 1)}
    for client, path in clients.items():
        with ClientStore.create(path, KEY) as store, pytest.raises(PolicyError, match="enrol first"):
            store.encrypt(public_key, update(), round=1)
        with opened(path) as store:
            pinned = type(public_key).from_bytes(public_key.to_bytes())
            requests = store.enrol(pinned, client, group)
        for authority, request in zip(authorities[::-1], requests[::-1], strict=True):
            with opened(path) as store:
                assert store.enrol(public_key, client) == requests  # they were lost on the way
                with pytest.raises(PolicyError, match="granted no answers"):
                    store.opening_keys(public_key)
            authority.accept(request)
            with opened(path) as store:
                with pytest.raises(KeyMismatchError, match="another client or session"):
                    store.take_grant(public_key, bytes(60))
                store.take_grant(public_key, authority.grant(client))
                store.take_grant(public_key, authority.grant(client))
        with opened(path) as store, pytest.raises(PolicyError, match="has a key in this store"):
            store.enrol(public_key, client)
    for round_number in (1, 3):
        aggregator = scheme.Aggregator(public_key, 1, round=round_number)
        updates = [update(10 * round_number + number) for number in range(2)]
        for path, values in zip(clients.values(), updates, strict=True):
            with opened(path) as store:
                aggregator.add(store.encrypt(public_key, values, round=round_number))
        total = aggregator.total()
        answers = [authority.sum_key(total.request()) for authority in authorities]
        for path in clients.values():
            with opened(path) as store:
                sums = store.open(public_key, total, answers if count > 1 else answers[0])
                if count > 1:
                    with pytest.raises(ParameterError, match="each of which has to answer"):
                        store.open(public_key, total, answers[:1])
            np.testing.assert_array_equal(sums, np.sum(updates, axis=0, dtype=np.float64))


def test_the_same_values_get_the_same_bytes_and_no_others_a_frame(store, path):
    frame = encrypt(store, 3)
    before = store.position
    mask = sf.Mask.from_indices(np.arange(20), SIZE)

    def check(store):
        assert encrypt(store, 3) == kept(store, 3) == frame
        for other in (
            lambda: encrypt(store, 3, number=4),
            lambda: encrypt(store, 3, weight=0.5),
            lambda: encrypt(store, 3, clip=True),
            lambda: encrypt(store, 3, mask=mask),
            lambda: store.encrypt(PUBLIC_KEY, update(3).astype(np.float64), round=3),
        ):
            with pytest.raises(PolicyError, match=r"from another update, .*, and may have been sent"):
                other()

    check(store)
    assert store.position == before
    store.close()
    with opened(path, at_least=before) as again:
        check(again)
    done = run_python(
        "-c",
        "from pathlib import Path; from authority.client_store_cases import encrypt, opened\n"
        f"print(encrypt(opened(Path({str(path)!r})), 3).hex())",
    )
    assert (done.stdout.strip(), done.stderr) == (frame.hex(), "")


def test_other_purposes_and_parts_are_other_frames_of_the_round(store):
    frames = {
        encrypt(store, 1),
        encrypt(store, 1, purpose="votes"),
        encrypt(store, 1, part=1),
        encrypt(store, 1, purpose="votes", part=1),
    }
    assert len(frames) == 4
    assert kept(store, 1, purpose="votes", part=1) in frames
    assert kept(store, 1, part=2) is None
    with pytest.raises(ParameterError):
        encrypt(store, 1, part=2**32)
    with pytest.raises(ParameterError):
        encrypt(store, 1, part=-1)


def test_rounds_and_keys_go_up_alone(store, path):
    encrypt(store, 5)
    for earlier in (0, 4):
        with pytest.raises(PolicyError, match=f"round {earlier} is over"):
            encrypt(store, earlier)
    with pytest.raises(PolicyError, match="round"):
        encrypt(store, 5 + 2**16 + 1)
    assert store.round(PUBLIC_KEY) == 5
    store.close_round(PUBLIC_KEY, 4)
    assert store.round(PUBLIC_KEY) == 5
    frame = kept(store, 5)
    store.close_round(PUBLIC_KEY, 5)
    store.close()
    with opened(path) as again:
        assert again.round(PUBLIC_KEY) == 6
        assert kept(again, 5) == encrypt(again, 5) == frame  # what was made is sent again
        with pytest.raises(PolicyError, match="round 5 is over"):
            encrypt(again, 5, part=1)
        encrypt(again, 9)
        assert kept(again, 5) is None
        with pytest.raises(PolicyError, match="round 5 is over"):
            encrypt(again, 5)


def test_an_update_is_not_encrypted_in_a_second_round(store):
    """S over all, then S over all but one, of the same updates: the difference is that one's."""
    encrypt(store, 1, number=0)
    with pytest.raises(PolicyError, match="were encrypted in another round"):
        encrypt(store, 2, number=0)
    assert store.round(PUBLIC_KEY) == 1
    encrypt(store, 2, number=0, repeats=True)
    encrypt(store, 3, number=1)


def test_nor_is_it_in_another_type_sign_of_zero_purpose_or_part(store):
    values = update(0)
    values[7] = 0.0
    turned = values.copy()
    turned[7] = -0.0
    store.encrypt(PUBLIC_KEY, values, round=1)
    store.encrypt(PUBLIC_KEY, values, round=1, part=1)  # of one round, and in one sum
    store.encrypt(PUBLIC_KEY, values, round=1, purpose="votes")
    between = values.astype(np.float64) * (1 + 2**-40)
    for same in (values, turned, values.astype(np.float64), between):
        for options in ({}, {"part": 1}, {"part": 5}, {"purpose": "votes"}, {"weight": 0.5}):
            with pytest.raises(PolicyError, match="were encrypted in another round"):
                store.encrypt(PUBLIC_KEY, same, round=2, **options)
    # In its own round a frame is still of these values alone, to the last bit that may count.
    with pytest.raises(PolicyError, match="from another update"):
        store.encrypt(PUBLIC_KEY, between, round=1)
    beyond = np.full(SIZE, 1e300)
    with pytest.raises(RangeError):
        store.encrypt(PUBLIC_KEY, beyond, round=2)
    assert store.round(PUBLIC_KEY) == 1
    other = values + np.float32(1 / 1024)
    assert store.encrypt(PUBLIC_KEY, other, round=2) == kept(store, 2)


def test_the_masked_values_are_what_counts(store):
    mask = sf.Mask.from_indices(np.arange(20), SIZE)
    first, other = update(1), update(1)
    other[200:] += 1
    store.encrypt(PUBLIC_KEY, first, mask, round=1)
    with pytest.raises(PolicyError, match="were encrypted in another round"):
        store.encrypt(PUBLIC_KEY, other, mask, round=2)


def test_what_cannot_be_encrypted_moves_nothing(store):
    before = store.position
    wrong = update()
    wrong[3] = np.nan
    with pytest.raises(RangeError):
        store.encrypt(PUBLIC_KEY, wrong, round=4)
    with pytest.raises(ParameterError, match="expected a PublicKey of a session, got PublicKey of ckks"):
        store.enrol(sf.KeyAuthority(sf.ckks.Parameters()).public_key, 0)
    for options in (
        {"round": 4, "mask": sf.Mask.full(SIZE + 1)},
        *({"round": wrong} for wrong in (-1, 1.5, 2**63)),
        {"round": 1, "weight": "text"},
        {"round": 1, "mask": 5},
        {"round": 1, "clip": "text"},
        {"round": 1, "part": "text"},
    ):
        with pytest.raises(ParameterError):
            store.encrypt(PUBLIC_KEY, update(), **options)
    for purpose in ("", "\ud800", "x" * 256, None, 5, b"update"):
        for call in (store.frame, lambda *key, **options: store.encrypt(*key, update(), **options)):
            with pytest.raises(ParameterError, match="purpose must be a text of 1 to 255 bytes"):
                call(PUBLIC_KEY, round=1, purpose=purpose)
    for call in (store.frame, store.close_round):
        with pytest.raises(ParameterError, match="below 2"):
            call(PUBLIC_KEY, round=2**63)
    assert (store.position, store.round(PUBLIC_KEY)) == (before, 0)


def test_keys_are_overwritten_as_they_go_on(store, path):
    encrypt(store, 1)
    store.close()
    then = sealed_rows(path, "kind IN ('key', 'frame')")
    with opened(path) as again:
        encrypt(again, 2)
    parts, left = parts_left(then, path)
    assert parts > 50
    assert left == 0


def test_a_store_is_its_clients_and_closed_for_good(store, path):
    with pytest.raises(PolicyError, match=r"opened twice in this one.*No frame was made"):
        opened(path)
    store.close()
    with pytest.raises(KeyMismatchError, match="another key"):
        ClientStore(path, bytes(32))
    with pytest.raises(KeyMismatchError, match="of another authority, or of a client"):
        AuthorityStore(path, KEY, bytes(32))
    with pytest.raises(PolicyError, match="was closed: open it again"):
        encrypt(store, 1)


def test_old_copies_are_told_and_restored_ones_end_the_sessions(path, tmp_path):
    backup = tmp_path / "backup"
    with begun(path) as store:
        encrypt(store, 1)
    shutil.copy(path, backup)
    with opened(path) as store:
        encrypt(store, 2)
        newest = store.position
    with pytest.raises(PolicyError, match="old copy of the store"):
        opened(backup, at_least=newest)
    with opened(backup, at_least=newest, restored=True) as restored:
        assert restored.position == Position(1, restored.position.rows)
        for what in (
            lambda: encrypt(restored, 3),
            lambda: restored.close_round(PUBLIC_KEY, 3),
            lambda: restored.opening_keys(PUBLIC_KEY),
            lambda: restored.add_key(kahe.ClientKey(PUBLIC_KEY, CLIENT, bytes(32))),
        ):
            with pytest.raises(PolicyError, match="restored"):
                what()
        assert kept(restored, 1) is None
        other = kahe.PublicKey.of_session(PARAMETERS, bytes(reversed(range(32))), bytes(16))
        restored.add_key(kahe.ClientKey(other, CLIENT, bytes(32)))
        frame = restored.encrypt(other, update(), round=1)
    with opened(backup) as again:
        assert again.encrypt(other, update(), round=1) == frame
    with closing(sqlite3.connect(backup)) as database:
        assert database.execute("SELECT count(*) FROM records WHERE kind = 'key'").fetchone() == (1,)


def test_a_frame_and_the_key_that_has_gone_on_are_kept_together_or_neither_is(store, monkeypatch):
    encrypt(store, 1)
    before, seal = (store.position, store.round(PUBLIC_KEY), kept(store, 1)), StoreKeys.seal
    for failing in range(1, 6):
        left = [failing]

        def fails(*arguments, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise MemoryError
            return seal(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(StoreKeys, "seal", fails)
            if failing == 5:  # frame, values, key and head were sealed
                assert encrypt(store, 2)
                break
            with pytest.raises(MemoryError):
                encrypt(store, 2)
        assert (store.position, store.round(PUBLIC_KEY), kept(store, 1)) == before
        assert kept(store, 2) is None
    assert store.round(PUBLIC_KEY) == 2


HERE = Path(__file__).parent

SOME = [("encrypt", "exit before"), ("encrypt", "full"), ("close", "exit halfway")]
OTHERS = [
    pytest.param(operation, kind, marks=pytest.mark.slow)
    for operation in ("encrypt", "close", "enrol", "open", "create")
    for kind in ("exit before", "exit halfway", "full", "broken")
    if (operation, kind) not in SOME
]


@pytest.mark.parametrize(("operation", "kind"), [*SOME, *OTHERS])
def test_whichever_call_of_a_transaction_fails_it_is_done_whole_or_not_at_all(
    faults, folder, operation, kind
):
    """What is there afterwards is checked attempt by attempt, in ``faulty_client_store.py``."""
    check_done_whole_or_not_at_all(
        attempts(HERE / "faulty_client_store.py", faults, folder, operation, kind), operation, kind
    )


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_frames_of_a_process_that_is_killed_are_made_once(folder, kills):
    path = folder / "store"
    begun(path).close()
    sent = killed_at_random(HERE / "killed_client_store.py", path, kills, random.Random(kills))
    assert len(sent) > kills / 10  # how many depends on how busy the machine is
    with opened(path) as store:
        newest = store.round(PUBLIC_KEY)
        # All but, perhaps, the newest have left, each of them once.
        assert sent.keys() | {newest} == set(range(1, newest + 1))
        assert hashlib.sha256(kept(store, newest)).hexdigest() == sent.get(
            newest, hashlib.sha256(encrypt(store, newest)).hexdigest()
        )
        for number in (newest, newest - 1):
            with pytest.raises(PolicyError, match=r"another update|is over"):
                encrypt(store, number, number=10**6)
