"""Digests of totals against Python's own BLAKE2b in its tree mode."""

from __future__ import annotations

import numpy as np
import pytest

from reference.enrolled import LEAF_BYTES, total_digest
from shieldfl import _core


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "size", [0, 1, LEAF_BYTES - 1, LEAF_BYTES, LEAF_BYTES + 1, 8 * LEAF_BYTES, 21 * LEAF_BYTES + 300]
)
def test_digests_are_those_of_hashlib(size, threads):
    frame = np.random.default_rng(size).bytes(size)
    assert _core.total_digest(frame, threads) == total_digest(frame)
