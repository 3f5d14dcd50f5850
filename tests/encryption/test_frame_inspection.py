"""What a frame of any kind tells of itself, and that nothing which was altered passes for one."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

import shieldfl as sf
from encryption.enrolled_clients import AUTHORITY, answer, client_key, total_of
from encryption.paillier_keys import authority_for
from encryption.wire_twin import reseal
from reference.enrolled import total_digest
from shieldfl import _core
from shieldfl.encryption.enrolment import open_total
from shieldfl.encryption.frame_inspection import _READERS, inspect_frame
from shieldfl.encryption.registry import REGISTRY

HEADER_BYTES = 48
COEFFICIENTS = HEADER_BYTES + 80
MANIFEST, EPOCH = bytes(range(32)), 3
ENROLLED = [
    f"{name} {kind}" for name in ("kahe", "pads") for kind in ("batch", "total", "sum request", "sum key")
]
CIPHERTEXTS = (
    "kahe batch",
    "kahe total",
    "pads batch",
    "pads total",
    "ckks batch",
    "ckks total",
    "slots batch",
)
PAIRED = ["ckks batch", "ckks total", "slots batch", "paillier batch", "paillier total", "union order"]
KEYS = ["ckks public key", "slots public key", "paillier public key", "kahe public key", "pads public key"]
KINDS = ("mask", *KEYS, *PAIRED, *ENROLLED)
MASK = sf.Mask.from_indices(np.arange(0, 900, 3), 1000)
UPDATE = np.linspace(-1, 1, 1000, dtype=np.float32)


def paillier_frames() -> dict[str, bytes]:
    """A batch that leaves ciphertexts out, and a total with integer weights."""
    authority = authority_for(sf.paillier.Parameters(key_bits=2048, max_clients=8, max_weight=5))
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=1)
    masks = [MASK, sf.Mask.from_indices([6, 9], 1000)]
    order = sf.paillier.UnionOrder.from_masks(masks)
    batches = [encryptor.encrypt_in_union(UPDATE, order, mask, round=7) for mask in masks]
    aggregator = sf.paillier.Aggregator(authority.public_key, threads=1, order=order)
    for batch in batches:
        aggregator.add(batch, weight=4)
    return {
        "paillier public key": authority.public_key.to_bytes(),
        "paillier batch": batches[1].to_bytes(),
        "paillier total": aggregator.total().to_bytes(),
        "union order": order.to_bytes(),
    }


def frames_of(name, key, encryptors, **options) -> dict[str, bytes]:
    batches = [encryptor.encrypt(UPDATE, MASK, weight=0.5, round=7) for encryptor in encryptors]
    frames = {"public key": key, "batch": batches[0], "total": total_of(key, batches, threads=1, **options)}
    return {f"{name} {kind}": one.to_bytes() for kind, one in frames.items()}


@pytest.fixture(scope="module")
def frames() -> dict[str, bytes]:
    """One frame of every kind: 300 values out of 1,000 positions, round 7, two clients."""
    made = {"mask": MASK.to_bytes()} | paillier_frames()
    for name, packing in (("ckks", "exact"), ("slots", "slots")):
        key = sf.KeyAuthority(sf.ckks.Parameters(packing=packing, max_clients=8)).public_key
        made |= frames_of(name, key, [sf.ckks.Encryptor(key, threads=1)] * 2)
    for name, scheme in (("kahe", sf.kahe), ("pads", sf.pads)):
        key = scheme.PublicKey.of_session(scheme.Parameters(max_clients=8), MANIFEST, AUTHORITY, EPOCH)
        encryptors = [scheme.Encryptor(client_key(key, client), part=5) for client in (4, 9)]
        made |= frames_of(name, key, encryptors, part=5)
        total = scheme.Total.from_bytes(made[f"{name} total"])
        made[f"{name} sum request"] = total.request()
        made[f"{name} sum key"] = bytes(answer(key, total))
    return made


def key_of(frames, kind):
    """The public key under which a frame was made."""
    name = kind.partition(" ")[0]
    scheme = getattr(sf, "ckks" if name == "slots" else "paillier" if name == "union" else name)
    return scheme.PublicKey.from_bytes(frames[f"{'paillier' if name == 'union' else name} public key"])


def test_every_kind_that_is_read_is_tried():
    ends = {
        end if name in {*REGISTRY, "slots"} else kind
        for kind in KINDS
        for name, _, end in [kind.partition(" ")]
    }
    assert ends == set(_READERS)


@pytest.mark.parametrize("kind", KINDS)
def test_intact_frames_are_known(frames, kind):
    frame = frames[kind]
    report = inspect_frame(frame)
    assert (report.kind, report.intact, report.problem) == (kind.replace("slots", "ckks"), True, "")
    assert (report.checksum_ok, report.version) == (True, 2)
    assert report.size_bytes == report.declared_bytes == len(frame)
    assert json.loads(json.dumps(report.to_json()))["kind"] == report.kind
    facts = [*report.counts.values(), *report.parameters.values()]
    assert all(isinstance(fact, bool | int | float | str) for fact in facts)
    assert report == inspect_frame(memoryview(frame)) == inspect_frame(bytearray(frame))
    if kind in ("mask", "union order"):
        assert (report.parameter_id, report.key_id, report.parameters) == (None, None, {})
    else:
        key = key_of(frames, kind)
        assert (report.key_id, report.parameter_id) == (key.id.hex(), key.parameters.id.hex())


def test_frames_tell_what_they_are_for(frames):
    reports = {kind: inspect_frame(frame) for kind, frame in frames.items()}
    order = sf.paillier.UnionOrder.from_bytes(frames["union order"])
    mask = reports["mask"].counts
    assert (mask["positions"], mask["chosen"]) == (1000, 300)
    assert reports["union order"].counts == {
        "positions": 1000,
        "in union": 300,
        "positions id": order.id.hex(),
    }
    common = {"round": 7, "values": 300, "weighted": True}
    for name in ("ckks", "slots"):
        positions = {"positions id": reports["ckks batch"].counts["positions id"]}
        ciphertexts = reports[f"{name} batch"].counts["ciphertexts"]
        batch = common | positions | {"clients": 1, "ciphertexts": ciphertexts}
        assert reports[f"{name} batch"].counts == batch
        assert inspect_frame(frames[f"{name} total"]).counts == batch | {"clients": 2}
    of_paillier = common | {"weighted": False, "ciphertexts": 5, "positions id": order.id.hex()}
    assert reports["paillier batch"].counts == of_paillier | {"clients": 1, "ciphertexts present": 1}
    assert reports["paillier total"].counts == of_paillier | {"clients": 2, "total weight": 8}
    for name, numbers in (
        ("kahe", {"ring degree": 4096, "secret polynomials": 1}),
        ("pads", {"bits of a word": 27, "words": 1024}),
    ):
        assert reports[f"{name} public key"].counts == {
            "epoch": EPOCH,
            "authority": AUTHORITY.hex(),
            "manifest digest": MANIFEST.hex(),
        }
        total = getattr(sf, name).Total.from_bytes(frames[f"{name} total"])
        ids = {"positions id": total.parsed.mask_id.hex(), "purpose id": total.parsed.purpose.hex()}
        addressed = common | ids | {"part": 5}
        assert reports[f"{name} batch"].counts == addressed | {"clients": 1, "ciphertexts": 1}
        assert reports[f"{name} total"].counts == addressed | {"clients": 2, "ciphertexts": 1}
        digest = {"total digest": total_digest(total.to_bytes()).hex()}
        assert reports[f"{name} sum request"].counts == addressed | {"clients": 2} | digest
        assert reports[f"{name} sum key"].counts == {"clients": 2} | numbers | digest
        assert "secret" in reports[f"{name} sum key"].description


@pytest.mark.parametrize("kind", [*KEYS, *CIPHERTEXTS, "paillier batch", "paillier total"])
def test_frames_with_parameters_describe_them(frames, kind):
    report, parameters = inspect_frame(frames[kind]), key_of(frames, kind).parameters
    assert report.description == (parameters.describe() if kind in KEYS else "")
    facts = dict(parameters._facts)
    expected = {}
    if "primes" in facts:
        expected["modulus bits"] = sum(prime.bit_length() for prime in facts.pop("primes"))
    if isinstance(facts.get("dropped_bits"), tuple):
        expected["dropped bits of c0"], expected["dropped bits of c1"] = facts.pop("dropped_bits")
        assert min(expected.values()) > 0
    assert report.parameters == {name.replace("_", " "): value for name, value in facts.items()} | expected


@pytest.mark.parametrize("beside", [b"", bytes(32), b"a digest of 32 bytes for a list, "[:32]])
def test_a_request_names_the_digest_of_the_total_and_of_what_is_sent_beside_it(frames, beside):
    total = sf.kahe.Total.from_bytes(frames["kahe total"])
    request = _core.KaheSumRequest.from_bytes(total.request(beside))
    assert request.total_digest == total_digest(total.to_bytes(), beside)


@pytest.mark.parametrize("kind", KINDS)
def test_altered_and_truncated_frames_are_noticed(frames, kind):
    frame = frames[kind]
    for length in (len(frame) - 1, HEADER_BYTES + 4):
        report = inspect_frame(frame[:length])
        assert (report.intact, report.declared_bytes, report.size_bytes) == (False, len(frame), length)
        assert "truncated" in report.problem
    body = np.random.default_rng(5).integers(HEADER_BYTES * 8, len(frame) * 8, 40)
    for bit in [*range(HEADER_BYTES * 8), *body.tolist()]:
        altered = bytearray(frame)
        altered[bit // 8] ^= 1 << (bit % 8)
        assert inspect_frame(altered).problem, bit
        assert not inspect_frame(altered).intact, bit
    for version in (0, 1, 3):
        report = inspect_frame(resealed(frame, 4, struct.pack("<H", version)))
        assert (report.intact, report.checksum_ok, report.version) == (False, True, version)
        assert f"frame version {version} is not the version this build reads (2)" in report.problem


@pytest.mark.parametrize("data", [b"", b"SHFL", bytes(200), b"PK\x03\x04" + bytes(500)])
def test_what_is_no_frame(data):
    report = inspect_frame(data)
    assert (report.kind, report.intact, report.version, report.declared_bytes) == (
        "unknown",
        False,
        None,
        None,
    )
    assert "no shieldfl frame" in report.problem


def resealed(frame: bytes, offset: int, replacement: bytes) -> bytes:
    """Alter a frame and give it a checksum that fits, as somebody would who means it."""
    return reseal(frame[:offset] + replacement + frame[offset + len(replacement) :])


@pytest.mark.parametrize(
    ("kind", "offset", "replacement", "said"),
    [
        ("mask", 6, struct.pack("<H", 999), "999"),
        ("mask", HEADER_BYTES + 8, struct.pack("<Q", 301), ""),
        ("ckks batch", 16, bytes([255] * 16), "parameter id"),
    ],
)
def test_what_cannot_be_is_noticed_under_a_fitting_checksum(frames, kind, offset, replacement, said):
    assert resealed(frames[kind], 0, b"SHFL") == frames[kind]
    report = inspect_frame(resealed(frames[kind], offset, replacement))
    assert (report.checksum_ok, report.intact) == (True, False)
    assert report.problem
    assert said in report.problem


def test_reports_show_no_contents(frames):
    """Whatever the positions or a key's numbers are, reports are the same, and so are those of what is refused."""
    masks = [sf.Mask.from_bool(np.arange(640) % 2 == rest).to_bytes() for rest in (0, 1)]
    assert inspect_frame(masks[0]) == inspect_frame(masks[1])
    for kind in ("kahe sum key", "pads sum key"):
        frame = frames[kind]
        others = np.random.default_rng(1).bytes(len(frame) - COEFFICIENTS - 4)
        altered = reseal(frame[:COEFFICIENTS] + others + frame[-4:])
        assert altered != frame
        assert inspect_frame(altered) == inspect_frame(frame)
        refused = [
            inspect_frame(resealed(one, HEADER_BYTES, struct.pack("<I", 0))) for one in (frame, altered)
        ]
        assert refused[0] == refused[1]
        assert not refused[0].intact


@pytest.mark.parametrize(
    ("offset", "replacement"),
    [
        *((0, struct.pack("<I", clients)) for clients in (0, 4, 2**20 + 1, 2**32 - 1)),
        *((4, struct.pack("<I", unit)) for unit in (0, 4095)),
        *((8, struct.pack("<Q", count)) for count in (0, 4095, 8192, 2**64 - 4096)),
    ],
)
def test_sum_keys_that_state_what_none_has_are_refused_as_where_they_are_used(frames, offset, replacement):
    altered = resealed(frames["kahe sum key"], HEADER_BYTES + offset, replacement)
    report = inspect_frame(altered)
    assert (report.checksum_ok, report.intact) == (True, False)
    assert "altered" in report.problem
    with pytest.raises(sf.WireFormatError):
        open_total(key_of(frames, "kahe batch"), sf.kahe.Total.from_bytes(frames["kahe total"]), altered)


def test_a_sum_key_without_a_body_is_refused(frames):
    frame = frames["kahe sum key"]
    for body in (b"", frame[HEADER_BYTES : COEFFICIENTS - 1]):
        cut = frame[:8] + struct.pack("<Q", len(body)) + frame[16:HEADER_BYTES] + body + bytes(4)
        report = inspect_frame(reseal(cut))
        assert report.checksum_ok
        assert "ends before its fields do" in report.problem
