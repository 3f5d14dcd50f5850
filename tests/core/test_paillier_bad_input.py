"""Each kind of bad input gets its error, with a message that says what to do; nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from core.paillier_keys import authority_for, base_for, primes, public_key_frame
from core.wire_twin import reseal

SIZE = 200  # three ciphertexts
UPDATE = np.linspace(-1, 1, SIZE)
STEP = 2.0**20


@pytest.fixture(scope="module")
def authority():
    return authority_for(sf.paillier.Parameters(key_bits=2048, max_clients=3, max_weight=2))


@pytest.fixture(scope="module")
def encryptor(authority):
    return sf.paillier.Encryptor(authority.public_key)


def total_of(authority, *batches):
    aggregator = sf.paillier.Aggregator(authority.public_key)
    for batch in batches:
        aggregator.add(batch)
    return aggregator.total()


@pytest.mark.parametrize(
    "update",
    [[0.5, 1.0], np.arange(10), np.zeros((5, 2)), np.zeros(20)[::2], np.zeros(10, dtype=">f8"), None],
    ids=["list", "int64", "matrix", "strided", "big-endian", "none"],
)
def test_wrong_arrays_are_refused_and_never_converted(encryptor, update):
    order = sf.paillier.UnionOrder.from_masks([sf.Mask.full(10)])
    with pytest.raises(sf.ArrayTypeError):
        encryptor.encrypt(update)
    with pytest.raises(sf.ArrayTypeError):
        encryptor.encrypt_in_union(update, order, sf.Mask.full(10))
    with pytest.raises(sf.ArrayTypeError):
        order.clear_fields(update, sf.Mask.full(10))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 8.0, -8.0, 1e300])
def test_first_bad_position_is_named_and_the_value_is_not(encryptor, value):
    update = np.full(500, 0.25)
    update[[300, 400]] = value
    with pytest.raises(sf.RangeError, match="position 300") as caught:
        encryptor.encrypt(update)
    assert "0.25" not in str(caught.value)
    mask = sf.Mask.from_indices([5, 300], 500)
    order = sf.paillier.UnionOrder.from_masks([mask, sf.Mask.from_indices([7], 500)])
    with pytest.raises(sf.RangeError, match="position 300"):
        encryptor.encrypt_in_union(update, order, mask)


def test_limit_itself_is_fine_and_half_a_step_above_is_not(encryptor, authority):
    limit = authority.public_key.parameters.value_limit
    encryptor.encrypt(np.array([limit, -limit, limit + 0.49 / STEP]))
    with pytest.raises(sf.RangeError):
        encryptor.encrypt(np.array([limit + 0.51 / STEP]))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, 8.0, 1e-9, "heavy"])
def test_bad_encrypted_weights(encryptor, weight):
    with pytest.raises(sf.ParameterError, match="weight"):
        encryptor.encrypt(UPDATE, weight=weight)


@pytest.mark.parametrize("weight", [0, 3, 2**32 + 1, 2**70, -1, 1.5, None])
def test_bad_integer_weights(authority, encryptor, weight):
    aggregator = sf.paillier.Aggregator(authority.public_key)
    with pytest.raises(sf.ParameterError, match="weight"):
        aggregator.add(encryptor.encrypt(UPDATE), weight=weight)
    assert aggregator.clients == 0


def test_a_batch_with_an_encrypted_weight_takes_no_other(authority, encryptor):
    aggregator = sf.paillier.Aggregator(authority.public_key)
    with pytest.raises(sf.ParameterError, match="weight"):
        aggregator.add(encryptor.encrypt(UPDATE, weight=1.0), weight=2)
    aggregator.add(encryptor.encrypt(UPDATE, weight=1.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda key: sf.paillier.Encryptor(key, threads=0),
        lambda key: sf.paillier.Aggregator(key, threads=-1),
        lambda key: sf.paillier.Aggregator(key, round=-1),
        lambda key: sf.paillier.Encryptor(key).encrypt(UPDATE, round=2**64),
        lambda key: sf.paillier.Encryptor(key).encrypt(UPDATE, sf.Mask.full(99)),
        lambda key: sf.paillier.Encryptor(key).precompute(-1),
        lambda key: sf.paillier.Encryptor(key).precompute(2**24 + 1),
        lambda key: sf.paillier.Encryptor(key).ciphertexts_for(-1),
        lambda key: sf.paillier.Encryptor(key).encrypt_in_union(UPDATE, None, sf.Mask.full(SIZE)),
        lambda key: sf.paillier.Encryptor("key"),
        lambda key: sf.paillier.Aggregator(None),
    ],
)
def test_bad_settings(authority, make):
    with pytest.raises(sf.ParameterError):
        make(authority.public_key)


class TestAggregatorKeepsWhatItHolds:
    @pytest.fixture
    def aggregator(self, authority, encryptor):
        aggregator = sf.paillier.Aggregator(authority.public_key)
        aggregator.add(encryptor.encrypt(UPDATE, round=1))
        return aggregator

    @pytest.fixture(autouse=True)
    def still_whole(self, aggregator, authority, encryptor):
        before = aggregator.total().to_bytes()
        yield
        assert aggregator.clients == 1
        assert aggregator.total().to_bytes() == before
        aggregator.add(encryptor.encrypt(UPDATE, round=1))
        np.testing.assert_array_equal(authority.open(aggregator.total()), 2 * np.rint(UPDATE * STEP) / STEP)

    def test_same_frame_twice(self, aggregator, encryptor, authority):
        fresh = sf.paillier.Aggregator(authority.public_key)
        batch = encryptor.encrypt(UPDATE, round=1)
        fresh.add(batch)
        for again in (batch, batch.to_bytes()):
            with pytest.raises(sf.DuplicateFrameError):
                fresh.add(again)
        assert fresh.clients == 1

    def test_another_round(self, aggregator, encryptor):
        with pytest.raises(sf.PolicyError, match="round 2"):
            aggregator.add(encryptor.encrypt(UPDATE, round=2))

    def test_foreign_key_and_parameters(self, aggregator, authority):
        parameters = authority.public_key.parameters
        p, q = primes(parameters.key_bits)
        other_base = base_for(parameters, p * q) * 9 % (p * q)
        key = sf.paillier.PublicKey.from_bytes(public_key_frame(parameters, p * q, other_base))
        with pytest.raises(sf.KeyMismatchError):
            aggregator.add(sf.paillier.Encryptor(key).encrypt(UPDATE, round=1))
        other = authority_for(sf.paillier.Parameters(key_bits=2048, max_clients=4))
        with pytest.raises(sf.ParameterError):
            aggregator.add(sf.paillier.Encryptor(other.public_key).encrypt(UPDATE, round=1))

    def test_other_positions_and_weights(self, aggregator, encryptor):
        mask = sf.Mask.from_indices(np.arange(SIZE), SIZE + 1)
        order = sf.paillier.UnionOrder.from_masks([sf.Mask.full(SIZE)])
        for batch in (
            encryptor.encrypt(UPDATE[:50], round=1),
            encryptor.encrypt(np.append(UPDATE, 0.0), mask, round=1),
            encryptor.encrypt(UPDATE, weight=1.0, round=1),
            encryptor.encrypt_in_union(UPDATE, order, sf.Mask.full(SIZE), round=1),
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

    @pytest.mark.parametrize("thing", [None, 5, "frame", np.zeros(4)])
    def test_things_that_are_no_batch(self, aggregator, thing):
        with pytest.raises(sf.WireFormatError):
            aggregator.add(thing)

    def test_batches_and_totals_are_not_each_other(self, aggregator, authority, encryptor):
        batch = encryptor.encrypt(UPDATE, round=1)
        total = total_of(authority, batch)
        for source in (total, total.to_bytes(), sf.paillier.Total.from_bytes(total.to_bytes())):
            with pytest.raises(sf.WireFormatError, match="batch"):
                aggregator.add(source)
        for source in (batch, batch.to_bytes(), sf.paillier.CiphertextBatch.from_bytes(batch.to_bytes())):
            with pytest.raises(sf.WireFormatError, match="total"):
                aggregator.add_total(source)

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


def test_more_than_max_clients(authority, encryptor):
    full = sf.paillier.Aggregator(authority.public_key)
    for _ in range(3):
        full.add(encryptor.encrypt(UPDATE))
    with pytest.raises(sf.CapacityError):
        full.add(encryptor.encrypt(UPDATE))
    np.testing.assert_array_equal(authority.open(full.total()) * STEP, 3 * np.rint(UPDATE * STEP))


def test_total_of_nothing(authority):
    with pytest.raises(sf.ParameterError, match="at least one"):
        sf.paillier.Aggregator(authority.public_key).total()


def test_tampered_ciphertext_does_not_open_to_plausible_sums(authority, encryptor):
    """A checksum can be made to fit by whoever alters a frame; the range check of the sums catches this one."""
    total = bytearray(total_of(authority, encryptor.encrypt(UPDATE)).to_bytes())
    total[-400] ^= 0x55
    with pytest.raises(sf.WireFormatError, match="sums of values in range"):
        authority.open(reseal(bytes(total)))


def test_a_forged_weight_does_not_pass(authority, encryptor):
    """Clients and weight stand in the frame: more weight than clients can have is refused when it is read."""
    total = total_of(authority, encryptor.encrypt(UPDATE)).to_bytes()
    offset = 48 + 16 + 8 + 16 + 8 + 4 + 4
    assert total[offset : offset + 8] == (1).to_bytes(8, "little")
    for weight in (0, 3, 2**63):
        with pytest.raises(sf.WireFormatError, match="weights"):
            authority.open(reseal(total[:offset] + weight.to_bytes(8, "little") + total[offset + 8 :]))


@pytest.mark.parametrize("thing", [None, 10**15, "frame", np.zeros(4)])
def test_frames_are_bytes(thing):
    kinds = (sf.paillier.CiphertextBatch, sf.paillier.Total, sf.paillier.UnionOrder, sf.paillier.PublicKey)
    for kind in kinds:
        with pytest.raises(sf.WireFormatError):
            kind.from_bytes(thing)
