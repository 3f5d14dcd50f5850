"""What an aggregator adds: frames from any memory or file, other aggregators' totals, and nothing by half."""

from __future__ import annotations

import mmap
import pathlib
import pickle

import numpy as np
import pytest

import shieldfl as sf
from encryption.wire_twin import reseal

SIZE = 5000  # three ciphertexts with one prime
UPDATES = [np.random.default_rng(seed).uniform(-1, 1, SIZE).astype(np.float32) for seed in range(6)]


@pytest.fixture(scope="module", params=[2048, 4096], ids=["one prime", "two primes"])
def authority(request):
    parameters = sf.ckks.Parameters(ring_degree=request.param, max_clients=8)
    return sf.KeyAuthority(parameters, min_clients=1, one_total_per_round=False)


@pytest.fixture(scope="module")
def batches(authority):
    encryptor = sf.ckks.Encryptor(authority.public_key)
    return [encryptor.encrypt(update, round=4).to_bytes() for update in UPDATES]


def aggregate(authority, frames, threads=2):
    aggregator = sf.ckks.Aggregator(authority.public_key, threads=threads)
    for frame in frames:
        aggregator.add(frame)
    return aggregator


def expected(updates):
    return sum(np.rint(update.astype(np.float64) * 2**20) for update in updates) / 2**20


def as_file(frame, folder):
    path = folder / "batch.shfl"
    path.write_bytes(frame)
    return path


def as_mapping(frame, folder):
    with as_file(frame, folder).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda frame, _: frame,
        lambda frame, _: bytearray(frame),
        lambda frame, _: memoryview(frame),
        lambda frame, _: memoryview(b"before" + frame + b"after")[6:-5],
        lambda frame, _: memoryview(np.frombuffer(frame, np.uint8)),
        as_mapping,
        as_file,
        lambda frame, _: sf.ckks.CiphertextBatch.from_bytes(frame),
        lambda frame, _: sf.ckks.CiphertextBatch.from_bytes(frame, threads=2),
        lambda frame, _: sf.ckks.CiphertextBatch(frame),
        lambda frame, _: pickle.loads(pickle.dumps(sf.ckks.CiphertextBatch.from_bytes(frame))),
    ],
    ids=[
        *("bytes", "bytearray", "memoryview", "slice", "array", "mmap", "path"),
        *("read", "read by two threads", "not read", "pickled"),
    ],
)
def test_frames_are_added_from_any_memory_or_file(authority, batches, tmp_path, wrap):
    aggregator = aggregate(authority, [wrap(batches[0], tmp_path), batches[1]])
    assert aggregator.total().to_bytes() == aggregate(authority, batches[:2]).total().to_bytes()
    np.testing.assert_array_equal(authority.open(aggregator.total()), expected(UPDATES[:2]))


def test_files_that_cannot_be_added(authority, batches, tmp_path):
    aggregator = aggregate(authority, batches[:1])
    before = aggregator.total().to_bytes()
    (tmp_path / "empty").touch()
    with pytest.raises(sf.WireFormatError, match="too short"):
        aggregator.add(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        aggregator.add(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        aggregator.add(tmp_path)
    assert aggregator.total().to_bytes() == before


@pytest.mark.parametrize(
    "thing",
    [memoryview(np.zeros((20, 20), np.uint8)), memoryview(np.zeros(100)), memoryview(bytes(200))[::2]],
    ids=["matrix", "doubles", "every other byte"],
)
def test_memory_that_is_no_flat_row_of_bytes(authority, thing):
    with pytest.raises(sf.WireFormatError, match="flat contiguous"):
        sf.ckks.Aggregator(authority.public_key).add(thing)


class TestNothingIsAddedByHalf:
    """Whatever is refused leaves the total as it was, byte for byte, also where damage shows at the end."""

    @pytest.fixture
    def aggregator(self, authority, batches):
        return aggregate(authority, batches[:3])

    @pytest.fixture(autouse=True)
    def as_it_was(self, aggregator, authority, batches):
        before = aggregator.total().to_bytes()
        yield
        assert aggregator.clients == 3
        assert aggregator.total().to_bytes() == before
        aggregator.add(batches[3])
        np.testing.assert_array_equal(authority.open(aggregator.total()), expected(UPDATES[:4]))

    @pytest.mark.parametrize("back", [100, 20_000, 40_000])
    def test_residues_above_the_modulus_under_a_fitting_checksum(self, aggregator, batches, back):
        damaged = bytearray(batches[4])
        damaged[-back : 40 - back] = b"\xff" * 40
        with pytest.raises(sf.WireFormatError, match="modulus"):
            aggregator.add(reseal(bytes(damaged)))

    def test_a_total_that_shares_a_batch(self, aggregator, authority, batches):
        for group in (batches[2:5], batches[:1], batches[:3]):
            with pytest.raises(sf.DuplicateFrameError):
                aggregator.add_total(aggregate(authority, group).total())

    def test_a_total_with_too_many_clients(self, aggregator, authority):
        encryptor = sf.ckks.Encryptor(authority.public_key)
        six = aggregate(authority, [encryptor.encrypt(UPDATES[0], round=4) for _ in range(6)])
        with pytest.raises(sf.CapacityError):
            aggregator.add_total(six.total())

    def test_a_damaged_total(self, aggregator, authority, batches):
        total = bytearray(aggregate(authority, batches[4:]).total().to_bytes())
        total[-50_000] ^= 1
        with pytest.raises(sf.WireFormatError, match="checksum"):
            aggregator.add_total(total)
        total[-200:-100] = b"\xff" * 100
        with pytest.raises(sf.WireFormatError, match="modulus"):
            aggregator.add_total(reseal(bytes(total)))


def test_a_refused_first_frame_decides_nothing(authority, batches):
    aggregator = sf.ckks.Aggregator(authority.public_key)
    damaged = bytearray(batches[0])
    damaged[-30] ^= 1
    with pytest.raises(sf.WireFormatError):
        aggregator.add(damaged)
    assert aggregator.round is None
    with pytest.raises(sf.ParameterError, match="at least one"):
        aggregator.total()
    small = sf.ckks.Encryptor(authority.public_key).encrypt(UPDATES[0][:7], round=9)
    aggregator.add(small)
    np.testing.assert_array_equal(authority.open(aggregator.total()), expected([UPDATES[0][:7]]))


@pytest.mark.parametrize("mask", [sf.Mask.full(SIZE), sf.Mask.from_indices(np.arange(0, SIZE, 3), size=SIZE)])
def test_what_was_agreed_on_decides_and_not_the_first_frame(authority, mask):
    encryptor = sf.ckks.Encryptor(authority.public_key)
    aggregator = sf.ckks.Aggregator(authority.public_key, round=4, positions=mask, weighted=False)
    other = ~mask if mask.count < SIZE else sf.Mask.from_indices([1, 2], size=SIZE)
    for settings, error in (
        ({"round": 5, "mask": mask}, sf.PolicyError),
        ({"round": 4, "mask": other}, sf.ParameterError),
        ({"round": 4, "mask": mask, "weight": 0.5}, sf.ParameterError),
    ):
        for batch in (refused := encryptor.encrypt(UPDATES[0], **settings), refused.to_bytes()):
            with pytest.raises(error):
                aggregator.add(batch)
        assert aggregator.clients == 0
    aggregator.add(encryptor.encrypt(UPDATES[0], mask, round=4).to_bytes())
    selected = UPDATES[0][mask.to_indices()]
    np.testing.assert_array_equal(authority.open(aggregator.total()), expected([selected]))


def test_a_mapped_file_is_closed_afterwards(authority, batches, tmp_path):
    path = as_file(batches[0], tmp_path)
    opened = pathlib.Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    aggregate(authority, [path])
    with pytest.raises(sf.WireFormatError):
        aggregate(authority, [as_file(batches[0][:-1], tmp_path)])
    assert len(list(opened.iterdir())) == before
    path.unlink()
