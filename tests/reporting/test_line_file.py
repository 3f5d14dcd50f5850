"""Lines that were written as a whole stay; one that was cut off goes."""

from __future__ import annotations

from shieldfl.reporting.line_file import LineFile


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
