"""What a registry would know of key-additive encryption, and what its frames tell whoever inspects them."""

from __future__ import annotations

import functools
import math
import struct

import numpy as np
import pytest

import shieldfl as sf
from encryption.wire_twin import reseal
from reference.enrolled import total_digest
from shieldfl import _core
from shieldfl.encryption import kahe
from shieldfl.encryption.answers import open_total
from shieldfl.encryption.ckks import SCHEME as CKKS
from shieldfl.encryption.encryption import UnionMask
from shieldfl.encryption.frame_inspection import inspect_frame
from shieldfl.encryption.kahe import SCHEME
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.parameters import SumNeeds
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError

BODY = 48
COEFFICIENTS = BODY + 80
KINDS = ("kahe public key", "kahe batch", "kahe total", "kahe sum request", "kahe sum key")
MANIFEST, AUTHORITY, EPOCH = bytes(range(32)), bytes(range(16)), 3
MASK = sf.Mask.from_indices(np.arange(0, 900, 3), 1000)


def client_keys(public_key, clients, round=0):
    keys = [kahe.ClientKey.of_secret(public_key, client, bytes([client]) * 32) for client in clients]
    for key in keys:
        key.advance_to(round)
    return keys


@functools.cache
def frames():
    """One frame of every kind: 300 values out of 1,000 positions, round 7, two clients."""
    public_key = kahe.PublicKey.of_session(kahe.Parameters(max_clients=8), MANIFEST, AUTHORITY, EPOCH)
    update = np.linspace(-1, 1, 1000, dtype=np.float32)
    aggregator = kahe.Aggregator(public_key, part=5)
    keys = client_keys(public_key, (4, 9), 7)
    batches = [kahe.Encryptor(key, part=5).encrypt(update, MASK, weight=0.5, round=7) for key in keys]
    for batch in batches:
        aggregator.add(batch)
    total = aggregator.total()
    return {
        "kahe public key": public_key.to_bytes(),
        "kahe batch": batches[0].to_bytes(),
        "kahe total": total.to_bytes(),
        "kahe sum request": total.request(),
        "kahe sum key": bytes(sum_key(public_key, total.request(), keys)),
    }


def test_its_facts():
    assert (SCHEME.name, SCHEME.encryptions, SCHEME.calibrations) == ("kahe", ("kahe",), ("kahe",))
    for settled in (SCHEME.check_key_bits(1), SCHEME.key_sizes, SCHEME.has_pool, SCHEME.integer_weights):
        assert not settled


@pytest.mark.parametrize("kind", KINDS)
def test_intact_frames_are_known(kind):
    frame = frames()[kind]
    report = inspect_frame(frame)
    assert (report.kind, report.intact, report.problem) == (kind, True, "")
    assert report.size_bytes == report.declared_bytes == len(frame)
    public_key = kahe.PublicKey.from_bytes(frames()["kahe public key"])
    assert report.key_id == public_key.id.hex()
    assert report.parameter_id == public_key.parameters.id.hex()
    assert all(isinstance(fact, int | str) for fact in [*report.counts.values(), *report.parameters.values()])


def test_frames_tell_what_they_are_for():
    reports = {kind: inspect_frame(frame) for kind, frame in frames().items()}
    assert reports["kahe public key"].counts == {
        "epoch": EPOCH,
        "authority": AUTHORITY.hex(),
        "manifest digest": MANIFEST.hex(),
    }
    total = kahe.Total.from_bytes(frames()["kahe total"])
    addressed = {
        "round": 7,
        "values": 300,
        "weighted": True,
        "positions id": total.parsed.mask_id.hex(),
        "purpose id": total.parsed.purpose.hex(),
        "part": 5,
    }
    assert reports["kahe batch"].counts == addressed | {"clients": 1, "ciphertexts": 1}
    assert reports["kahe total"].counts == addressed | {"clients": 2, "ciphertexts": 1}
    digest = {"total digest": total_digest(total.to_bytes()).hex()}
    assert reports["kahe sum request"].counts == addressed | {"clients": 2} | digest
    sum_key_counts = {"clients": 2, "ring degree": 4096, "secret polynomials": 1}
    assert reports["kahe sum key"].counts == sum_key_counts | digest
    assert "secret" in reports["kahe sum key"].description


@pytest.mark.parametrize("beside", [b"", bytes(32), b"a digest of 32 bytes for a list, "[:32]])
def test_a_request_names_the_digest_of_the_total_and_of_what_is_sent_beside_it(beside):
    total = kahe.Total.from_bytes(frames()["kahe total"])
    request = _core.KaheSumRequest.from_bytes(total.request(beside))
    assert request.total_digest == total_digest(total.to_bytes(), beside)


def test_frames_with_parameters_describe_them():
    parameters = kahe.Parameters(max_clients=8)
    for kind in ("kahe public key", "kahe batch", "kahe total"):
        report = inspect_frame(frames()[kind])
        assert report.description == parameters.describe()
        facts = {
            name.replace("_", " "): value for name, value in parameters._facts.items() if name != "primes"
        }
        bits = sum(prime.bit_length() for prime in parameters._facts["primes"])
        assert report.parameters == facts | {"modulus bits": bits}


@pytest.mark.parametrize("kind", KINDS)
def test_altered_and_truncated_frames_are_noticed(kind):
    frame = frames()[kind]
    for length in (len(frame) - 1, BODY + 4):
        assert "truncated" in inspect_frame(frame[:length]).problem
    for bit in np.random.default_rng(5).integers(0, len(frame) * 8, 40).tolist():
        altered = bytearray(frame)
        altered[bit // 8] ^= 1 << (bit % 8)
        assert not inspect_frame(altered).intact, bit


def test_a_report_of_a_sum_key_shows_nothing_of_its_coefficients():
    """Whatever they are, the report is the same, and so are those of frames that are refused."""
    frame = frames()["kahe sum key"]
    others = np.random.default_rng(1).bytes(len(frame) - COEFFICIENTS - 4)
    altered = reseal(frame[:COEFFICIENTS] + others + frame[-4:])
    assert altered != frame
    assert inspect_frame(altered) == inspect_frame(frame)
    refused = [
        inspect_frame(reseal(one[:BODY] + struct.pack("<I", 0) + one[BODY + 4 :])) for one in (frame, altered)
    ]
    assert refused[0] == refused[1]
    assert not refused[0].intact


@pytest.mark.parametrize(
    ("offset", "replacement"),
    [
        (0, struct.pack("<I", 0)),
        (0, struct.pack("<I", 4)),
        (0, struct.pack("<I", 2**20 + 1)),
        (0, struct.pack("<I", 2**32 - 1)),
        (4, struct.pack("<I", 0)),
        (4, struct.pack("<I", 4095)),
        (8, struct.pack("<Q", 0)),
        (8, struct.pack("<Q", 4095)),
        (8, struct.pack("<Q", 8192)),
        (8, struct.pack("<Q", 2**64 - 4096)),
    ],
)
def test_sum_keys_that_state_what_none_has_are_refused_as_where_they_are_used(offset, replacement):
    frame, start = frames()["kahe sum key"], BODY + offset
    altered = reseal(frame[:start] + replacement + frame[start + len(replacement) :])
    report = inspect_frame(altered)
    assert report.checksum_ok
    assert not report.intact
    assert "altered" in report.problem
    public_key = kahe.PublicKey.from_bytes(frames()["kahe public key"])
    with pytest.raises(sf.WireFormatError):
        open_total(public_key, kahe.Total.from_bytes(frames()["kahe total"]), altered)


def test_a_sum_key_without_a_body_is_refused():
    frame = frames()["kahe sum key"]
    for body in (b"", frame[BODY : COEFFICIENTS - 1]):
        cut = frame[:8] + struct.pack("<Q", len(body)) + frame[16:BODY] + body + bytes(4)
        report = inspect_frame(reseal(cut))
        assert report.checksum_ok
        assert "ends before its fields do" in report.problem


def frame_bytes(parameters, count, weight):
    public_key = kahe.PublicKey.of_session(parameters, MANIFEST, AUTHORITY)
    encryptor = kahe.Encryptor(*client_keys(public_key, (1,)))
    return encryptor.encrypt(np.zeros(count, np.float32), weight=weight).nbytes


@pytest.mark.parametrize("most_weight", [1, 7])
@pytest.mark.parametrize("count", [1, 2047, 12_285, 60_000, 86_000, 500_000, 1_000_000])
def test_updates_take_the_ring_that_sends_the_fewest_bytes(count, most_weight):
    settings = {"value_bits": 24, "fraction_bits": 20}
    needs = SumNeeds(clients=20, count=count, most_weight=most_weight, **settings)
    chosen = SCHEME.update_parameters("kahe", needs)
    sizes = {}
    for degree in (2048, 4096, 8192):
        parameters = kahe.Parameters(max_clients=20, ring_degree=degree, **settings)
        sizes[degree] = frame_bytes(parameters, count, None if most_weight == 1 else 0.5)
    assert sizes[chosen.ring_degree] == min(sizes.values())
    assert (chosen.max_clients, chosen.value_bits, chosen.fraction_bits) == (20, 24, 20)


def test_an_unknown_count_takes_the_default_ring_and_calibration_the_quickest():
    needs = SumNeeds(clients=20, value_bits=24, fraction_bits=20)
    assert SCHEME.update_parameters("kahe", needs) == kahe.Parameters(max_clients=20)
    assert SCHEME.calibrated_parameters("kahe", 3072) == kahe.Parameters.plan(goal="speed")


@pytest.mark.parametrize(
    ("value_bits", "fraction_bits", "more"), [(24, 20, 3), (38, 20, 2), (24, 51, 1), (40, 20, 0)]
)
def test_weights_get_bits_while_there_is_room(value_bits, fraction_bits, more):
    counts = [1] * 7 + [400]
    settings = {"value_bits": value_bits, "fraction_bits": fraction_bits}
    needs = SumNeeds(clients=8, most_weight=400, mean_weight=sum(counts) / 8, **settings)
    assert math.ceil(math.log2(400 / needs.mean_weight)) == 3
    chosen = SCHEME.update_parameters("kahe", needs)
    assert (chosen.value_bits, chosen.fraction_bits) == (value_bits + more, fraction_bits + more)
    ckks = CKKS.update_parameters("ckks", needs)
    assert (ckks.value_bits, ckks.fraction_bits) == (chosen.value_bits, chosen.fraction_bits)


def test_needs_without_room_are_refused():
    with pytest.raises(ParameterError, match="guard bits"):
        SCHEME.update_parameters("kahe", SumNeeds(clients=2**20, value_bits=40, fraction_bits=20))


def test_the_verbs_of_every_scheme_are_its_own():
    """Positions, encryption and sums by the interface alone, up to the opening, which is an authority's."""
    needs = SumNeeds(clients=2, value_bits=24, fraction_bits=20, count=300)
    public_key = kahe.PublicKey.of_session(SCHEME.update_parameters("kahe", needs), MANIFEST, AUTHORITY)
    masks = [MASK, sf.Mask.from_indices([1, 4], 1000)]
    positions = SCHEME.read_positions(SCHEME.positions_of(masks, None).to_bytes(), 1000)
    aggregator = SCHEME.aggregator(public_key, None, 3, positions, weighted=True, purpose="update")
    keys = client_keys(public_key, (0, 1))
    updates = np.random.default_rng(2).integers(-(2**20), 2**20, (2, 1000)) * 2.0**-20
    for key, update, own in zip(keys, updates, masks, strict=True):
        frame, covered = SCHEME.encrypt(SCHEME.encryptor(key, None, "update"), update, own, positions, 0.5, 3)
        assert covered == positions.mask
        with pytest.raises(KeyMismatchError, match="another client"):
            SCHEME.add(aggregator, key.client + 1, frame, 1, None)
        SCHEME.add(aggregator, key.client, frame, 1, None)
    total = aggregator.total()
    sums, weights = open_total(public_key, total, sum_key(public_key, total.request(), keys))
    rounded = np.rint(updates * 0.5 * 2.0**20).sum(axis=0) / 2.0**20
    np.testing.assert_array_equal(sums, positions.gather(rounded))
    assert weights == 1.0
    with pytest.raises(PolicyError, match="leaves out positions"):
        SCHEME.encrypt(SCHEME.Encryptor(keys[0]), updates[0], MASK, UnionMask(masks[1]), None, 4)
