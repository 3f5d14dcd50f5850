"""What every encryption scheme has to do, whatever its packing: one suite for all."""

from __future__ import annotations

import itertools
import warnings
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

import shieldfl as sf
from encryption.enrolled_clients import KnownSession, total_of
from encryption.paillier_keys import authority_for
from reference import ckks as reference


def client_of(authority):
    """What encrypts: a new client's key, or the public one."""
    return authority.enrol() if isinstance(authority, KnownSession) else authority.public_key


class SchemeConformance:
    """Subclass it with whatever differs from what is here.

    ``tolerance`` is the largest error of a sum (0 for exact schemes); the sizes are numbers of values, which
    should fill ciphertexts in part, exactly, and several of them.
    """

    scheme = sf.ckks
    settings: ClassVar = {}
    make_authority = staticmethod(partial(sf.KeyAuthority, min_clients=1, one_total_per_round=False))
    tolerance = 0.0
    sizes = (1, 2, 2047, 2049, 9000)
    weighted_sizes = (1, 2048, 4096, 5000)
    large_size = 20_000
    lost = 1000

    def pytest_generate_tests(self, metafunc):
        for name, sizes in (("size", self.sizes), ("weighted_size", self.weighted_sizes)):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, sizes)

    @pytest.fixture(scope="class")
    @classmethod
    def authority(cls):
        return cls.make_authority(cls.scheme.Parameters(**cls.settings))

    @classmethod
    def client(cls, authority, threads=None):
        """An encryptor of another client each time, where they enrol."""
        return cls.scheme.Encryptor(client_of(authority), threads)

    def expected(self, parameters, update, weight=1.0):
        step = 2.0**parameters.fraction_bits
        return np.rint(np.asarray(update, dtype=np.float64) * (np.rint(weight * step) / step) * step) / step

    def check(self, opened, expected):
        assert opened.dtype == np.float64
        assert opened.shape == expected.shape
        if self.tolerance == 0.0:
            np.testing.assert_array_equal(opened, expected)
        else:
            np.testing.assert_allclose(opened, expected, rtol=0, atol=self.tolerance)

    def total(self, authority, updates, threads=None, **options):
        batches = [self.client(authority, threads).encrypt(update, **options) for update in updates]
        return total_of(authority.public_key, batches, threads=threads)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_sums(self, authority, size, dtype):
        rng = np.random.default_rng(size)
        updates = [rng.uniform(-3, 3, size).astype(dtype) for _ in range(3)]
        opened = authority.open(self.total(authority, updates))
        self.check(opened, sum(self.expected(authority.public_key.parameters, u) for u in updates))

    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
    def test_masks_pick_ascending_positions(self, authority, share):
        rng = np.random.default_rng(7)
        update = rng.uniform(-3, 3, self.large_size)
        chosen = rng.random(self.large_size) < share
        total = self.total(authority, [update], mask=sf.Mask.from_bool(chosen))
        assert total.count == chosen.sum()
        self.check(authority.open(total), self.expected(authority.public_key.parameters, update[chosen]))

    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_an_update_in_pieces_is_the_update(self, authority, dtype, masked):
        rng = np.random.default_rng(8)
        update = rng.uniform(-3, 3, self.large_size).astype(dtype)
        mask = sf.Mask.from_bool(rng.random(update.size) < 0.3) if masked else None
        ends = [0, 1, 1, 900, 5000, 5003]
        pieces = np.split(update, ends)
        in_pieces = authority.open(self.total(authority, [pieces], mask=mask))
        chosen = update if mask is None else mask.gather(update)
        self.check(in_pieces, self.expected(authority.public_key.parameters, chosen))

    def test_weighted_mean_divides_by_the_encrypted_weights(self, authority, weighted_size):
        parameters = authority.public_key.parameters
        rng = np.random.default_rng(3)
        updates = [rng.uniform(-3, 3, weighted_size) for _ in range(3)]
        weights = [1.0, 0.25, 0.7]
        pairs = zip(updates, weights, strict=True)
        batches = [self.client(authority).encrypt(update, weight=weight) for update, weight in pairs]
        total = total_of(authority.public_key, batches)
        assert total.weighted
        sums = sum(self.expected(parameters, u, w) for u, w in zip(updates, weights, strict=True))
        self.check(authority.open(total), sums)
        weight_sum = sum(self.expected(parameters, w) for w in weights)
        np.testing.assert_allclose(
            authority.open_mean(total), sums / weight_sum, rtol=0, atol=4 * self.tolerance + 1e-12
        )

    def test_unweighted_mean_divides_by_clients(self, authority):
        updates = [np.full(10, 1.0), np.full(10, 2.0)]
        mean = authority.open_mean(self.total(authority, updates))
        np.testing.assert_allclose(mean, np.full(10, 1.5), atol=self.tolerance)

    def test_bytes_round_trip_everywhere(self, authority):
        key = self.scheme.PublicKey.from_bytes(authority.public_key.to_bytes())
        assert key == authority.public_key
        assert key.parameters == authority.public_key.parameters
        update = np.linspace(-2, 2, self.large_size)
        batch = self.client(authority).encrypt(update, round=5)
        again = self.scheme.CiphertextBatch.from_bytes(batch.to_bytes())
        assert (again.round, again.count, again.weighted, again.clients) == (5, self.large_size, False, 1)
        total = self.scheme.Total.from_bytes(total_of(key, [again.to_bytes()]).to_bytes())
        assert (total.round, total.clients) == (5, 1)
        self.check(authority.open(total.to_bytes()), self.expected(key.parameters, update))

    @pytest.mark.parametrize("threads", [1, 2, 5])
    def test_threads_do_not_change_sums(self, authority, threads):
        updates = [np.random.default_rng(i).uniform(-1, 1, self.large_size) for i in range(2)]
        expected = sum(self.expected(authority.public_key.parameters, u) for u in updates)
        self.check(authority.open(self.total(authority, updates, threads)), expected)

    def test_two_encryptions_of_one_update_differ(self, authority):
        encryptor = self.client(authority)
        update = np.zeros(100)
        assert encryptor.encrypt(update).to_bytes() != encryptor.encrypt(update).to_bytes()

    def test_clip_saturates_and_counts(self, authority):
        limit = authority.public_key.parameters.value_limit
        update = np.array([0.5, 2 * limit, -3 * limit, limit])
        batch = self.client(authority).encrypt(update, clip=True)
        assert batch.clipped == 2
        total = total_of(authority.public_key, [batch])
        self.check(authority.open(total), np.array([0.5, limit, -limit, limit]))

    @staticmethod
    def half_lost(parameters, count):
        """Of three times as many values a third are zero, and as many round to zero."""
        step = 2.0**-parameters.fraction_bits
        return np.tile([0.0, 0.25 * step, -step], count)

    @pytest.mark.every_run("1-float32", "3-float64")
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_values_that_round_to_zero_are_counted(self, authority, dtype, threads):
        parameters = authority.public_key.parameters
        update, lost = self.half_lost(parameters, self.lost).astype(dtype), self.lost
        encryptor = self.client(authority, threads)
        with pytest.warns(sf.PrecisionWarning, match=f"{lost:,} of the {2 * lost:,} values"):
            batch = encryptor.encrypt(update, round=1)
        assert batch.underflowed == reference.count_underflowed(update, parameters.fraction_bits) == lost
        chosen = sf.Mask.from_indices(np.arange(0, 120, 2), update.size)
        with pytest.warns(sf.PrecisionWarning, match="20 of the 40 values"):
            assert encryptor.encrypt(update, chosen, round=2).underflowed == 20
        with pytest.warns(sf.PrecisionWarning, match=f"{2 * lost:,} of the {2 * lost:,} values"):
            weighted = encryptor.encrypt(update, weight=0.25, round=3)
        assert weighted.underflowed == 2 * lost
        assert reference.count_underflowed(update, parameters.fraction_bits, 0.25) == 2 * lost
        assert self.scheme.CiphertextBatch.from_bytes(batch.to_bytes()).underflowed is None

    def test_the_warning_comes_once_a_round_and_says_where(self, authority):
        update = self.half_lost(authority.public_key.parameters, 10)
        encryptor = self.client(authority)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number in (4, 4, 5, 5, 5):
                encryptor.encrypt(update, round=number)
        assert [warning.category for warning in caught] == [sf.PrecisionWarning] * 2
        assert {warning.filename for warning in caught} == {__file__}

    def test_a_tenth_and_zeros_do_not_warn(self, authority):
        step = 2.0**-authority.public_key.parameters.fraction_bits
        encryptor = self.client(authority)
        update = np.concatenate([np.zeros(90), np.full(2, step / 4), np.full(18, step)])
        assert encryptor.encrypt(update).underflowed == 2
        assert encryptor.encrypt(np.zeros(10)).underflowed == 0
        update[-1] = step / 4
        with pytest.warns(sf.PrecisionWarning):
            assert encryptor.encrypt(update).underflowed == 3


class TestExact(SchemeConformance):
    pass


class TestExactLargeRing(SchemeConformance):
    settings: ClassVar = {"ring_degree": 4096}


class TestSlots(SchemeConformance):
    settings: ClassVar = {"packing": "slots"}
    tolerance = 2.0**-20


class TestKahe(SchemeConformance):
    scheme = sf.kahe
    make_authority = KnownSession


class TestKaheSmallRing(TestKahe):
    settings: ClassVar = {"ring_degree": 2048}


class TestKaheLargeRing(TestKahe):
    settings: ClassVar = {"ring_degree": 8192}


class TestPads(SchemeConformance):
    scheme = sf.pads
    make_authority = KnownSession
    sizes = (1, 2, 1021, 1022, 9000)
    weighted_sizes = (1, 1020, 1021, 5000)


class TestPaillierDense(SchemeConformance):
    """Keys of 2048 bits where the size is not what is tested: they are the quickest."""

    scheme = sf.paillier
    make_authority = staticmethod(authority_for)
    settings: ClassVar = {"key_bits": 2048}
    sizes = (1, 2, 67, 68, 69, 3000)
    weighted_sizes = (1, 67, 68, 500)
    large_size = 5000
    lost = 40


class TestPaillierSingle(TestPaillierDense):
    settings: ClassVar = {"key_bits": 2048, "packing": "single"}
    sizes = (1, 2, 65)
    weighted_sizes = (1, 20)
    large_size = 150


class TestPaillierClassical(TestPaillierDense):
    settings: ClassVar = {"key_bits": 2048, "randomizer": "classical"}
    sizes = (1, 68, 69, 600)
    weighted_sizes = (1, 68)
    large_size = 700


class TestPaillierOfTheDefaultSecurity(TestPaillierDense):
    settings: ClassVar = {}
    sizes = (1, 101, 102)
    weighted_sizes = (1, 101)
    large_size = 300


@pytest.fixture(scope="module")
def keys():
    """By scheme, the public key and what encrypts."""
    sessions = {name: KnownSession(getattr(sf, name).Parameters()) for name in ("kahe", "pads")}
    pairs = sf.KeyAuthority(sf.ckks.Parameters()), authority_for(sf.paillier.Parameters(key_bits=2048))
    made = {name: (one.public_key, one.enrol()) for name, one in sessions.items()}
    return made | {name: (one.public_key,) * 2 for name, one in zip(("ckks", "paillier"), pairs, strict=True)}


@pytest.mark.parametrize(
    ("name", "other"), list(itertools.permutations(("kahe", "pads", "ckks", "paillier"), 2))
)
def test_what_is_of_another_scheme_is_refused(name, other, keys):
    """Its name promises who can open what."""
    public, own = keys[other]
    for make, key in ((getattr(sf, name).Encryptor, own), (getattr(sf, name).Aggregator, public)):
        said = rf"expected a \w+ of {name}, got {type(key).__name__} of {other}: pass "
        with pytest.raises(sf.ParameterError, match=said):
            make(key)


def test_what_frames_do_not_carry_is_refused(keys):
    key = keys["ckks"][0]
    for made in (sf.ckks.Encryptor, sf.ckks.Aggregator):
        for bound in ({"purpose": "scores"}, {"part": 1}):
            with pytest.raises(
                sf.ParameterError, match="only where clients enrol: leave purpose and part out"
            ):
                made(key, **bound)
    frame = sf.ckks.Encryptor(key).encrypt(np.ones(9))
    aggregator = sf.ckks.Aggregator(key)
    with pytest.raises(sf.ParameterError, match="do not say whose they are"):
        aggregator.add(frame, client=5)
    aggregator.add(frame)
    with pytest.raises(sf.ParameterError, match="holder of the secret key"):
        aggregator.total().request()
    assert aggregator.total().named_clients == ()
    for one, name in ((frame, "client"), (aggregator.total(), "participants")):
        with pytest.raises(AttributeError, match=r"^frames of this scheme do not say whose"):
            getattr(one, name)
