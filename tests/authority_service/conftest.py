"""Authorities of these tests; their keys are sealed by passphrases that take no time."""

from __future__ import annotations

import pytest

from authority_service.served import ANY, KEYS, made_folder


@pytest.fixture(scope="module", autouse=True)
def cheap_passphrases():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shieldfl.authority.private_file._SCRYPT_COST", 2**4)
        yield


@pytest.fixture
def folder(tmp_path):
    return made_folder(tmp_path / "authority", **ANY)


@pytest.fixture
def strict(tmp_path):
    """An authority that enrols registered clients alone, and four of them."""
    made = made_folder(tmp_path / "authority")
    for index, key in enumerate(KEYS):
        made.registry.register(f"clinic-{index}", key.public_key)
    return made


@pytest.fixture
def folders(tmp_path):
    """Three authorities that enrol registered clients alone, and four of them at each."""
    made = [made_folder(tmp_path / name, min_clients=2) for name in ("first", "second", "third")]
    for folder in made:
        for index, key in enumerate(KEYS):
            folder.registry.register(f"clinic-{index}", key.public_key)
    return made
