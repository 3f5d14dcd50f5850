from __future__ import annotations

import json
import struct
from types import ModuleType

import numpy as np
import pytest

import shieldfl as sf
from encryption.paillier_keys import authority_for
from encryption.wire_twin import reseal
from shieldfl.encryption.frame_inspection import _READERS, inspect_frame
from shieldfl.encryption.opening import sum_key

HEADER_BYTES = 48
CKKS_KINDS = ("ckks public key", "ckks batch", "ckks total")
PAILLIER_KINDS = ("paillier public key", "paillier batch", "paillier total", "union order")
KAHE_KINDS = ("kahe public key", "kahe batch", "kahe total", "kahe sum request", "kahe sum key")
PADS_KINDS = tuple(kind.replace("kahe", "pads") for kind in KAHE_KINDS)
KINDS = ("mask", *CKKS_KINDS, *PAILLIER_KINDS, *KAHE_KINDS, *PADS_KINDS)


@pytest.fixture(scope="module")
def paillier_frames() -> dict[str, bytes]:
    """A batch that leaves ciphertexts out, and a total with integer weights: 300 of 1,000 positions, round 7."""
    authority = authority_for(sf.paillier.Parameters(key_bits=2048, max_clients=8, max_weight=5))
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=1)
    masks = [sf.Mask.from_indices(np.arange(0, 900, 3), 1000), sf.Mask.from_indices([6, 9], 1000)]
    order = sf.paillier.UnionOrder.from_masks(masks)
    update = np.linspace(-1, 1, 1000, dtype=np.float32)
    batches = [encryptor.encrypt_in_union(update, order, mask, round=7) for mask in masks]
    aggregator = sf.paillier.Aggregator(authority.public_key, threads=1, order=order)
    for batch in batches:
        aggregator.add(batch, weight=4)
    return {
        "paillier public key": authority.public_key.to_bytes(),
        "paillier batch": batches[1].to_bytes(),
        "paillier total": aggregator.total().to_bytes(),
        "union order": order.to_bytes(),
    }


@pytest.fixture(scope="module")
def enrolled_frames() -> dict[str, bytes]:
    """The same of two clients that have enrolled, in each scheme in which clients do."""
    return frames_of("kahe", sf.kahe) | frames_of("pads", sf.pads)


def frames_of(name: str, scheme: ModuleType) -> dict[str, bytes]:
    authority = sf.KeyAuthority(scheme.Parameters(max_clients=8), min_clients=2)
    mask = sf.Mask.from_indices(np.arange(0, 900, 3), 1000)
    update = np.linspace(-1, 1, 1000, dtype=np.float32)
    keys = [authority.enrol(client) for client in range(2)]
    batches = [scheme.Encryptor(key, threads=1).encrypt(update, mask, round=7) for key in keys]
    aggregator = scheme.Aggregator(authority.public_key, threads=1)
    for batch in batches:
        aggregator.add(batch)
    total = aggregator.total()
    return {
        f"{name} public key": authority.public_key.to_bytes(),
        f"{name} batch": batches[0].to_bytes(),
        f"{name} total": total.to_bytes(),
        f"{name} sum request": total.request(),
        f"{name} sum key": bytes(sum_key(authority.public_key, total.request(), keys)),
    }


@pytest.fixture(scope="module", params=["exact", "slots"])
def frames(
    request: pytest.FixtureRequest, paillier_frames: dict[str, bytes], enrolled_frames: dict[str, bytes]
) -> dict[str, bytes]:
    """One frame of every kind: 300 values out of 1,000 positions, round 7, two clients."""
    authority = sf.KeyAuthority(sf.ckks.Parameters(packing=request.param, max_clients=8))
    encryptor = sf.ckks.Encryptor(authority.public_key, threads=1)
    mask = sf.Mask.from_indices(np.arange(0, 900, 3), 1000)
    update = np.linspace(-1, 1, 1000, dtype=np.float32)
    batches = [encryptor.encrypt(update, mask, weight=0.5, round=7) for _ in range(2)]
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=1)
    for batch in batches:
        aggregator.add(batch)
    return {
        "mask": mask.to_bytes(),
        "ckks public key": authority.public_key.to_bytes(),
        "ckks batch": batches[0].to_bytes(),
        "ckks total": aggregator.total().to_bytes(),
        **paillier_frames,
        **enrolled_frames,
    }


def test_every_kind_that_is_read_is_tried() -> None:
    assert set(KINDS) == set(_READERS)


@pytest.mark.parametrize("kind", KINDS)
def test_intact_frame(frames: dict[str, bytes], kind: str) -> None:
    frame = frames[kind]
    report = inspect_frame(frame)
    assert report.kind == kind
    assert report.intact
    assert report.problem == ""
    assert report.checksum_ok
    assert report.version == 2
    assert report.size_bytes == report.declared_bytes == len(frame)
    assert json.loads(json.dumps(report.to_json()))["kind"] == kind


def test_mask_counts(frames: dict[str, bytes]) -> None:
    report = inspect_frame(frames["mask"])
    assert report.counts["positions"] == 1000
    assert report.counts["chosen"] == 300
    assert report.parameter_id is None
    assert report.key_id is None
    assert report.parameters == {}


@pytest.mark.parametrize(("kind", "clients"), [("ckks batch", 1), ("ckks total", 2)])
def test_ciphertext_counts(frames: dict[str, bytes], kind: str, clients: int) -> None:
    report = inspect_frame(frames[kind])
    public_key = sf.ckks.PublicKey.from_bytes(frames["ckks public key"])
    assert report.counts["round"] == 7
    assert report.counts["clients"] == clients
    assert report.counts["values"] == 300
    assert report.counts["weighted"] is True
    assert report.key_id == public_key.id.hex()
    assert report.parameter_id == public_key.parameters.id.hex()
    assert report.parameters["packing"] == public_key.parameters.packing
    assert report.parameters["max clients"] == 8
    assert report.description == public_key.parameters.describe()
    dropped = (report.parameters["dropped bits of c0"], report.parameters["dropped bits of c1"])
    assert dropped == public_key.parameters._facts["dropped_bits"]
    assert min(dropped) > 0


@pytest.mark.parametrize(
    ("kind", "clients", "named"),
    [
        ("paillier batch", 1, ("ciphertexts present", 1)),
        ("paillier total", 2, ("total weight", 8)),
    ],
)
def test_paillier_counts(paillier_frames: dict[str, bytes], kind: str, clients: int, named: tuple) -> None:
    report = inspect_frame(paillier_frames[kind])
    public_key = sf.paillier.PublicKey.from_bytes(paillier_frames["paillier public key"])
    order = sf.paillier.UnionOrder.from_bytes(paillier_frames["union order"])
    assert report.counts == {
        "round": 7,
        "clients": clients,
        "values": 300,
        "weighted": False,
        "ciphertexts": 5,
        "positions id": order.id.hex(),
        named[0]: named[1],
    }
    assert report.key_id == public_key.id.hex()
    assert report.parameter_id == public_key.parameters.id.hex()
    assert report.parameters["key bits"] == 2048
    assert report.parameters["packing"] == "dense"
    assert report.parameters["max weight"] == 5
    assert report.description == public_key.parameters.describe()
    key_report = inspect_frame(paillier_frames["paillier public key"])
    assert key_report.parameters == report.parameters
    assert key_report.description == report.description


def test_union_order_counts(paillier_frames: dict[str, bytes]) -> None:
    report = inspect_frame(paillier_frames["union order"])
    order = sf.paillier.UnionOrder.from_bytes(paillier_frames["union order"])
    assert report.counts == {"positions": 1000, "in union": 300, "positions id": order.id.hex()}
    assert report.parameter_id is None
    assert report.key_id is None


def test_facts_are_plain_numbers_and_words(frames: dict[str, bytes]) -> None:
    for frame in frames.values():
        report = inspect_frame(frame)
        for fact in [*report.counts.values(), *report.parameters.values()]:
            assert isinstance(fact, bool | int | float | str)


def test_public_key_describes_its_parameters(frames: dict[str, bytes]) -> None:
    report = inspect_frame(frames["ckks public key"])
    public_key = sf.ckks.PublicKey.from_bytes(frames["ckks public key"])
    assert report.key_id == public_key.id.hex()
    assert report.description == public_key.parameters.describe()
    assert report.parameters["ring degree"] == public_key.parameters.ring_degree


def test_same_positions_have_the_same_id(frames: dict[str, bytes]) -> None:
    batch, total = (inspect_frame(frames[kind]) for kind in ("ckks batch", "ckks total"))
    assert batch.counts["positions id"] == total.counts["positions id"]


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_frame(frames: dict[str, bytes], kind: str) -> None:
    frame = frames[kind]
    for length in (len(frame) - 1, HEADER_BYTES + 4):
        report = inspect_frame(frame[:length])
        assert not report.intact
        assert report.kind == kind
        assert report.declared_bytes == len(frame)
        assert report.size_bytes == length
        assert "truncated" in report.problem


@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_header_bit_and_some_of_the_body_are_noticed(
    frames: dict[str, bytes], kind: str
) -> None:
    frame = frames[kind]
    body = np.random.default_rng(5).integers(HEADER_BYTES * 8, len(frame) * 8, 40)
    for bit in [*range(HEADER_BYTES * 8), *body.tolist()]:
        altered = bytearray(frame)
        altered[bit // 8] ^= 1 << (bit % 8)
        report = inspect_frame(altered)
        assert not report.intact, f"bit {bit}"
        assert report.problem


@pytest.mark.parametrize("data", [b"", b"SHFL", bytes(200), b"PK\x03\x04" + bytes(500)])
def test_what_is_no_frame(data: bytes) -> None:
    report = inspect_frame(data)
    assert report.kind == "unknown"
    assert not report.intact
    assert "no shieldfl frame" in report.problem
    assert report.version is None
    assert report.declared_bytes is None


def resealed(frame: bytes, offset: int, replacement: bytes) -> bytes:
    """Alter a frame and give it a checksum that fits, as somebody would who means it."""
    return reseal(frame[:offset] + replacement + frame[offset + len(replacement) :])


def test_resealing_nothing_gives_the_frame_back(frames: dict[str, bytes]) -> None:
    assert resealed(frames["mask"], 0, b"SHFL") == frames["mask"]


def test_unknown_kind_with_a_fitting_checksum(frames: dict[str, bytes]) -> None:
    report = inspect_frame(resealed(frames["mask"], 6, struct.pack("<H", 999)))
    assert not report.intact
    assert report.checksum_ok
    assert "999" in report.problem


@pytest.mark.parametrize("version", [0, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_other_version_with_a_fitting_checksum(frames: dict[str, bytes], kind: str, version: int) -> None:
    report = inspect_frame(resealed(frames[kind], 4, struct.pack("<H", version)))
    assert not report.intact
    assert report.checksum_ok
    assert report.version == version
    assert f"frame version {version} is not the version this build reads (2)" in report.problem


def test_wrong_count_with_a_fitting_checksum(frames: dict[str, bytes]) -> None:
    report = inspect_frame(resealed(frames["mask"], HEADER_BYTES + 8, struct.pack("<Q", 301)))
    assert report.checksum_ok
    assert not report.intact
    assert report.problem


def test_foreign_parameter_id_with_a_fitting_checksum(frames: dict[str, bytes]) -> None:
    report = inspect_frame(resealed(frames["ckks batch"], 16, bytes([255] * 16)))
    assert report.checksum_ok
    assert not report.intact
    assert "parameter id" in report.problem


def test_the_report_shows_no_contents() -> None:
    """Whatever the positions are, masks of equal size and count give the same report."""
    first = sf.Mask.from_bool(np.arange(640) % 2 == 0).to_bytes()
    second = sf.Mask.from_bool(np.arange(640) % 2 == 1).to_bytes()
    assert first != second
    assert inspect_frame(first) == inspect_frame(second)


def test_any_buffer_is_taken(frames: dict[str, bytes]) -> None:
    frame = frames["ckks batch"]
    assert inspect_frame(memoryview(frame)) == inspect_frame(bytearray(frame)) == inspect_frame(frame)
