"""What an authority with a key pair opens, refuses, saves and never shows, under CKKS and under Paillier."""

from __future__ import annotations

import copy
import pickle
import stat
from types import SimpleNamespace

import gmpy2
import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import authority_for, factors_of, public_key_frame
from shieldfl.authority import authority_secrets, key_authority
from shieldfl.encryption import opening
from shieldfl.encryption.registry import scheme_of

UPDATE = np.linspace(-1, 1, 100)
CKKS = sf.ckks.Parameters(max_clients=8)
KAHE = sf.kahe.Parameters(max_clients=8)
PAILLIER = sf.paillier.Parameters(key_bits=2048, max_clients=8, max_weight=4)
copied = pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])


def make(parameters=CKKS, min_clients=2, **options):
    if isinstance(parameters, sf.paillier.Parameters):
        authority = authority_for(parameters, min_clients=min_clients)
        authority.one_total_per_round = True
        return authority
    return sf.KeyAuthority(parameters, min_clients, **options)


def total_of(authority, clients, round_number=0, weights=None, **options):
    scheme = scheme_of(authority.public_key)
    encryptor, aggregator = scheme.Encryptor(authority.public_key), scheme.Aggregator(authority.public_key)
    for client in range(clients):
        weight = None if weights is None else weights[client]
        aggregator.add(encryptor.encrypt(UPDATE, weight=weight, round=round_number), **options)
    return aggregator.total()


each_pair = pytest.mark.parametrize("parameters", [CKKS, PAILLIER], ids=["ckks", "paillier"])


@pytest.fixture
def cheap_scrypt(monkeypatch):
    monkeypatch.setattr(authority_secrets, "_SCRYPT_COST", 2**4)


@each_pair
def test_the_policy_is_that_of_every_scheme(parameters):
    authority = make(parameters, min_clients=3)
    with pytest.raises(sf.PolicyError, match="min_clients = 3"):
        authority.open(total_of(authority, 2, 4))
    first = total_of(authority, 3, 4)  # what was refused has not used up the round
    opened = authority.open(first)
    with pytest.raises(sf.PolicyError, match="round 4"):
        authority.open(total_of(authority, 4, 4))
    np.testing.assert_array_equal(authority.open(first.to_bytes()), opened)
    np.testing.assert_array_equal(authority.open_mean(first.to_bytes()), opened / 3)
    authority.open(total_of(authority, 3, 5))
    authority.one_total_per_round = False
    authority.open(total_of(authority, 4, 4))


@each_pair
def test_a_total_that_is_asked_for_again_is_not_computed_again(parameters, monkeypatch):
    authority = make(parameters)
    totals = [total_of(authority, 2, number) for number in (1, 2)]
    answers = [authority.open(total) for total in totals]
    decryptor, opened = authority._decryptor, []
    counted = SimpleNamespace(open=lambda *given: opened.append(1) or decryptor.open(*given))
    monkeypatch.setattr(authority, "_decryptor", counted)
    # The newest one's answer is kept, and is nobody else's to change.
    first = authority.open(totals[1])
    np.testing.assert_array_equal(first, answers[1])
    first[:] = 0.0
    np.testing.assert_array_equal(authority.open(totals[1].to_bytes()), answers[1])
    assert not opened
    with pytest.raises(sf.PolicyError, match="a different total"):
        authority.open(total_of(authority, 2, 2))
    np.testing.assert_array_equal(authority.open(totals[0]), answers[0])
    assert len(opened) == 1


def test_opened_coefficients_are_counted_and_end_somewhere(monkeypatch, tmp_path, cheap_scrypt):
    assert key_authority.MOST_OPENED_COEFFICIENTS == 2**32  # what the proof is for
    authority = make()
    totals = [total_of(authority, 2, number) for number in range(3)]
    degree = CKKS.ring_degree
    monkeypatch.setattr(key_authority, "MOST_OPENED_COEFFICIENTS", 2 * degree)
    opened = [authority.open(total) for total in totals[:2]]
    authority.save(tmp_path / "k", "pass")
    for each in (authority, sf.KeyAuthority.load(tmp_path / "k", "pass")):
        assert each.opened_coefficients == 2 * degree
        with pytest.raises(sf.PolicyError, match="make a new key authority"):
            each.open(totals[2])
        # What was opened before costs nothing.
        for total, values in zip(totals[:2], opened, strict=True):
            np.testing.assert_array_equal(each.open(total), values)
        assert each.opened_coefficients == 2 * degree
    paillier = make(PAILLIER)
    paillier.open(total_of(paillier, 2))
    assert paillier.opened_coefficients == UPDATE.size


@each_pair
def test_what_is_no_total_of_its_own_is_not_opened(parameters):
    authority = make(parameters, min_clients=1)
    scheme = scheme_of(authority.public_key)
    batch = scheme.Encryptor(authority.public_key).encrypt(UPDATE)
    other = make(PAILLIER if parameters is CKKS else CKKS, min_clients=1)
    of_other = total_of(other, 2)
    foreign = (
        sf.ckks.Parameters(max_clients=9) if parameters is CKKS else sf.paillier.Parameters(key_bits=2048)
    )
    for opened in (authority.open, authority.open_mean):
        with pytest.raises(sf.PolicyError, match="batch"):
            opened(batch)
        with pytest.raises(sf.WireFormatError, match="batch"):
            opened(batch.to_bytes())
        with pytest.raises(sf.ParameterError, match="another encryption scheme"):
            opened(of_other)
        with pytest.raises(sf.WireFormatError, match="total"):
            opened(of_other.to_bytes())
        with pytest.raises(sf.ParameterError):
            opened(total_of(make(foreign), 2))
    if parameters is CKKS:
        with pytest.raises(sf.KeyMismatchError):
            authority.open(total_of(make(), 2))
    authority.open(total_of(authority, 1))


@each_pair
@copied
def test_what_holds_secrets_is_not_copied(parameters, attempt):
    authority = make(parameters)
    with pytest.raises(
        sf.SecretCopyError, match=r"KeyPairAuthority holds a secret key .*: use save\(\)"
    ) as caught:
        attempt(authority)
    assert isinstance(caught.value, TypeError)
    encryptor = scheme_of(parameters).Encryptor(authority.public_key)
    with pytest.raises(sf.SecretCopyError, match="make another from it"):
        attempt(encryptor)
    for held in (authority._decryptor, *([encryptor._pool] if parameters is PAILLIER else [])):
        with pytest.raises(TypeError):
            attempt(held)
    with pytest.raises(sf.SecretCopyError, match="secret key"):
        attempt(authority_secrets.Contents(b"", 2, True, {}, bytearray(b"secret")))


@each_pair
def test_nothing_shows_the_secret_and_public_halves_can_be_pickled(parameters):
    authority = make(parameters)
    secret = bytes(authority._decryptor.export_secret())
    shown = repr(authority) + repr(authority._decryptor) + repr(authority.public_key)
    assert secret.hex()[:32] not in shown
    assert len(shown) < 700
    if parameters is PAILLIER:
        for prime in factors_of(authority):
            assert str(prime)[:20] not in shown
            assert f"{prime:x}"[:20] not in shown
    for thing in (authority.public_key, authority.public_key.parameters):
        assert pickle.loads(pickle.dumps(thing)) == thing
    for frame in (
        scheme_of(parameters).Encryptor(authority.public_key).encrypt(UPDATE),
        total_of(authority, 2),
    ):
        again = pickle.loads(pickle.dumps(frame))
        assert (type(again), again.to_bytes()) == (type(frame), frame.to_bytes())


@pytest.mark.parametrize(
    "parameters",
    [
        CKKS,
        sf.ckks.Parameters(packing="slots", max_clients=8),
        PAILLIER,
        sf.paillier.Parameters(key_bits=2048, max_clients=8, randomizer="classical", packing="single"),
    ],
    ids=["exact", "slots", "dense", "classical"],
)
def test_saved_key_opens_the_same_totals_with_the_same_values(tmp_path, parameters, cheap_scrypt):
    authority = make(parameters)
    total = total_of(authority, 2, 1)
    opened = authority.open(total)
    path = tmp_path / "authority.key"
    authority.save(path, "correct horse")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert bytes(authority._decryptor.export_secret())[:64] not in path.read_bytes()
    again = sf.KeyAuthority.load(path, "correct horse")
    assert type(again.public_key) is type(authority.public_key)
    assert again.public_key == authority.public_key
    assert again.public_key.parameters == parameters
    np.testing.assert_array_equal(again.open(total), opened)
    with pytest.raises(sf.PolicyError, match="round 1"):
        again.open(total_of(authority, 3, 1))
    # Saving replaces in one step.
    other = make(CKKS)
    other.save(path, "two")
    assert sf.KeyAuthority.load(path, "two").public_key == other.public_key
    assert [entry.name for entry in tmp_path.iterdir()] == ["authority.key"]


def test_wrong_passphrase_and_altered_files(tmp_path, cheap_scrypt):
    path = tmp_path / "k"
    make().save(path, "pass")
    with pytest.raises(sf.KeyMismatchError, match="passphrase"):
        sf.KeyAuthority.load(path, "word")
    whole = path.read_bytes()
    for altered in (whole.replace(b'"min_clients":2', b'"min_clients":1'), whole[:-1]):
        path.write_bytes(altered)
        with pytest.raises(sf.KeyMismatchError):
            sf.KeyAuthority.load(path, "pass")
    for bad in (b"", whole[:30], b"x" + whole, whole.replace(b'"salt"', b'"malt"'), b"\0" * 100):
        path.write_bytes(bad)
        with pytest.raises(sf.WireFormatError):
            sf.KeyAuthority.load(path, "pass")
    contents = authority_secrets.Contents(sf.Mask.full(3).to_bytes(), 1, True, {}, bytearray(256))
    authority_secrets.write_key_file(path, "pass", contents)
    with pytest.raises(sf.WireFormatError, match="a scheme that this version does not know"):
        sf.KeyAuthority.load(path, "pass")


@pytest.mark.parametrize(("passphrase", "said"), [("", "passphrase"), (b"", "str"), (None, "str")])
def test_a_passphrase_is_text_that_is_dear_to_guess(tmp_path, passphrase, said):
    with pytest.raises(sf.ParameterError, match=said):
        make().save(tmp_path / "k", passphrase)
    assert not list(tmp_path.iterdir())
    assert authority_secrets._SCRYPT_COST == 2**17


@pytest.mark.parametrize("packing", ["exact", "slots"])
def test_weights_within_their_bounds_give_a_mean_and_others_none(packing):
    authority = make(
        sf.ckks.Parameters(packing=packing, max_clients=8, fraction_bits=16), weight_bounds=(0.1, 0.5)
    )
    for number, weights in enumerate(((0.1, 0.1), (0.5, 0.5, 0.5), (0.1, 0.3))):
        total = total_of(authority, len(weights), number, weights)
        for given in (total, total.to_bytes()):
            mean = authority.open_mean(given, stated_weight=sum(weights))
            np.testing.assert_allclose(mean, UPDATE, atol=1e-3)
    for number, weights in enumerate(((0.09, 0.1), (0.5, 0.5, 0.51)), start=3):
        with pytest.raises(sf.RangeError, match="weight_bounds"):
            authority.open_mean(total_of(authority, len(weights), number, weights))
    # Two steps are more than rounding one weight can be off.
    total = total_of(authority, 2, 5, (0.3, 0.3))
    for wrong in (0.6 + 2.0**-12, 0.6 - 2.0**-12, float("nan"), 0.0, -0.6):
        with pytest.raises(sf.RangeError, match="stated"):
            authority.open_mean(total, stated_weight=wrong)
    np.testing.assert_allclose(authority.open_mean(total, stated_weight=0.6), UPDATE, atol=1e-3)


def test_rounding_of_many_weights_is_no_forgery_and_without_weights_clients_count():
    authority = make(sf.ckks.Parameters(max_clients=64, value_bits=10, fraction_bits=8))
    # Each is rounded by as much as there can be, all in one direction.
    weights = [0.5 + 2.0**-9 - 2.0**-20] * 64
    authority.open_mean(total_of(authority, 64, 1, weights), stated_weight=sum(weights))
    total = total_of(authority, 3, 2)
    with pytest.raises(sf.RangeError, match="stated"):
        authority.open_mean(total, stated_weight=4)
    authority.open_mean(total, stated_weight=3)


NO_PARAMETERS = r"ckks\.Parameters or .* or paillier\.Parameters"
BOUNDS = (0.0, 1.0), (-1.0, 1.0), (0.5, 0.4), (0.1, np.inf), (np.nan, 1.0), "x", None, (1.0,), ("a", "b")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        *(({"weight_bounds": bounds}, "weight_bounds") for bounds in BOUNDS),
        *(({"min_clients": number}, "min_clients") for number in (0, 9, -1, 1.5, None)),
        ({"params": KAHE, "min_clients": 1}, "at least 2: the sum over one client is its update$"),
        *(({"params": KAHE, "min_clients": number}, "min_clients") for number in (0, 9)),
        ({"params": KAHE, "one_total_per_round": False}, "one_total_per_round"),
        *(({"params": KAHE, name: -1}, name) for name in ("most_values", "threads")),
        ({"params": KAHE, "weight_bounds": (0.0, 1.0)}, "weight_bounds"),
        *(({"params": one}, NO_PARAMETERS) for one in ({"max_clients": 4}, None, sf.paillier.Parameters)),
    ],
    ids=str,
)
def test_bad_settings(settings, said):
    with pytest.raises(sf.ParameterError, match=said):
        sf.KeyAuthority(**{"params": CKKS} | settings)


@each_pair
def test_a_wiped_key_opens_and_saves_nothing(parameters, tmp_path):
    authority = make(parameters)
    total = total_of(authority, 3)
    authority.open(total)
    authority.wipe()
    authority.wipe()
    for use in (lambda: authority.open(total), lambda: authority.save(tmp_path / "k", "pass")):
        with pytest.raises(sf.PolicyError, match="wiped"):
            use()
    assert not list(tmp_path.iterdir())
    assert authority.public_key.to_bytes()


class TestMadeKeys:
    """Keys of Paillier that are searched for, whatever tests before these have put in the place of the search."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def searched_for(cls):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(opening.DECRYPTORS, _core.PaillierPublicKey, _core.PaillierDecryptor)
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls):
        return sf.KeyAuthority(PAILLIER, min_clients=2)

    def test_primes_are_safe_and_of_half_the_length(self, made):
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
        assert frame == public_key_frame(PAILLIER, n, h)
        # -x^2 for some x: a non-residue modulo both primes whose Jacobi symbol is 1.
        assert gmpy2.legendre(h, p) == gmpy2.legendre(h, q) == -1
