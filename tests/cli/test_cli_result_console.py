"""Results keep to the width that there is and lose nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("rich")
from rich.box import SIMPLE_HEAD
from rich.table import Table

from shieldfl.cli.result_console import result_console

HEADS = [f"column {number}" for number in range(30)]


def wide_table() -> Table:
    table = Table("key", box=SIMPLE_HEAD, pad_edge=False)
    for head in HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for row in ("first", "second"):
        table.add_row(row, *(f"{row[0]}{number}" for number in range(30)))
    return table


@pytest.mark.parametrize(
    ("stated", "columns"), [("40", 40), ("80", 80), ("", 120), ("none", 120), ("1000", 1000)]
)
def test_a_wide_table_comes_in_parts_that_fit(capsys, monkeypatch, stated: str, columns: int):
    monkeypatch.setenv("COLUMNS", stated)
    result_console().print(wide_table())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for number, head in enumerate(HEADS):
        assert f"f{number}" in words
        assert f"s{number}" in words
        assert any(head in line for line in lines)
    parts = sum(line.lstrip().startswith("first") for line in lines)
    assert parts == 1 if columns == 1000 else parts > 1


@pytest.mark.parametrize(("stated", "longest"), [("60", 60), ("", 999)])
def test_sentences_keep_to_columns_where_it_is_set(capsys, monkeypatch, stated: str, longest: int):
    monkeypatch.setenv("COLUMNS", stated)
    text = " ".join(["word"] * 200)
    result_console().print(text, soft_wrap=True)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= longest
    assert " ".join(out.split()) == text
    assert (out.count("\n") == 1) == (stated == "")
