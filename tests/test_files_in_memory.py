"""Temporary files are in memory where there is room for them, and nowhere else."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

import files_in_memory
from files_in_memory import memory_folder

GIGABYTE = 1 << 30


@pytest.fixture
def shared_memory(monkeypatch, tmp_path):
    """A folder in the place of the system's, with as much room as a test says."""
    monkeypatch.setattr(files_in_memory, "_MEMORY", tmp_path)

    def with_room(size: int, flags: int = 0) -> None:
        found = SimpleNamespace(f_bavail=size // 4096, f_frsize=4096, f_flag=flags)
        monkeypatch.setattr(os, "statvfs", lambda path: found)

    return with_room


def test_a_folder_with_room_is_taken(shared_memory, tmp_path):
    shared_memory(GIGABYTE)
    assert memory_folder() == tmp_path


@pytest.mark.parametrize(
    ("size", "flags"), [(GIGABYTE - 4096, 0), (4 * GIGABYTE, os.ST_NOEXEC)], ids=["too small", "no programs"]
)
def test_a_folder_that_tests_could_not_use_is_not(size, flags, shared_memory):
    shared_memory(size, flags)
    assert memory_folder() is None


def test_without_a_folder_in_memory_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(files_in_memory, "_MEMORY", tmp_path / "absent")
    assert memory_folder() is None
