"""What an authority with Paillier keys opens, refuses, saves and never shows; and what it says to the other scheme."""

from __future__ import annotations

import pickle
import stat
import threading
import time

import gmpy2
import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import authority_for, factors_of, public_key_frame
from shieldfl.authority import authority_secrets, private_file
from shieldfl.encryption import opening

UPDATE = np.linspace(-1, 1, 100)


@pytest.fixture(scope="module", autouse=True)
def searched_for():
    """Keys are made anew here, whatever tests before these have put in the place of the search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(opening.DECRYPTORS, _core.PaillierPublicKey, _core.PaillierDecryptor)
        yield


@pytest.fixture(scope="module")
def parameters():
    return sf.paillier.Parameters(key_bits=2048, max_clients=8, max_weight=4)


@pytest.fixture(scope="module")
def made(parameters):
    """The one authority here whose key is searched for."""
    return sf.KeyAuthority(parameters, min_clients=2)


@pytest.fixture
def cheap_scrypt(monkeypatch):
    monkeypatch.setattr(private_file, "_SCRYPT_COST", 2**4)


def total_of(authority, clients, round_number=0, weight=1):
    scheme = sf.paillier if isinstance(authority.public_key, sf.paillier.PublicKey) else sf.ckks
    encryptor = scheme.Encryptor(authority.public_key)
    aggregator = scheme.Aggregator(authority.public_key)
    options = {} if weight == 1 else {"weight": weight}
    for _ in range(clients):
        aggregator.add(encryptor.encrypt(UPDATE, round=round_number), **options)
    return aggregator.total()


def test_primes_are_safe_and_of_half_the_length(made):
    p, q = factors_of(made)
    assert p != q
    for prime in (p, q):
        assert prime.bit_length() == 1024
        assert gmpy2.is_prime(prime)
        assert gmpy2.is_prime((prime - 1) // 2)
    assert (p * q).bit_length() == 2048
    frame = made.public_key.to_bytes()
    n, h = (int.from_bytes(frame[at : at + 256], "big") for at in (64, 320))
    assert n == p * q
    # -x^2 for some x: a non-residue modulo both primes whose Jacobi symbol is 1.
    assert gmpy2.legendre(h, p) == gmpy2.legendre(h, q) == -1


def test_two_authorities_have_different_keys(made, parameters):
    other = sf.KeyAuthority(parameters, min_clients=2)
    assert other.public_key != made.public_key
    assert not set(factors_of(other)) & set(factors_of(made))
    with pytest.raises(sf.KeyMismatchError):
        other.open(total_of(made, 2))


def test_frame_of_a_made_key_is_the_documented_one(made, parameters):
    p, q = factors_of(made)
    frame = made.public_key.to_bytes()
    assert frame == public_key_frame(parameters, p * q, int.from_bytes(frame[320:576], "big"))


def test_interpreter_runs_while_a_key_is_searched_for(parameters):
    done = threading.Event()

    def search():
        sf.KeyAuthority(parameters)
        done.set()

    searcher = threading.Thread(target=search)
    begin = time.perf_counter()
    searcher.start()
    ticks = 0
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    searcher.join()
    assert ticks >= min(5, (time.perf_counter() - begin) / 0.02)


def test_policy_is_that_of_every_scheme(parameters):
    authority = authority_for(parameters, min_clients=3)
    authority.one_total_per_round = True
    with pytest.raises(sf.PolicyError, match="min_clients = 3"):
        authority.open(total_of(authority, 2))
    first = total_of(authority, 3, round_number=4)
    opened = authority.open(first)
    with pytest.raises(sf.PolicyError, match="round 4"):
        authority.open(total_of(authority, 4, round_number=4))
    np.testing.assert_array_equal(authority.open(first.to_bytes()), opened)


def test_mean_divides_by_integer_weights(parameters):
    authority = authority_for(parameters)
    total = total_of(authority, 3, weight=4)
    assert total.total_weight == 12
    np.testing.assert_allclose(authority.open_mean(total), np.rint(UPDATE * 2**20) / 2**20, rtol=1e-15)
    plain = total_of(authority, 3)
    assert plain.total_weight == plain.clients == 3


def test_a_total_of_the_other_scheme():
    paillier = authority_for(sf.paillier.Parameters(key_bits=2048))
    ckks = sf.KeyAuthority(sf.ckks.Parameters(), min_clients=1)
    for authority, other in ((paillier, ckks), (ckks, paillier)):
        total = total_of(other, 2)
        for open_total in (authority.open, authority.open_mean):
            with pytest.raises(sf.ParameterError, match="another encryption scheme"):
                open_total(total)
            with pytest.raises(sf.WireFormatError, match="total"):
                open_total(total.to_bytes())
        batch = (sf.ckks if other is ckks else sf.paillier).Encryptor(other.public_key).encrypt(UPDATE)
        with pytest.raises(sf.PolicyError, match="batch"):
            authority.open(batch)


def test_keys_of_the_other_scheme():
    paillier = authority_for(sf.paillier.Parameters(key_bits=2048)).public_key
    ckks = sf.KeyAuthority(sf.ckks.Parameters()).public_key
    for scheme, key in ((sf.ckks, paillier), (sf.paillier, ckks)):
        for make in (scheme.Encryptor, scheme.Aggregator):
            with pytest.raises(sf.ParameterError, match="public_key"):
                make(key)
    assert paillier != ckks


def test_bad_parameters_objects():
    for params in ({"key_bits": 2048}, None, sf.paillier.Parameters):
        with pytest.raises(sf.ParameterError, match=r"ckks\.Parameters or .* or paillier\.Parameters"):
            sf.KeyAuthority(params)


def test_saved_key_opens_the_same_totals(made, parameters, tmp_path, cheap_scrypt):
    total = total_of(made, 2, round_number=1)
    opened = made.open(total)
    path = tmp_path / "authority.key"
    made.save(path, "correct horse")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = bytes(made._decryptor.export_secret())
    assert secret[:64] not in path.read_bytes()
    again = sf.KeyAuthority.load(path, "correct horse")
    assert again.public_key == made.public_key
    assert again.public_key.parameters == parameters
    np.testing.assert_array_equal(again.open(total), opened)
    with pytest.raises(sf.PolicyError, match="round 1"):
        again.open(total_of(made, 3, round_number=1))
    with pytest.raises(sf.KeyMismatchError, match="passphrase"):
        sf.KeyAuthority.load(path, "wrong horse")


def test_each_key_file_opens_as_the_scheme_that_it_is_of(tmp_path, cheap_scrypt):
    authorities = (
        authority_for(sf.paillier.Parameters(key_bits=2048)),
        authority_for(sf.paillier.Parameters(key_bits=2048, randomizer="classical", packing="single")),
        sf.KeyAuthority(sf.ckks.Parameters(), min_clients=2),
    )
    for number, authority in enumerate(authorities):
        authority.save(tmp_path / str(number), "pass")
    for number, authority in enumerate(authorities):
        again = sf.KeyAuthority.load(tmp_path / str(number), "pass")
        assert type(again.public_key) is type(authority.public_key)
        assert again.public_key == authority.public_key
        np.testing.assert_array_equal(again.open(total_of(authority, 2)) * 2**20, 2 * np.rint(UPDATE * 2**20))


def test_a_key_file_with_no_key_in_it(tmp_path, cheap_scrypt):
    path = tmp_path / "k"
    contents = authority_secrets.Contents(sf.Mask.full(3).to_bytes(), 1, True, {}, bytearray(256))
    authority_secrets.write_key_file(path, "pass", contents)
    with pytest.raises(sf.WireFormatError, match="no scheme"):
        sf.KeyAuthority.load(path, "pass")


def test_nothing_shows_the_secret(made):
    p, q = factors_of(made)
    shown = repr(made) + repr(made._decryptor) + repr(made.public_key)
    for prime in (p, q):
        assert str(prime)[:20] not in shown
        assert f"{prime:x}"[:20] not in shown
    assert len(shown) < 700


def test_public_halves_can_be_pickled(made):
    batch = sf.paillier.Encryptor(made.public_key).encrypt(UPDATE)
    total = total_of(made, 2)
    for thing in (made.public_key, made.public_key.parameters):
        assert pickle.loads(pickle.dumps(thing)) == thing
    for frame in (batch, total):
        again = pickle.loads(pickle.dumps(frame))
        assert type(again) is type(frame)
        assert again.to_bytes() == frame.to_bytes()


def test_a_secret_is_taken_with_its_own_public_key_only(made, parameters):
    secret = made._decryptor.export_secret()
    assert isinstance(secret, bytearray)
    other = authority_for(parameters).public_key
    with pytest.raises(sf.KeyMismatchError):
        _core.PaillierDecryptor.import_secret(other._core, secret)
    decryptor = _core.PaillierDecryptor.import_secret(made.public_key._core, secret)
    assert decryptor.export_secret() == secret
