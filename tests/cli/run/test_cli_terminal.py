from __future__ import annotations

import re

import pytest

from cli.run.terminal_run import run_on_terminal
from warm_python import WarmPython

pytest.importorskip("torch")
pytest.importorskip("typer")

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)m")


TINY = ("run", "--rounds", "2", "--clients", "3", "--local-epochs", "1", "--threads", "1")


def test_progress_is_on_the_terminal_and_the_piped_table_is_clean(warm_python: WarmPython) -> None:
    out, err = run_on_terminal(TINY, warm=warm_python)
    assert "\x1b" not in out
    assert "accuracy, global model" in out
    assert "selective-shield" in err
    assert "2/2" in err
    assert re.search(r"\d\d\.\d\d %", err)
    assert re.search(r"enc \d+\.\d%", err)
    assert COLOUR.search(err)


@pytest.mark.parametrize("wish", [{}, {"NO_COLOR": "1"}])
def test_colours_are_on_a_terminal_where_they_are_wanted(
    warm_python: WarmPython, wish: dict[str, str]
) -> None:
    out, err = run_on_terminal(TINY, warm=warm_python, stdout_is_terminal=True, **wish)
    assert "accuracy, global model" in out
    assert "2/2" in err
    assert [bool(COLOUR.search(text)) for text in (out, err)] == [not wish] * 2
