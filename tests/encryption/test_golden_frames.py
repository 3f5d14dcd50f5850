"""Frames of wire version 2, for ever: digests of what was written first, and masks byte for byte."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import shieldfl as sf
from encryption.enrolled_clients import total_of
from encryption.wire_twin import make_known_key
from shieldfl import _core, _testing


def known_frames(ring_degree):
    key = make_known_key(sf.ckks.Parameters(ring_degree=ring_degree, max_clients=4))
    values = np.linspace(-1.0, 1.0, 700)
    batches = [
        _testing.encrypt_insecure(key.public_frame, values, seed=seed, weight=0.5, round=3) for seed in (1, 2)
    ]
    total = total_of(sf.ckks.PublicKey.from_bytes(key.public_frame), batches)
    return key, batches[0], total.to_bytes(), values


def digest(frame):
    return hashlib.sha256(frame).hexdigest()[:16]


@pytest.mark.parametrize(
    ("ring_degree", "digests"),
    [
        (2048, ("fa5f62685dfc29bf", "83d7e73a59709c0a", "3c10ef61a6cc95c4")),
        (4096, ("658794fc5fef90ea", "afdce1bfe801fb93", "01d99b443eaa0377")),
    ],
)
def test_exact_frames_are_what_they_were(ring_degree, digests):
    key, batch, total, values = known_frames(ring_degree)
    assert (digest(key.public_frame), digest(batch), digest(total)) == digests
    decryptor = _core.CkksDecryptor.import_secret(
        _core.CkksPublicKey.from_bytes(key.public_frame), key.exported_secret
    )
    sums, weight_sum = decryptor.open(_core.CkksCiphertext.total(total))
    np.testing.assert_array_equal(sums, 2 * np.rint(values * 0.5 * 2**20) / 2**20)
    assert weight_sum == 1.0


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (
            sf.Mask.empty(100),
            "5348464c02000100120000000000000000000000000000000000000000000000000000000000000000000000000000006400000000000000000000000000000001004c83b871",
        ),
        (
            sf.Mask.from_indices([0, 3, 64, 99], 100),
            "5348464c0200010016000000000000000000000000000000000000000000000000000000000000000000000000000000640000000000000004000000000000000104a12053000cad0161",
        ),
        (
            sf.Mask.from_indices(list(range(0, 100, 2)), 100),
            "5348464c020001001f0000000000000000000000000000000000000000000000000000000000000000000000000000006400000000000000320000000000000000005555555555555555555555550537cef4e1",
        ),
        (
            ~sf.Mask.from_indices([17], 100),
            "5348464c02000100130000000000000000000000000000000000000000000000000000000000000000000000000000006400000000000000630000000000000002062354cf88ae",
        ),
    ],
    ids=["empty", "sparse", "dense", "almost full"],
)
def test_mask_frames_are_what_they_were(mask, expected):
    frame = mask.to_bytes()
    assert frame.hex() == expected
    assert sf.Mask.from_bytes(bytes.fromhex(expected)) == mask
