"""Files that are written as a whole, and folders that do not stay behind empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shieldfl.lab.report.output_files import LineFile, kept_folder, write_whole


def test_a_file_is_replaced_and_keeps_its_mode_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    write_whole(path, "old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "ε".encode())
    assert path.read_text(encoding="utf-8") == "ε"
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_ends_early_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")

    def fail(self: Path, data: bytes) -> int:
        self.open("wb").close()
        raise error

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(type(error)) as raised:
        write_whole(path, "new")
    if isinstance(raised.value, OSError):
        assert raised.value.filename == str(path)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_regular_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "figures")
        assert os.read(reader, 100) == b"figures"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_folder_stays_only_where_something_is_in_it(tmp_path: Path) -> None:
    def interrupted(name: str, keep: bool) -> None:
        with kept_folder(tmp_path / name):
            if keep:
                (tmp_path / name / "file").write_text("")
            raise KeyboardInterrupt

    for name, keep in (("a/b/c", False), ("d/e", True)):
        with pytest.raises(KeyboardInterrupt):
            interrupted(name, keep)
    (tmp_path / "mine").mkdir()
    with kept_folder(tmp_path / "mine"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "mine"]


def test_lines_are_there_in_their_order(tmp_path):
    file = LineFile(tmp_path / "lines")
    assert file.whole_lines() == []
    for line in ("first", "sécond", ""):
        file.add(line)
    assert file.whole_lines() == [b"first", "sécond".encode(), b""]


def test_a_line_that_was_cut_off_is_dropped_and_others_go_behind_the_whole_ones(tmp_path):
    file = LineFile(tmp_path / "lines")
    file.add("first")
    with file.path.open("ab") as opened:
        opened.write(b'{"cut')
    assert file.whole_lines() == [b"first"]
    file.add("second")
    assert file.path.read_bytes() == b"first\nsecond\n"
