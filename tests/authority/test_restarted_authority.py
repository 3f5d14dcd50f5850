"""A key authority that ends and goes on in another process, from its key file and its store, or from a backup of it."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import PARAMETERS, Session, updates
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.key_authority import SumKeyAuthority, session_key
from shieldfl.encryption import kahe
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError

PASSPHRASE = "correct horse"


class Files:
    """An authority's two files, and the session that it was made with."""

    def __init__(self, folder):
        self.store, self.key = folder / "store", folder / "key"
        self.session = Session(store=self.store, weight_bounds=(0.25, 0.5), most_values=1000)
        self.session.authority.save(self.key, PASSPHRASE)

    def load(self, **options):
        return sf.KeyAuthority.load(self.key, PASSPHRASE, store=self.store, **options)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_a_restarted_authority_goes_on_with_its_session(files):
    """The same request gets the same bytes, overlapping lists nothing, late clients a grant, and rounds go on."""
    session, authority = files.session, files.session.authority
    frames = [session.frame(client) for client in range(4)]
    total = session.total(frames=frames)
    answer, grant = authority.sum_key(total.request()), authority.grant("clinic-2")
    late, request = kahe.ClientKey.request(authority.public_key, "late")
    position = authority.position
    authority.close()
    with pytest.raises(PolicyError, match="was closed"):
        authority.sum_key(total.request())
    with files.load(at_least=position) as again:
        assert again.public_key == authority.public_key
        assert (again.min_clients, again.most_values, again.weight_bounds) == (3, 1000, (0.25, 0.5))
        assert again.sum_key(total.request()) == answer
        assert again.grant("clinic-2") == grant
        with pytest.raises(PolicyError, match="with another list or total"):
            again.sum_key(session.total(frames=frames[:3]).request())
        with pytest.raises(PolicyError, match="was enrolled in the session before"):
            again.accept(kahe.ClientKey.request(authority.public_key, "clinic-1")[1])
        assert again.accept(request) == "late"
        again.revoke("clinic-1")
    session.keys[0] = late
    with files.load() as again:
        late.take_grant(again.grant("late"))
        with pytest.raises(PolicyError, match="not enrolled"):
            again.grant("clinic-1")
        total = session.total(round=2)
        sums = kahe.open(total, again.sum_key(total.request()), late)
        np.testing.assert_array_equal(sums, updates().astype(np.float64).sum(axis=0))


def test_one_process_at_a_time_and_its_own_files_alone(files, tmp_path):
    with pytest.raises(PolicyError, match="held by another process"):
        files.load()
    files.session.authority.close()
    with pytest.raises(KeyMismatchError, match="wrong passphrase"):
        sf.KeyAuthority.load(files.key, "another", store=files.store)
    with pytest.raises(ParameterError, match="pass its path as store"):
        sf.KeyAuthority.load(files.key, PASSPHRASE)
    other = tmp_path / "other"
    other.mkdir()
    others = Files(other)
    others.session.authority.close()
    with pytest.raises(KeyMismatchError, match="store of another authority"):
        sf.KeyAuthority.load(files.key, PASSPHRASE, store=others.store)
    with pytest.raises(PolicyError, match="exists: open it"):
        sf.KeyAuthority(PARAMETERS, store=files.store)
    for wrong in ({"weight_bounds": (0.0, 1.0)}, {"threads": -1}, {"most_values": -1}):
        with pytest.raises(ParameterError):
            sf.KeyAuthority(PARAMETERS, store=tmp_path / "none", **wrong)
    assert not (tmp_path / "none").exists()
    sf.KeyAuthority(sf.ckks.Parameters(), 1).save(tmp_path / "ckks", PASSPHRASE)
    with pytest.raises(ParameterError, match="has no store: pass none"):
        sf.KeyAuthority.load(tmp_path / "ckks", PASSPHRASE, store=files.store)
    with pytest.raises(PolicyError, match="memory ends with the process"):
        sf.KeyAuthority(PARAMETERS).save(tmp_path / "memory", PASSPHRASE)
    files.load().close()


def test_no_secret_of_the_authority_is_readable_in_its_files(files):
    owner = files.session.authority._owner
    secrets = [
        owner.enrolment_key,
        owner._opening_root,
        owner.store_key,
        owner.signing_key.private_bytes_raw(),
    ]
    files.session.authority.close()
    content = files.store.read_bytes() + files.key.read_bytes()
    assert not [secret for secret in secrets if secret in content]


def stolen(files):
    """What whoever steals both files, and the passphrase, makes of them: the authority's secrets."""
    with files.load() as authority:
        return authority._owner


def test_recorded_requests_tell_nothing_once_enrolment_has_ended(files, tmp_path):
    """Before, whoever recorded one and later steals the files has what the client shares, and all of its rounds."""
    authority = files.session.authority
    late, request = kahe.ClientKey.request(authority.public_key, "late")
    authority.accept(request)
    late.advance_to(5)
    authority.close()
    owner = stolen(files)
    _, secret = owner.unseal(request, authority.public_key.id)
    key = kahe.ClientKey.of_secret(authority.public_key, "late", secret)
    key.advance_to(5)
    assert key.export_secret() == late.export_secret()

    with files.load() as ending:
        erased = ending._owner.enrolment_key
        ending.end_enrolment()
        with pytest.raises(PolicyError, match="enrolment has ended"):
            ending.accept(kahe.ClientKey.request(authority.public_key, "later")[1])
        with pytest.raises(PolicyError, match="enrolment has ended"):
            ending.enrol("in this process")
        assert ending._owner.enrolment_key is None
        total = files.session.total()
        answer = ending.sum_key(total.request())
    assert erased is not None
    owner = stolen(files)
    assert owner.enrolment_key is None
    with pytest.raises(PolicyError, match="enrolment has ended"):
        owner.unseal(request, authority.public_key.id)
    # All that is left and can be unsealed: not in what the store keeps, nor in what the key file holds.
    assert erased not in owner.export()
    with pytest.raises(ParameterError, match="opens no requests"):
        owner.take_enrolment_key(bytes(96))
    with files.load() as going_on:
        assert going_on.sum_key(total.request()) == answer
        with pytest.raises(PolicyError, match="enrolment has ended"):
            going_on.accept(request)


def test_a_restored_backup_begins_an_epoch_in_which_nothing_of_before_is_answered(files, tmp_path):
    session, authority = files.session, files.session.authority
    backup = tmp_path / "backup"
    authority.close()
    shutil.copy(files.store, backup)
    recorded = [session.frame(client) for client in range(4)]
    enrolments = [kahe.ClientKey.request(authority.public_key, f"late {number}") for number in range(3)]
    with files.load() as going_on:
        for _, request in enrolments:
            going_on.accept(request)
        total = session.total(frames=recorded)
        going_on.sum_key(total.request())
        position = going_on.position
    shutil.copy(backup, files.store)
    with pytest.raises(PolicyError, match="old copy"):
        files.load(at_least=position)
    restored = files.load(at_least=position, restored=True)
    assert (restored.position.epoch, restored.public_key._core.epoch) == (1, 1)
    assert restored.public_key != authority.public_key
    assert restored.public_key.identity == authority.public_key.identity
    with pytest.raises(KeyMismatchError, match="another session"):
        restored.sum_key(session.total(frames=recorded[:3]).request())
    for _, request in enrolments:
        with pytest.raises(KeyMismatchError, match="for another session"):
            restored.accept(request)
    with pytest.raises(PolicyError, match="not enrolled"):
        restored.grant("clinic-1")
    # The key file is still that of the session before, which says so.
    restored.close()
    with pytest.raises(PolicyError, match="begun in epoch 0, and a backup of the store was restored since"):
        files.load()
    restored = files.load(restored=True)
    assert restored.public_key._core.epoch == 2
    restored.save(files.key, PASSPHRASE)
    keys = [restored.enrol(name) for name in ("clinic-1", "clinic-2", "clinic-3")]
    restored.close()
    with files.load() as going_on:
        assert going_on.public_key == restored.public_key
        session.authority, session.keys = going_on, keys
        sums = going_on.open(session.total((0, 1, 2)))
        np.testing.assert_array_equal(sums, updates()[:3].astype(np.float64).sum(axis=0))


def test_a_session_that_a_restored_store_never_heard_of_is_not_begun_again_in_it(tmp_path):
    """A backup from before it began: clients' recorded requests would enrol them again, and be answered again."""
    owner, path, backup = AuthoritySecrets(), tmp_path / "store", tmp_path / "backup"
    AuthorityStore.create(path, owner.store_key, owner.store_id).close()
    shutil.copy(path, backup)
    with AuthorityStore(path, owner.store_key, owner.store_id) as store:
        session = Session(owner=owner, store=store)
        answered = session.total()
        session.authority.sum_key(answered.request())
    public_key = session.authority.public_key
    with AuthorityStore(backup, owner.store_key, owner.store_id, restored=True) as store:
        position = store.position
        with pytest.raises(PolicyError, match="not begun in epoch 1"):
            SumKeyAuthority(PARAMETERS, owner=owner, store=store, public_key=public_key)
        assert not store.has_session(public_key.id)
        assert store.position.epoch == position.epoch


def test_what_a_key_file_can_hold_else_is_refused(files, monkeypatch):
    files.session.authority.close()
    with monkeypatch.context() as patch:
        patch.setattr(AuthoritySecrets, "export", lambda self: b"short")
        other = SumKeyAuthority(PARAMETERS, store=files.store.with_name("other"))
        other.save(files.key, PASSPHRASE)
        other.close()
    with pytest.raises(WireFormatError, match="no secrets of an authority"):
        files.load()


def test_no_session_is_begun_in_a_store_that_has_not_heard_of_it(files, tmp_path):
    """A backup that is restored twice has one epoch twice: the session's key file finds no memory of it there."""
    files.session.authority.close()
    backup = tmp_path / "backup"
    shutil.copy(files.store, backup)
    with files.load(restored=True) as authority:
        newest = tmp_path / "newest"
        authority.save(newest, PASSPHRASE)
    shutil.copy(backup, files.store)
    files.load(restored=True).close()
    with pytest.raises(PolicyError, match="does not have the session"):
        sf.KeyAuthority.load(newest, PASSPHRASE, store=files.store)


def test_an_authority_that_is_refused_leaves_no_file(tmp_path):
    """One would be sealed under keys that nobody has any more, and the next try be told that it exists."""
    public_key = session_key(PARAMETERS, AuthoritySecrets().identity, 2)
    with pytest.raises(ParameterError, match="has other parameters, or other key authorities"):
        SumKeyAuthority(PARAMETERS, 2, store=tmp_path / "store", public_key=public_key)
    assert not list(tmp_path.iterdir())


def test_a_key_file_is_in_its_place_for_good_before_saving_ends(files, tmp_path, monkeypatch):
    """It is written once, and has the store's key: after a power failure it must not be the one that is missing."""
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), (tmp_path / "saved").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    files.session.authority.save(tmp_path / "saved", PASSPHRASE)
    assert synced[-1] == (str(tmp_path), True)


def test_a_passphrase_that_cannot_be_encoded_is_refused(files, tmp_path):
    with pytest.raises(ParameterError, match="characters that cannot be encoded"):
        files.session.authority.save(tmp_path / "saved", "\ud800")
    assert not (tmp_path / "saved").exists()
