"""Keys of these tests are sealed by passphrases that take no time."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package", autouse=True)
def cheap_passphrases():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shieldfl.roles.private_file._SCRYPT_COST", 2**4)
        yield
