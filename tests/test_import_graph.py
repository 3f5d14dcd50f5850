"""No file of the package imports, by any way, one that imports it: also not inside functions, or for types alone."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter

import pytest

import architecture_picture
from import_graph import CPP, GENERATED, PACKAGE, ROOT, cpp_rooms, floors, import_graph, python_rooms

MOST_FLOORS = 12


def test_no_file_imports_one_that_imports_it():
    try:
        TopologicalSorter(import_graph()).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


def test_rooms_stand_on_few_floors():
    assert max(floors(python_rooms()).values()) <= MOST_FLOORS
    assert max(floors(cpp_rooms()).values()) <= MOST_FLOORS


def test_the_picture_shows_the_rooms_and_arrows_of_the_code():
    drawn = architecture_picture.PICTURE.read_text(encoding="utf-8")
    named = {
        architecture_picture.arrow_id(language, room, used)
        for language, graph in architecture_picture.arrows().items()
        for room, all_used in graph.items()
        for used in all_used - {GENERATED}
    }
    again = "draw it anew: python tests/architecture_picture.py"
    assert set(re.findall(r'id="((?:python|cpp): [^"]+)"', drawn)) == named, again
    rooms = set(re.findall(r">([\w]+)/?</text>", drawn))
    assert python_rooms().keys() | cpp_rooms().keys() <= rooms, again


def test_the_page_names_every_room_and_files_that_there_are():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    for room in python_rooms().keys() - {"__main__"} | cpp_rooms().keys():
        assert re.search(rf"`{room}(/|\.py)", page), room
    for path in re.findall(r"`(?:cpp/)?([\w/]+\.(?:py|h|cpp))`", page):
        assert any(PACKAGE.rglob(path)) or any(CPP.rglob(path)), path
    for said in PACKAGE.rglob("__init__.py"):
        first = re.findall(r"Read ``([\w/]+\.py)`` first", said.read_text(encoding="utf-8"))
        assert [(said.parent / name).is_file() for name in first] == [True], said
