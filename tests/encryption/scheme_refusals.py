"""What every encryption scheme refuses, with a message that says what to do; nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from encryption.wire_twin import reseal

SIZE = 200
UPDATE = np.linspace(-1, 1, SIZE)
STEP = 2.0**20
SUM = np.rint(UPDATE * STEP) / STEP

wrong_arrays = pytest.mark.parametrize(
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
values_out_of_range = pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 8.0, -8.0, 1e300])


class SchemeRefusals:
    """Subclass it with the scheme and ``make_authority(**parameters)``; ``max_clients`` is 3 unless it is given."""

    scheme = sf.ckks

    @staticmethod
    def make_authority(**parameters):
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def authority(cls):
        return cls.make_authority()

    @pytest.fixture(scope="class")
    @classmethod
    def encryptor(cls, authority):
        return cls.scheme.Encryptor(authority.public_key)

    @pytest.fixture
    def batch(self, encryptor):
        return encryptor.encrypt(UPDATE, round=1)

    @pytest.fixture
    def aggregator(self, authority, encryptor, batch):
        """One that holds a batch; whatever a test gives it, it holds that batch alone afterwards."""
        aggregator = self.scheme.Aggregator(authority.public_key)
        aggregator.add(batch)
        before = aggregator.total().to_bytes()
        yield aggregator
        assert aggregator.clients == 1
        assert aggregator.total().to_bytes() == before
        aggregator.add(encryptor.encrypt(UPDATE, round=1))
        np.testing.assert_array_equal(authority.open(aggregator.total()), 2 * SUM)

    @pytest.fixture
    def total(self, authority, batch):
        aggregator = self.scheme.Aggregator(authority.public_key)
        aggregator.add(batch)
        return aggregator.total()

    @wrong_arrays
    def test_wrong_arrays_are_refused_and_never_converted(self, encryptor, update):
        with pytest.raises(sf.ArrayTypeError) as caught:
            encryptor.encrypt(update)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, sf.ParameterError)

    def test_wrong_pieces_are_refused_by_their_number(self, encryptor):
        floats = np.zeros(3, np.float32)
        with pytest.raises(sf.ArrayTypeError, match="piece 1 of the update has dtype int64"):
            encryptor.encrypt([floats, np.zeros(3, np.int64)])
        with pytest.raises(sf.ArrayTypeError, match="several dtypes"):
            encryptor.encrypt([floats, np.zeros(3)])
        for empty in ([], [floats[:0], floats[:0]]):
            with pytest.raises(sf.ParameterError, match="no values"):
                encryptor.encrypt(empty)
        with pytest.raises(sf.RangeError, match="at position 4 "):
            encryptor.encrypt([floats, np.array([0, np.nan], np.float32)])
        with pytest.raises(sf.ParameterError, match="5 and 6 positions"):
            encryptor.encrypt([floats, floats], sf.Mask.full(5))

    def test_unaligned_and_masked_arrays_are_refused(self, encryptor):
        unaligned = np.frombuffer(bytes(41), np.float32, offset=1, count=10)
        with pytest.raises(sf.ArrayTypeError, match="aligned"):
            encryptor.encrypt(unaligned)
        with pytest.raises(sf.ArrayTypeError, match="masked"):
            encryptor.encrypt(np.ma.masked_array(np.zeros(3), [True, False, False]))

    def test_update_without_values(self, encryptor):
        with pytest.raises(sf.ParameterError, match="at least one"):
            encryptor.encrypt(np.zeros(0))

    @values_out_of_range
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_first_bad_position_is_named_and_the_value_is_not(self, encryptor, value, dtype):
        with np.errstate(over="ignore"):
            update = np.full(5000, 0.25, dtype=dtype)
            update[[3000, 4000]] = value
        with pytest.raises(sf.RangeError, match="position 3000") as caught:
            encryptor.encrypt(update)
        assert isinstance(caught.value, ValueError)
        assert "0.25" not in str(caught.value)

    def test_range_error_names_the_position_in_the_update_not_in_the_mask(self, encryptor):
        update = np.zeros(1000)
        update[900] = np.nan
        with pytest.raises(sf.RangeError, match="position 900"):
            encryptor.encrypt(update, sf.Mask.from_indices([5, 900], 1000))
        encryptor.encrypt(update, sf.Mask.from_indices([5, 899], 1000))

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_clip_does_not_hide_nan_or_infinity(self, encryptor, value):
        with pytest.raises(sf.RangeError):
            encryptor.encrypt(np.array([value]), clip=True)

    def test_limit_itself_is_fine_and_half_a_step_above_is_not(self, encryptor, authority):
        limit = authority.public_key.parameters.value_limit
        encryptor.encrypt(np.array([limit, -limit, limit + 0.49 / STEP]))
        with pytest.raises(sf.RangeError):
            encryptor.encrypt(np.array([limit + 0.51 / STEP]))

    @pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, 8.0, 1e-9, "heavy"])
    def test_bad_encrypted_weights(self, encryptor, weight):
        with pytest.raises(sf.ParameterError, match="weight"):
            encryptor.encrypt(UPDATE, weight=weight)

    def test_weight_that_pushes_a_value_out_of_range(self, encryptor):
        with pytest.raises(sf.RangeError, match="position 0"):
            encryptor.encrypt(np.array([4.0]), weight=3.0)

    def test_things_that_are_no_mask_of_the_update(self, encryptor):
        with pytest.raises(sf.ParameterError, match="99"):
            encryptor.encrypt(UPDATE, sf.Mask.full(99))
        with pytest.raises(sf.ArrayTypeError, match="from_bool"):
            encryptor.encrypt(UPDATE, np.ones(SIZE, dtype=bool))

    @pytest.mark.parametrize("round_number", [-1, 2**64, 1.5, "1"])
    def test_bad_rounds(self, authority, encryptor, round_number):
        with pytest.raises(sf.ParameterError, match="round"):
            encryptor.encrypt(UPDATE, round=round_number)
        with pytest.raises(sf.ParameterError, match="round"):
            self.scheme.Aggregator(authority.public_key, round=round_number)

    @pytest.mark.parametrize("threads", [0, -1, 5000, 1.5])
    def test_bad_threads(self, authority, threads):
        for make in (self.scheme.Encryptor, self.scheme.Aggregator):
            with pytest.raises(sf.ParameterError, match="threads"):
                make(authority.public_key, threads=threads)

    def test_things_that_are_no_public_key(self, authority):
        for make in (self.scheme.Encryptor, self.scheme.Aggregator):
            for thing in (authority, "key", None):
                with pytest.raises(sf.ParameterError, match="public_key"):
                    make(thing)
        with pytest.raises(sf.WireFormatError, match="bytes"):
            self.scheme.PublicKey.from_bytes("key")

    def test_same_frame_twice(self, aggregator, batch):
        for again in (batch, batch.to_bytes()):
            with pytest.raises(sf.DuplicateFrameError):
                aggregator.add(again)

    def test_another_round(self, aggregator, encryptor):
        with pytest.raises(sf.PolicyError, match="round 2"):
            aggregator.add(encryptor.encrypt(UPDATE, round=2))

    def test_foreign_parameters(self, aggregator):
        other = self.make_authority(max_clients=4)
        with pytest.raises(sf.ParameterError):
            aggregator.add(self.scheme.Encryptor(other.public_key).encrypt(UPDATE, round=1))

    def test_other_positions_and_weights(self, aggregator, encryptor):
        mask = sf.Mask.from_indices(np.arange(SIZE), SIZE + 1)
        for batch in (
            encryptor.encrypt(UPDATE[:50], round=1),
            encryptor.encrypt(np.append(UPDATE, 0.0), mask, round=1),
            encryptor.encrypt(UPDATE, weight=1.0, round=1),
        ):
            with pytest.raises(sf.ParameterError):
                aggregator.add(batch)

    def test_damaged_bytes(self, aggregator, encryptor):
        frame = encryptor.encrypt(UPDATE, round=1).to_bytes()
        mask = sf.Mask.full(3).to_bytes()
        for bad in (b"", b"SHFL", frame[:-1], frame + b"\0", frame[::-1], mask):
            with pytest.raises(sf.WireFormatError):
                aggregator.add(bad)
        positions = np.random.default_rng(0).integers(48, len(frame), 40)
        for position in [*range(48), *positions.tolist(), len(frame) - 1]:
            damaged = bytearray(frame)
            damaged[position] ^= 1 << (position % 8)
            with pytest.raises(sf.WireFormatError):
                aggregator.add(damaged)

    @pytest.mark.parametrize("thing", [None, 5, "frame", np.zeros(4)])
    def test_things_that_are_no_batch(self, aggregator, thing):
        with pytest.raises(sf.WireFormatError):
            aggregator.add(thing)

    def test_batches_and_totals_are_not_each_other(self, aggregator, batch, total):
        for source in (total, total.to_bytes(), self.scheme.Total.from_bytes(total.to_bytes())):
            with pytest.raises(sf.WireFormatError, match="batch"):
                aggregator.add(source)
        for source in (batch, batch.to_bytes(), self.scheme.CiphertextBatch.from_bytes(batch.to_bytes())):
            with pytest.raises(sf.WireFormatError, match="total"):
                aggregator.add_total(source)

    def test_more_than_max_clients(self, authority, encryptor):
        full = self.scheme.Aggregator(authority.public_key)
        for _ in range(3):
            full.add(encryptor.encrypt(UPDATE))
        with pytest.raises(sf.CapacityError):
            full.add(encryptor.encrypt(UPDATE))
        np.testing.assert_array_equal(authority.open(full.total()), 3 * SUM)

    def test_total_of_nothing(self, authority):
        with pytest.raises(sf.ParameterError, match="at least one"):
            self.scheme.Aggregator(authority.public_key).total()

    def test_tampered_ciphertext_does_not_open_to_plausible_sums(self, authority, total):
        """A checksum can be made to fit by whoever alters a frame; the range check of the sums catches this one."""
        frame = bytearray(total.to_bytes())
        frame[-400] ^= 0x55
        with pytest.raises(sf.WireFormatError, match="sums of values in range"):
            authority.open(reseal(bytes(frame)))

    @pytest.mark.parametrize("thing", [None, 10**15, "frame", np.zeros(4)])
    def test_frames_are_bytes(self, thing):
        for kind in (self.scheme.CiphertextBatch, self.scheme.Total, self.scheme.PublicKey):
            with pytest.raises(sf.WireFormatError):
                kind.from_bytes(thing)

    def test_a_batch_that_was_read_does_not_change_with_the_buffer(self, authority, batch):
        buffer = bytearray(batch.to_bytes())
        read = self.scheme.CiphertextBatch.from_bytes(memoryview(buffer))
        buffer[:] = bytes(len(buffer))
        assert read.to_bytes() == batch.to_bytes()
        aggregator = self.scheme.Aggregator(authority.public_key)
        aggregator.add(read)
        np.testing.assert_array_equal(authority.open(aggregator.total()), SUM)
