"""Authorities of these tests; their keys are sealed by passphrases that take no time."""

from __future__ import annotations

import pytest

from authority.conftest import cheap_passphrases  # noqa: F401
from authority_service.served import ANY, made_folder, with_clinics
from authority_service.test_served_process import Process, command_with_key


@pytest.fixture
def folder(tmp_path):
    return made_folder(tmp_path / "authority", **ANY)


@pytest.fixture
def strict(tmp_path):
    """An authority that enrols registered clients alone, and four of them."""
    return with_clinics(made_folder(tmp_path / "authority"))


@pytest.fixture
def folders(tmp_path):
    """Three authorities that enrol registered clients alone, and four of them at each."""
    return [
        with_clinics(made_folder(tmp_path / name, min_clients=2)) for name in ("first", "second", "third")
    ]


@pytest.fixture(scope="module")
def operators(tmp_path_factory):
    """The folder of an authority that an operator's command has made."""
    path = tmp_path_factory.mktemp("operator") / "authority"
    command_with_key("init", path)
    return path


@pytest.fixture
def process(operators):
    """What serves it."""
    made = Process(operators)
    yield made
    if made.process.poll() is None:
        made.kill()
