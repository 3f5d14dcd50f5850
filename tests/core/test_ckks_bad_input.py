"""Each kind of bad input gets its error, with a message that says what to do; nothing is lost."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import shieldfl as sf
from core.wire_twin import reseal


@pytest.fixture(scope="module")
def authority():
    return sf.KeyAuthority(sf.ckks.Parameters(max_clients=3), min_clients=1, one_total_per_round=False)


@pytest.fixture
def encryptor(authority):
    return sf.ckks.Encryptor(authority.public_key)


UPDATE = np.linspace(-1, 1, 100)


@pytest.mark.parametrize(
    "update",
    [
        [0.5, 1.0],
        np.arange(10),
        np.zeros(10, dtype=np.float16),
        np.zeros((5, 2)),
        np.zeros(20)[::2],
        np.zeros(10, dtype=">f8"),
        np.array(["a"]),
        None,
    ],
    ids=["list", "int64", "float16", "matrix", "strided", "big-endian", "text", "none"],
)
def test_wrong_arrays_are_refused_and_never_converted(encryptor, update):
    with pytest.raises(sf.ArrayTypeError) as caught:
        encryptor.encrypt(update)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, sf.ParameterError)


def test_update_without_values(encryptor):
    with pytest.raises(sf.ParameterError, match="at least one"):
        encryptor.encrypt(np.zeros(0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 8.0, -8.0, 1e300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_first_bad_position_is_named_and_the_value_is_not(encryptor, value, dtype):
    with np.errstate(over="ignore"):
        update = np.full(5000, 0.25, dtype=dtype)
        update[[3000, 4000]] = value
    with pytest.raises(sf.RangeError, match="position 3000") as caught:
        encryptor.encrypt(update)
    assert isinstance(caught.value, ValueError)
    assert "0.25" not in str(caught.value)


def test_range_error_names_the_position_in_the_update_not_in_the_mask(encryptor):
    update = np.zeros(1000)
    update[900] = np.nan
    with pytest.raises(sf.RangeError, match="position 900"):
        encryptor.encrypt(update, sf.Mask.from_indices(np.array([5, 900]), 1000))
    encryptor.encrypt(update, sf.Mask.from_indices(np.array([5, 899]), 1000))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_clip_does_not_hide_nan_or_infinity(encryptor, value):
    with pytest.raises(sf.RangeError):
        encryptor.encrypt(np.array([value]), clip=True)


def test_limit_itself_is_fine_and_half_a_step_above_is_not(encryptor, authority):
    limit, step = authority.public_key.parameters.value_limit, 2.0**-20
    encryptor.encrypt(np.array([limit, -limit, limit + 0.49 * step]))
    with pytest.raises(sf.RangeError):
        encryptor.encrypt(np.array([limit + 0.51 * step]))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, 8.0, 1e-9])
def test_bad_weights(encryptor, weight):
    with pytest.raises(sf.ParameterError, match="weight"):
        encryptor.encrypt(UPDATE, weight=weight)


def test_weight_that_pushes_a_value_out_of_range(encryptor):
    with pytest.raises(sf.RangeError, match="position 0"):
        encryptor.encrypt(np.array([4.0]), weight=3.0)


def test_mask_of_another_size(encryptor):
    with pytest.raises(sf.ParameterError, match="99"):
        encryptor.encrypt(UPDATE, sf.Mask.full(99))


@pytest.mark.parametrize("round_number", [-1, 2**64, 1.5, "1"])
def test_bad_rounds(encryptor, round_number):
    with pytest.raises(sf.ParameterError, match="round"):
        encryptor.encrypt(UPDATE, round=round_number)


@pytest.mark.parametrize("threads", [0, -1, 5000, 1.5])
def test_bad_threads(authority, threads):
    with pytest.raises(sf.ParameterError, match="threads"):
        sf.ckks.Encryptor(authority.public_key, threads=threads).encrypt(UPDATE)


@pytest.mark.parametrize(
    "settings",
    [
        {"packing": "dense"},
        {"max_clients": 0},
        {"max_clients": 2**20 + 1},
        {"max_clients": 2**40},
        {"max_clients": -1},
        {"value_bits": 1},
        {"value_bits": 41},
        {"value_bits": 2.5},
        {"fraction_bits": 53},
        {"ring_degree": 1024},
        {"ring_degree": 2048, "value_bits": 40},
        {"max_clients": 2**20, "value_bits": 40},
        {"packing": "slots", "fraction_bits": 52},
    ],
)
def test_bad_parameters(settings):
    with pytest.raises(sf.ParameterError):
        sf.ckks.Parameters(**settings)


def test_parameters_cannot_be_changed():
    parameters = sf.ckks.Parameters()
    with pytest.raises(AttributeError):
        parameters.max_clients = 5


class TestAggregatorKeepsWhatItHolds:
    @pytest.fixture
    def aggregator(self, authority, encryptor):
        aggregator = sf.ckks.Aggregator(authority.public_key)
        aggregator.add(encryptor.encrypt(UPDATE, round=1))
        return aggregator

    @pytest.fixture(autouse=True)
    def still_whole(self, aggregator, authority, encryptor):
        before = aggregator.clients
        yield
        assert aggregator.clients == before
        aggregator.add(encryptor.encrypt(UPDATE, round=1))
        step = 2.0**20
        np.testing.assert_array_equal(
            authority.open(aggregator.total()), (before + 1) * np.rint(UPDATE * step) / step
        )

    def test_same_frame_twice(self, aggregator, encryptor, authority):
        fresh = sf.ckks.Aggregator(authority.public_key)
        batch = encryptor.encrypt(UPDATE, round=1)
        fresh.add(batch)
        for again in (batch, batch.to_bytes()):
            with pytest.raises(sf.DuplicateFrameError):
                fresh.add(again)
        assert fresh.clients == 1

    def test_another_round(self, aggregator, encryptor):
        with pytest.raises(sf.PolicyError, match="round 2"):
            aggregator.add(encryptor.encrypt(UPDATE, round=2))

    def test_foreign_key(self, aggregator, authority):
        other = sf.KeyAuthority(authority.public_key.parameters)
        with pytest.raises(sf.KeyMismatchError):
            aggregator.add(sf.ckks.Encryptor(other.public_key).encrypt(UPDATE, round=1))

    def test_foreign_parameters(self, aggregator):
        other = sf.KeyAuthority(sf.ckks.Parameters(max_clients=4))
        with pytest.raises(sf.ParameterError):
            aggregator.add(sf.ckks.Encryptor(other.public_key).encrypt(UPDATE, round=1))

    def test_other_positions_and_weights(self, aggregator, encryptor):
        mask = sf.Mask.from_indices(np.arange(100), 101)
        for batch in (
            encryptor.encrypt(UPDATE[:50], round=1),
            encryptor.encrypt(np.append(UPDATE, 0.0), mask, round=1),
            encryptor.encrypt(UPDATE, weight=1.0, round=1),
        ):
            with pytest.raises(sf.ParameterError):
                aggregator.add(batch)

    def test_damaged_bytes(self, aggregator, encryptor):
        frame = encryptor.encrypt(UPDATE, round=1).to_bytes()
        flipped = bytearray(frame)
        flipped[len(frame) // 2] ^= 1
        mask = sf.Mask.full(3).to_bytes()
        for bad in (b"", b"SHFL", frame[:-1], frame + b"\0", bytes(flipped), frame[::-1], mask):
            with pytest.raises(sf.WireFormatError):
                aggregator.add(bad)

    def test_residue_above_its_modulus(self, aggregator, encryptor):
        frame = bytearray(encryptor.encrypt(UPDATE, round=1).to_bytes())
        frame[-1000:-900] = b"\xff" * 100
        with pytest.raises(sf.WireFormatError, match="modulus"):
            aggregator.add(reseal(bytes(frame)))

    @pytest.mark.parametrize("thing", [None, 5, "frame", np.zeros(4)])
    def test_things_that_are_no_batch(self, aggregator, thing):
        with pytest.raises(sf.WireFormatError):
            aggregator.add(thing)

    def test_more_than_max_clients(self, authority, encryptor, aggregator):
        full = sf.ckks.Aggregator(authority.public_key)
        for _ in range(3):
            full.add(encryptor.encrypt(UPDATE))
        with pytest.raises(sf.CapacityError):
            full.add(encryptor.encrypt(UPDATE))
        np.testing.assert_array_equal(authority.open(full.total()) * 2**20, 3 * np.rint(UPDATE * 2**20))


def test_total_of_nothing(authority):
    with pytest.raises(sf.ParameterError, match="at least one"):
        sf.ckks.Aggregator(authority.public_key).total()


def test_tampered_ciphertext_does_not_open_to_plausible_sums(authority, encryptor):
    """A checksum can be made to fit by whoever alters a frame; the range check of the sums catches this one."""
    aggregator = sf.ckks.Aggregator(authority.public_key)
    aggregator.add(encryptor.encrypt(UPDATE))
    total = bytearray(aggregator.total().to_bytes())
    total[-5000] ^= 0x55
    with pytest.raises(sf.WireFormatError, match="sums of values in range"):
        authority.open(reseal(bytes(total)))


@pytest.mark.parametrize("thing", [None, 10**15, "frame", np.zeros(4)])
def test_frames_are_bytes(thing):
    for kind in (sf.ckks.CiphertextBatch, sf.ckks.Total):
        with pytest.raises(sf.WireFormatError):
            kind.from_bytes(thing)


def test_things_of_the_wrong_type_are_refused_with_advice(encryptor, authority):
    with pytest.raises(sf.ArrayTypeError, match="from_bool"):
        encryptor.encrypt(UPDATE, np.ones(100, dtype=bool))
    with pytest.raises(sf.ParameterError, match="weight"):
        encryptor.encrypt(UPDATE, weight="heavy")
    for make in (sf.ckks.Encryptor, sf.ckks.Aggregator):
        with pytest.raises(sf.ParameterError, match="public_key"):
            make(authority)
    with pytest.raises(sf.WireFormatError, match="bytes"):
        sf.ckks.PublicKey.from_bytes("key")


def test_unaligned_and_masked_arrays_are_refused(encryptor):
    unaligned = np.frombuffer(bytes(41), np.float32, offset=1, count=10)
    with pytest.raises(sf.ArrayTypeError, match="aligned"):
        encryptor.encrypt(unaligned)
    with pytest.raises(sf.ArrayTypeError, match="masked"):
        encryptor.encrypt(np.ma.masked_array(np.zeros(3), [True, False, False]))


def test_a_batch_that_was_read_does_not_change_with_the_buffer(authority, encryptor):
    buffer = bytearray(encryptor.encrypt(UPDATE, round=1).to_bytes())
    batch = sf.ckks.CiphertextBatch.from_bytes(memoryview(buffer))
    before = bytes(buffer)
    buffer[:] = bytes(len(buffer))
    assert batch.to_bytes() == before
    aggregator = sf.ckks.Aggregator(authority.public_key)
    aggregator.add(batch)
    np.testing.assert_array_equal(authority.open(aggregator.total()) * 2**20, np.rint(UPDATE * 2**20))


@pytest.mark.parametrize("wrap", [bytearray, lambda frame: memoryview(bytearray(frame))])
def test_a_buffer_that_changes_while_it_is_added_spoils_that_sum_at_worst(authority, encryptor, wrap):
    """Whoever writes to it breaks the contract: the frame is refused or the sum is wrong, and no more than that."""
    frame = encryptor.encrypt(np.zeros(300_000, dtype=np.float32), round=1).to_bytes()
    stop = threading.Event()
    buffer = wrap(frame)

    def scribble():
        while not stop.is_set():
            buffer[len(frame) // 2 :] = b"\xff" * (len(frame) - len(frame) // 2)
            buffer[:] = frame

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for _ in range(20):
            aggregator = sf.ckks.Aggregator(authority.public_key)
            try:
                aggregator.add(buffer)
            except sf.WireFormatError:
                assert aggregator.clients == 0
            else:
                assert aggregator.clients == 1
    finally:
        stop.set()
        writer.join()
    buffer[:] = frame
    aggregator = sf.ckks.Aggregator(authority.public_key)
    aggregator.add(buffer)
    assert not authority.open(aggregator.total()).any()
