"""What every encryption scheme refuses, with a message that says what to do; and what some refuse beside."""

from __future__ import annotations

import threading
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

import shieldfl as sf
from encryption.enrolled_clients import KnownSession
from encryption.paillier_keys import authority_for, base_for, primes, public_key_frame
from encryption.test_scheme_conformance import client_of
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
    """Subclass it with the scheme and what makes an authority of parameters."""

    scheme = sf.ckks
    make_authority = staticmethod(partial(sf.KeyAuthority, min_clients=1, one_total_per_round=False))
    settings: ClassVar = {}

    @classmethod
    def another(cls, **settings):
        return cls.make_authority(cls.scheme.Parameters(**{"max_clients": 3} | cls.settings | settings))

    @pytest.fixture(scope="class")
    @classmethod
    def authority(cls):
        return cls.another()

    def client(self, authority):
        """Another client each time, where they enrol."""
        return self.scheme.Encryptor(client_of(authority))

    @pytest.fixture
    def encryptor(self, authority):
        return self.client(authority)

    @pytest.fixture
    def batch(self, authority):
        return self.client(authority).encrypt(UPDATE, round=1)

    @pytest.fixture
    def aggregator(self, authority, batch):
        """One that holds a batch; whatever a test gives it, it holds that batch alone afterwards."""
        aggregator = self.scheme.Aggregator(authority.public_key)
        aggregator.add(batch)
        before = aggregator.total().to_bytes()
        yield aggregator
        assert aggregator.clients == 1
        assert aggregator.total().to_bytes() == before
        aggregator.add(self.client(authority).encrypt(UPDATE, round=1))
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
        for empty in ([], [floats[:0], floats[:0]], floats[:0]):
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
        key = client_of(authority)
        for make, given in ((self.scheme.Encryptor, key), (self.scheme.Aggregator, authority.public_key)):
            with pytest.raises(sf.ParameterError, match="threads"):
                make(given, threads=threads)

    def test_things_that_are_no_public_key(self, authority):
        for make in (self.scheme.Encryptor, self.scheme.Aggregator):
            for thing in (authority, "key", None):
                with pytest.raises(sf.ParameterError, match=rf"Key of \w+, got {type(thing).__name__}"):
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
        with pytest.raises(sf.ParameterError):
            aggregator.add(self.client(self.another(max_clients=4)).encrypt(UPDATE, round=1))

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
            full.add(self.client(authority).encrypt(UPDATE))
        with pytest.raises(sf.CapacityError):
            full.add(encryptor.encrypt(UPDATE))
        np.testing.assert_array_equal(authority.open(full.total()), 3 * SUM)

    def test_total_of_nothing(self, authority):
        with pytest.raises(sf.ParameterError, match="at least one"):
            self.scheme.Aggregator(authority.public_key).total()

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


class OfKeyPairs(SchemeRefusals):
    def test_tampered_ciphertext_does_not_open_to_plausible_sums(self, authority, total):
        """A checksum can be made to fit by whoever alters a frame; the range check of the sums catches this one."""
        frame = bytearray(total.to_bytes())
        frame[-400] ^= 0x55
        with pytest.raises(sf.WireFormatError, match="sums of values in range"):
            authority.open(reseal(bytes(frame)))


class TestKahe(SchemeRefusals):
    scheme = sf.kahe
    make_authority = KnownSession


class TestPads(TestKahe):
    scheme = sf.pads


class TestCkks(OfKeyPairs):
    def test_foreign_key(self, aggregator):
        with pytest.raises(sf.KeyMismatchError):
            aggregator.add(self.client(self.another()).encrypt(UPDATE, round=1))

    @pytest.mark.parametrize("wrap", [bytearray, lambda frame: memoryview(bytearray(frame))])
    def test_a_buffer_that_changes_while_it_is_added_spoils_that_sum_at_worst(
        self, authority, encryptor, wrap
    ):
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


class TestPaillier(OfKeyPairs):
    """An update fills three ciphertexts."""

    scheme = sf.paillier
    make_authority = staticmethod(authority_for)
    settings: ClassVar = {"key_bits": 2048, "max_weight": 2}

    def test_foreign_key(self, aggregator, authority):
        parameters = authority.public_key.parameters
        p, q = primes(parameters.key_bits)
        other_base = base_for(parameters, p * q) * 9 % (p * q)
        key = sf.paillier.PublicKey.from_bytes(public_key_frame(parameters, p * q, other_base))
        with pytest.raises(sf.KeyMismatchError):
            aggregator.add(sf.paillier.Encryptor(key).encrypt(UPDATE, round=1))

    @values_out_of_range
    def test_first_bad_position_in_a_union_is_named(self, encryptor, value):
        update = np.full(500, 0.25)
        update[[300, 400]] = value
        mask = sf.Mask.from_indices([5, 300], 500)
        order = sf.paillier.UnionOrder.from_masks([mask, sf.Mask.from_indices([7], 500)])
        with pytest.raises(sf.RangeError, match="position 300"):
            encryptor.encrypt_in_union(update, order, mask)

    def test_a_batch_in_a_union_among_others(self, aggregator, encryptor):
        order = sf.paillier.UnionOrder.from_masks([sf.Mask.full(SIZE)])
        with pytest.raises(sf.ParameterError):
            aggregator.add(encryptor.encrypt_in_union(UPDATE, order, sf.Mask.full(SIZE), round=1))

    @pytest.mark.parametrize("weight", [0, 3, 2**32 + 1, 2**70, -1, 1.5, None])
    def test_bad_integer_weights(self, aggregator, encryptor, weight):
        with pytest.raises(sf.ParameterError, match="weight"):
            aggregator.add(encryptor.encrypt(UPDATE, round=1), weight=weight)

    def test_a_batch_with_an_encrypted_weight_takes_no_other(self, authority, encryptor):
        aggregator = sf.paillier.Aggregator(authority.public_key)
        with pytest.raises(sf.ParameterError, match="weight"):
            aggregator.add(encryptor.encrypt(UPDATE, weight=1.0), weight=2)
        aggregator.add(encryptor.encrypt(UPDATE, weight=1.0))

    @pytest.mark.parametrize(
        "ask",
        [
            lambda encryptor: encryptor.precompute(-1),
            lambda encryptor: encryptor.precompute(2**24 + 1),
            lambda encryptor: encryptor.ciphertexts_for(-1),
            lambda encryptor: encryptor.encrypt_in_union(UPDATE, None, sf.Mask.full(SIZE)),
        ],
    )
    def test_bad_settings(self, encryptor, ask):
        with pytest.raises(sf.ParameterError):
            ask(encryptor)

    def test_residues_that_are_none_under_a_fitting_checksum(self, aggregator, encryptor):
        """Above n^2, zero, and with a factor in common with n, which only whoever knows it can send."""
        p, q = primes(2048)
        frame = encryptor.encrypt(UPDATE, round=1).to_bytes()
        for residue in ((p * q) ** 2, 2**4096 - 1, 0, p, q * q, p * q, 12345 * p):
            for block in range(3):
                altered = bytearray(frame)
                begin = len(frame) - 4 - (3 - block) * 512
                altered[begin : begin + 512] = residue.to_bytes(512, "big")
                with pytest.raises(sf.WireFormatError, match=rf"\b{block}\b"):
                    aggregator.add(reseal(bytes(altered)))

    def test_frames_of_the_other_scheme(self, aggregator):
        other = sf.KeyAuthority(sf.ckks.Parameters(max_clients=3))
        batch = sf.ckks.Encryptor(other.public_key).encrypt(UPDATE, round=1)
        read = sf.ckks.CiphertextBatch.from_bytes(batch.to_bytes())
        for source in (batch, batch.to_bytes(), read):
            with pytest.raises(sf.WireFormatError, match="ckks batch"):
                aggregator.add(source)
            with pytest.raises(sf.WireFormatError, match="ckks batch"):
                aggregator.add(source, clear=np.zeros(SIZE))

    @pytest.mark.parametrize(
        ("clear", "error"),
        [
            (np.zeros(SIZE - 1), sf.ParameterError),
            (np.zeros(0), sf.ParameterError),
            (np.zeros(SIZE, dtype=np.int64), sf.ArrayTypeError),
            ([0.0] * SIZE, sf.ArrayTypeError),
            (np.full(SIZE, 8.0), sf.RangeError),
            (np.full(SIZE, np.nan, dtype=np.float32), sf.RangeError),
        ],
        ids=["too few", "none", "integers", "list", "too large", "nan"],
    )
    def test_bad_clear_fields(self, aggregator, encryptor, clear, error):
        batch = encryptor.encrypt(UPDATE, round=1)
        for source in (batch.to_bytes(), sf.paillier.CiphertextBatch.from_bytes(batch.to_bytes())):
            with pytest.raises(error):
                aggregator.add(source, clear=clear)

    def test_a_forged_weight_does_not_pass(self, authority, total):
        """Clients and weight stand in the frame: more weight than clients can have is refused when it is read."""
        frame = total.to_bytes()
        offset = 48 + 16 + 8 + 16 + 8 + 4 + 4
        assert frame[offset : offset + 8] == (1).to_bytes(8, "little")
        for weight in (0, 3, 2**63):
            with pytest.raises(sf.WireFormatError, match="weights"):
                authority.open(reseal(frame[:offset] + weight.to_bytes(8, "little") + frame[offset + 8 :]))
