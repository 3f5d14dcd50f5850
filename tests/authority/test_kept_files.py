"""Contents that are too long for a store's tables: whole or as they were before, and of this store alone."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import subprocess
import sys
import threading
import time

import pytest

from shieldfl.authority.private_file import LONGEST_IN_TABLE_BYTES, KeptFiles
from shieldfl.authority.step_store import StepStore
from shieldfl.errors import CapacityError, DataError, PolicyError, WireFormatError

KEY = bytes(32)
SESSION, OTHER = b"a" * 16, b"b" * 16
LONG = LONGEST_IN_TABLE_BYTES + 1


@pytest.fixture
def path(tmp_path):
    with StepStore.create(tmp_path / "store", KEY) as store:
        store.keep(SESSION, {"model": b"1" * LONG, "short": b"s" * (LONG - 1)}, since=store.position)
    return tmp_path / "store"


def files(path):
    return sorted(path.with_name("store-kept").iterdir())


def failing(number):
    """What stands in the place of a call that the disk refuses."""

    def refuse(*arguments, **more):
        raise OSError(number, os.strerror(number))

    return refuse


def kept(path):
    with StepStore(path, KEY) as store:
        return store.kept(SESSION)


def test_a_long_content_is_one_file_that_its_owner_alone_reads(path):
    (file,) = files(path)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    assert b"1111" not in file.read_bytes()
    assert kept(path) == {"model": b"1" * LONG, "short": b"s" * (LONG - 1)}


def test_what_is_replaced_has_no_file_any_more(path):
    (old,) = files(path)
    with StepStore(path, KEY) as store:
        store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
        (new,) = files(path)
        assert new != old
        store.keep(SESSION, {"model": b"3"}, since=store.position)
        assert files(path) == []
    assert kept(path)["model"] == b"3"


def test_a_file_that_could_not_be_deleted_is_deleted_by_the_next_keep(path, monkeypatch):
    with StepStore(path, KEY) as store:
        with monkeypatch.context() as patched:
            patched.setattr("pathlib.Path.unlink", failing(errno.EIO))
            for content in (b"2" * LONG, b"3", b"4"):
                store.keep(SESSION, {"model": content}, since=store.position)
        assert len(files(path)) == 2
        store.keep(SESSION, {"model": b"5"}, since=store.position)
    assert files(path) == []


def test_a_restored_backup_forgets_the_contents_and_their_files_go_with_the_next(path):
    with StepStore(path, KEY, restored=True) as store:
        assert store.kept(SESSION) == {}
        store.keep(OTHER, {"short": b"1"}, since=store.position)
    assert files(path) == []


def test_an_old_copy_that_is_opened_and_refused_deletes_nothing_of_the_newest(path):
    copy = path.read_bytes()
    with StepStore(path, KEY) as store:
        store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
        reached = tuple(store.position)
    newest = path.read_bytes()
    path.write_bytes(copy)
    with pytest.raises(PolicyError, match="old copy"):
        StepStore(path, KEY, at_least=reached)
    # Nor where nobody knew how far the store had come, until something is kept in it.
    with StepStore(path, KEY) as store, pytest.raises(WireFormatError, match="is missing"):
        store.kept(SESSION)
    path.write_bytes(newest)
    assert kept(path)["model"] == b"2" * LONG


def test_its_files_are_found_from_wherever_the_process_has_gone(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with StepStore.create(elsewhere / "store", KEY) as other:
        other.keep(SESSION, {"model": b"other" * LONG}, since=other.position)
    with StepStore("store", KEY) as store:
        monkeypatch.chdir(elsewhere)
        store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
        store._let_go()  # as after an error of the disk
        assert store.kept(SESSION)["model"] == b"2" * LONG
    assert kept(path)["model"] == b"2" * LONG
    assert kept(elsewhere / "store")["model"] == b"other" * LONG
    assert [len(files(one)) for one in (path, elsewhere / "store")] == [1, 1]


def test_a_store_opened_by_a_link_has_the_same_files(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    assert kept(link)["model"] == b"1" * LONG
    with StepStore(link, KEY) as store:
        store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
    assert kept(path)["model"] == b"2" * LONG
    assert not (tmp_path / "link-kept").exists()


def test_a_folder_that_is_a_link_is_not_written_and_nothing_in_it_deleted(path, tmp_path):
    with StepStore.create(tmp_path / "second", KEY) as store:
        (tmp_path / "second-kept").symlink_to(path.with_name("store-kept"))
        store.keep(SESSION, {"short": b"1"}, since=store.position)
        with pytest.raises(DataError, match="is a link"):
            store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
        assert store.kept(SESSION) == {"short": b"1"}
    assert kept(path)["model"] == b"1" * LONG


def test_contents_that_were_kept_are_kept_whether_the_old_files_can_be_deleted_or_not(path, monkeypatch):
    with StepStore(path, KEY) as store:
        with monkeypatch.context() as patched:
            patched.setattr("pathlib.Path.unlink", failing(errno.EIO))
            store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
            patched.setattr("pathlib.Path.iterdir", failing(errno.EIO))
            store.keep(SESSION, {"model": b"3" * LONG}, since=store.position)
        assert len(files(path)) == 3
        store.keep(SESSION, {"short": b"t"}, since=store.position)
        assert len(files(path)) == 1
    assert kept(path) == {"model": b"3" * LONG, "short": b"t"}


def test_a_content_of_two_gib_or_of_an_old_position_is_refused_and_leaves_what_was(path, monkeypatch):
    monkeypatch.setattr("shieldfl.authority.private_file.LONGEST_SEALED_BYTES", 2 * LONG)
    with StepStore(path, KEY) as store:
        with pytest.raises(CapacityError, match="divide the model into parts"):
            store.keep(SESSION, {"first": b"2" * LONG, "model": bytes(2 * LONG + 1)}, since=store.position)
        with pytest.raises(PolicyError, match="has kept newer contents since"):
            store.keep(SESSION, {"model": b"2" * LONG}, since=(0, 0))
        # Nor has the one before it, which was written already, left a file.
        assert len(files(path)) == 1
    assert kept(path) == {"model": b"1" * LONG, "short": b"s" * (LONG - 1)}


def test_a_folder_that_is_not_on_the_disk_yet_is_made_again(tmp_path, monkeypatch):
    path = tmp_path / "store"
    with StepStore.create(path, KEY) as store:
        with monkeypatch.context() as patched:
            patched.setattr("shieldfl.authority.private_file.sync_folder", failing(errno.EIO))
            with pytest.raises(DataError, match="cannot be written"):
                store.keep(SESSION, {"model": b"1" * LONG}, since=store.position)
        assert not path.with_name("store-kept").exists()
        store.keep(SESSION, {"model": b"1" * LONG}, since=store.position)
    assert kept(path)["model"] == b"1" * LONG


def test_a_process_that_ends_before_the_commit_leaves_what_was(path, monkeypatch):
    write = KeptFiles.keep

    def cut_off(self, *content):
        write(self, *content)
        raise KeyboardInterrupt

    monkeypatch.setattr(KeptFiles, "keep", cut_off)
    with StepStore(path, KEY) as store, pytest.raises(KeyboardInterrupt):
        store.keep(SESSION, {"model": b"2" * LONG, "short": b"t"}, since=store.position)
    assert len(files(path)) == 2
    assert kept(path) == {"model": b"1" * LONG, "short": b"s" * (LONG - 1)}
    monkeypatch.undo()
    with StepStore(path, KEY) as store:
        store.keep(OTHER, {"short": b"1"}, since=store.position)
    assert len(files(path)) == 1


@pytest.mark.parametrize("call", ["os.fsync", "os.open"])
def test_a_full_disk_keeps_what_was_and_says_so(path, monkeypatch, call):
    with StepStore(path, KEY) as store:
        since = store.position
        with monkeypatch.context() as patched:
            patched.setattr(call, failing(errno.ENOSPC))
            with pytest.raises(DataError, match="free some space there"):
                store.keep(SESSION, {"model": b"2" * LONG}, since=since)
        assert len(files(path)) == 1
        assert store.kept(SESSION)["model"] == b"1" * LONG
        store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
    assert kept(path)["model"] == b"2" * LONG


def test_what_cannot_be_read_says_so(path, monkeypatch):
    with StepStore(path, KEY) as store, monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.read_bytes", failing(errno.EACCES))
        with pytest.raises(DataError, match="cannot be read"):
            store.kept(SESSION)
    assert kept(path)["model"] == b"1" * LONG


def altered(path):
    (file,) = files(path)
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)


def exchanged(path):
    """Put another content's file, of the same store, in its place."""
    before = set(files(path))
    with StepStore(path, KEY) as store:
        store.keep(OTHER, {"model": b"2" * LONG}, since=store.position)
    (other,) = set(files(path)) - before
    (own,) = before
    own.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (altered, "was altered"),
        (lambda path: files(path)[0].unlink(), "is missing"),
        (exchanged, "was altered"),
        (lambda path: os.truncate(files(path)[0], 5), "was altered"),
    ],
)
def test_a_file_that_is_not_what_was_written_is_found(path, done, words):
    done(path)
    with pytest.raises(WireFormatError, match=words):
        kept(path)


def test_another_store_in_its_place_deletes_nothing_of_its_files(path):
    """A store that was put aside for a moment had lost its contents by then."""
    aside = path.with_name("aside")
    path.rename(aside)
    with StepStore.create(path, KEY) as store:
        store.keep(SESSION, {"model": b"2" * LONG}, since=store.position)
        store.keep(SESSION, {"short": b"1"}, since=store.position)
    path.unlink()
    aside.rename(path)
    assert kept(path) == {"model": b"1" * LONG, "short": b"s" * (LONG - 1)}


def test_threads_do_not_delete_what_each_other_writes(path):
    failures = []

    def work(session):
        try:
            for number in range(20):
                store.keep(session, {"one": bytes([number]) * LONG}, since=store.position)
                assert store.kept(session) == {"one": bytes([number]) * LONG}
        except BaseException as error:
            failures.append(error)

    with StepStore(path, KEY) as store:
        threads = [threading.Thread(target=work, args=(bytes([number]) * 16,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert len(files(path)) == 5


def test_what_it_has_not_written_stays(path):
    folder = path.with_name("store-kept")
    (folder / "notes").write_text("mine")
    (folder / ("a" * 32)).write_text("of no store")
    with StepStore(path, KEY) as store:
        store.keep(OTHER, {"short": b"1"}, since=store.position)
    assert {"notes", "a" * 32} <= {one.name for one in folder.iterdir()}


KILLED = """
import sys
from shieldfl.authority.role_state import LONGEST_SEALED_BYTES
from shieldfl.authority.step_store import StepStore
with StepStore(sys.argv[1], bytes(32)) as store:
    for number in range(int(sys.argv[2]), 10**6):
        content = number.to_bytes(8) * 20_000
        store.keep(b"a" * 16, {"one": content, "two": content}, since=store.position)
        print(number, flush=True)
"""


def test_a_process_that_is_killed_at_any_moment_has_kept_all_it_said_and_nothing_by_halves(tmp_path):
    path, newest = tmp_path / "store", -1
    StepStore.create(path, KEY).close()
    for _ in range(3):
        command = [sys.executable, "-c", KILLED, str(path), str(newest + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            said = [process.stdout.readline()]
            time.sleep(secrets.randbelow(100) / 1000)
            process.send_signal(signal.SIGKILL)
            said += process.stdout.read().splitlines()
        found = kept(path)
        assert found["one"] == found["two"]
        number = int.from_bytes(found["one"][:8])
        assert found["one"] == number.to_bytes(8) * 20_000
        # The one after what was said may have been written, and killed before it could be said.
        assert number - int(said[-1]) in (0, 1)
        assert number > newest
        with StepStore(path, KEY) as store:
            store.keep(SESSION, {"short": b"1"}, since=store.position)
        assert len(files(path)) == 2
        newest = number
