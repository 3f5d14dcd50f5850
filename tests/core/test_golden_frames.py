"""Frames of wire version 1, for ever: digests of what the first release wrote, and masks byte for byte."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import shieldfl as sf
from core.wire_twin import crc32c, make_known_key
from shieldfl import _core, _testing


def known_frames(packing, ring_degree):
    key = make_known_key(sf.ckks.Parameters(packing=packing, ring_degree=ring_degree, max_clients=4))
    values = np.linspace(-1.0, 1.0, 700)
    batches = [
        _testing.encrypt_insecure(key.public_frame, values, seed=seed, weight=0.5, round=3) for seed in (1, 2)
    ]
    aggregator = sf.ckks.Aggregator(sf.ckks.PublicKey.from_bytes(key.public_frame))
    for batch in batches:
        aggregator.add(batch)
    return key, batches[0], aggregator.total().to_bytes(), values


def digest(frame):
    return hashlib.sha256(frame).hexdigest()[:16]


@pytest.mark.parametrize(
    ("packing", "ring_degree", "digests"),
    [
        ("exact", 2048, ("f91b36c43877f872", "67e3a17f23518836", "9b86c5a15a0315d8")),
        ("exact", 4096, ("65feaf4c87185299", "9d4b3d692f347d70", "0f55a0ded1b76bff")),
    ],
)
def test_exact_frames_are_what_they_were(packing, ring_degree, digests):
    key, batch, total, values = known_frames(packing, ring_degree)
    assert (digest(key.public_frame), digest(batch), digest(total)) == digests
    decryptor = _core.CkksDecryptor.import_secret(
        _core.CkksPublicKey.from_bytes(key.public_frame), key.exported_secret
    )
    sums, weight_sum = decryptor.open(_core.CkksCiphertext.total(total))
    np.testing.assert_array_equal(sums, 2 * np.rint(values * 0.5 * 2**20) / 2**20)
    assert weight_sum == 1.0


def test_slots_frame_opens():
    """The slot encoder works in floating point: its frames may differ in the last bits, their sums may not."""
    key, _, total, values = known_frames("slots", 4096)
    opened = _testing.open_unflooded(key.public_frame, key.exported_secret, total)
    np.testing.assert_allclose(opened, values, atol=2**-20)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (
            sf.Mask.empty(100),
            "5348464c0100010012000000000000000000000000000000000000000000000000000000000000000000000000000000640000000000000000000000000000000100a69fa864",
        ),
        (
            sf.Mask.from_indices([0, 3, 64, 99], 100),
            "5348464c0100010016000000000000000000000000000000000000000000000000000000000000000000000000000000640000000000000004000000000000000104a12053009faa46ca",
        ),
        (
            sf.Mask.from_indices(list(range(0, 100, 2)), 100),
            "5348464c010001001f000000000000000000000000000000000000000000000000000000000000000000000000000000640000000000000032000000000000000000555555555555555555555555054394757b",
        ),
        (
            ~sf.Mask.from_indices([17], 100),
            "5348464c0100010013000000000000000000000000000000000000000000000000000000000000000000000000000000640000000000000063000000000000000206236a5f4f26",
        ),
    ],
    ids=["empty", "sparse", "dense", "almost full"],
)
def test_mask_frames_are_what_they_were(mask, expected):
    frame = mask.to_bytes()
    assert frame.hex() == expected
    assert sf.Mask.from_bytes(bytes.fromhex(expected)) == mask


def test_checksum_is_crc32c():
    assert crc32c(b"123456789") == 0xE3069283
    frame = sf.Mask.full(10).to_bytes()
    assert int.from_bytes(frame[-4:], "little") == crc32c(frame[:-4])
