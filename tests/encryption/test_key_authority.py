"""What the authority opens, refuses, saves and never shows."""

from __future__ import annotations

import copy
import pickle
import stat
from types import SimpleNamespace

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.authority import authority_secrets, key_authority, private_file

UPDATE = np.linspace(-1, 1, 100)


@pytest.fixture(scope="module")
def parameters():
    return sf.ckks.Parameters(max_clients=8)


def total_of(authority, clients, round_number=0):
    encryptor = sf.ckks.Encryptor(authority.public_key)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    for _ in range(clients):
        aggregator.add(encryptor.encrypt(UPDATE, round=round_number))
    return aggregator.total()


@pytest.fixture
def cheap_scrypt(monkeypatch):
    monkeypatch.setattr(private_file, "_SCRYPT_COST", 2**4)


def test_too_few_clients(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=3)
    with pytest.raises(sf.PolicyError, match="min_clients = 3"):
        authority.open(total_of(authority, 2))
    authority.open(total_of(authority, 3))


def test_by_default_no_client_learns_another_ones_update_from_a_total_of_two(parameters):
    authority = sf.KeyAuthority(parameters)
    assert authority.min_clients == 3
    encryptor, aggregator = sf.ckks.Encryptor(authority.public_key), sf.ckks.Aggregator(authority.public_key)
    own, other = UPDATE, np.sin(UPDATE)
    for update in (own, other):
        aggregator.add(encryptor.encrypt(update))
    with pytest.raises(sf.PolicyError, match="min_clients = 3"):
        authority.open(aggregator.total())
    # What it is about: the difference is the other one's.
    authority.min_clients = 2
    np.testing.assert_allclose(authority.open(aggregator.total()) - own, other, atol=2.0**-19)


def test_parameters_for_two_clients_need_a_word(parameters):
    with pytest.raises(sf.ParameterError, match=r"each learns the other's update.*min_clients"):
        sf.KeyAuthority(sf.ckks.Parameters(max_clients=2))
    assert sf.KeyAuthority(sf.ckks.Parameters(max_clients=2), min_clients=2).min_clients == 2


def test_a_total_that_is_asked_for_again_is_not_computed_again(parameters, monkeypatch):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    totals = [total_of(authority, 2, round_number=number) for number in (1, 2)]
    answers = [authority.open(total) for total in totals]
    decryptor, opened = authority._decryptor, []
    monkeypatch.setattr(
        authority,
        "_decryptor",
        SimpleNamespace(open=lambda *given: opened.append(1) or decryptor.open(*given)),
    )
    # The newest one's answer is kept, and is nobody else's to change.
    first = authority.open(totals[1])
    np.testing.assert_array_equal(first, answers[1])
    first[:] = 0.0
    np.testing.assert_array_equal(authority.open(totals[1].to_bytes()), answers[1])
    assert not opened
    np.testing.assert_array_equal(authority.open(totals[0]), answers[0])
    assert len(opened) == 1


def test_opened_coefficients_are_counted_and_end_somewhere(parameters, monkeypatch, tmp_path, cheap_scrypt):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    totals = [total_of(authority, 2, round_number=number) for number in range(3)]
    degree = parameters._facts["ring_degree"]
    monkeypatch.setattr(key_authority, "MOST_OPENED_COEFFICIENTS", 2 * degree)
    opened = [authority.open(total) for total in totals[:2]]
    assert authority.opened_coefficients == 2 * degree
    authority.save(tmp_path / "k", "pass")
    for each in (authority, sf.KeyAuthority.load(tmp_path / "k", "pass")):
        assert each.opened_coefficients == 2 * degree
        with pytest.raises(sf.PolicyError, match="make a new key authority"):
            each.open(totals[2])
        # What was opened before costs nothing.
        for total, values in zip(totals[:2], opened, strict=True):
            np.testing.assert_array_equal(each.open(total), values)
        assert each.opened_coefficients == 2 * degree


def test_the_budget_is_the_one_that_the_proof_is_for():
    assert key_authority.MOST_OPENED_COEFFICIENTS == 2**32


def test_second_different_total_of_a_round(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    first = total_of(authority, 3, round_number=4)
    opened = authority.open(first)
    with pytest.raises(sf.PolicyError, match="round 4"):
        authority.open(total_of(authority, 2, round_number=4))
    np.testing.assert_array_equal(authority.open(first), opened)
    np.testing.assert_array_equal(authority.open_mean(first.to_bytes()), opened / 3)
    authority.open(total_of(authority, 2, round_number=5))


def test_refused_totals_do_not_use_up_a_round(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    with pytest.raises(sf.PolicyError):
        authority.open(total_of(authority, 1))
    foreign = sf.KeyAuthority(parameters, min_clients=2)
    with pytest.raises(sf.KeyMismatchError):
        authority.open(total_of(foreign, 2))
    authority.open(total_of(authority, 2))


def test_one_total_per_round_can_be_given_up(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=2, one_total_per_round=False)
    authority.open(total_of(authority, 2))
    authority.open(total_of(authority, 3))


def test_a_batch_is_never_opened(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=1)
    batch = sf.ckks.Encryptor(authority.public_key).encrypt(UPDATE)
    with pytest.raises(sf.PolicyError):
        authority.open(batch)
    with pytest.raises(sf.WireFormatError, match="batch"):
        authority.open(batch.to_bytes())


def test_foreign_parameters(parameters):
    other = sf.KeyAuthority(sf.ckks.Parameters(max_clients=9))
    with pytest.raises(sf.ParameterError):
        sf.KeyAuthority(parameters, min_clients=2).open(total_of(other, 2))


@pytest.mark.parametrize("min_clients", [0, 9, -1, 1.5, None])
def test_bad_min_clients(parameters, min_clients):
    with pytest.raises(sf.ParameterError):
        sf.KeyAuthority(parameters, min_clients=min_clients)


def test_bad_parameters_object():
    with pytest.raises(sf.ParameterError):
        sf.KeyAuthority({"max_clients": 4})


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_secret_is_not_copied(parameters, attempt):
    with pytest.raises(
        sf.SecretCopyError, match=r"KeyPairAuthority holds a secret key .*: use save\(\)"
    ) as caught:
        attempt(sf.KeyAuthority(parameters, min_clients=2))
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_a_key_file_holds_is_not_copied(attempt):
    with pytest.raises(sf.SecretCopyError, match="secret key"):
        attempt(authority_secrets.Contents(b"", 2, True, {}, bytearray(b"secret")))


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_encryptors_are_not_copied(parameters, attempt):
    encryptor = sf.ckks.Encryptor(sf.KeyAuthority(parameters, min_clients=2).public_key)
    with pytest.raises(sf.SecretCopyError, match="make another from it"):
        attempt(encryptor)


def test_core_objects_with_secrets_are_not_copied(parameters):
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(sf.KeyAuthority(parameters, min_clients=2)._decryptor)


def test_repr_shows_no_secret(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    secret = bytes(authority._decryptor.export_secret())
    shown = repr(authority) + repr(authority._decryptor) + repr(authority.public_key)
    assert secret.hex()[:32] not in shown
    assert len(shown) < 500


def test_public_halves_can_be_pickled(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    batch = sf.ckks.Encryptor(authority.public_key).encrypt(UPDATE)
    for thing in (authority.public_key, authority.public_key.parameters, sf.Mask.full(9)):
        assert pickle.loads(pickle.dumps(thing)) == thing
    assert pickle.loads(pickle.dumps(batch)).to_bytes() == batch.to_bytes()


@pytest.mark.parametrize("packing", ["exact", "slots"])
def test_saved_key_opens_the_same_totals_with_the_same_values(tmp_path, packing, cheap_scrypt):
    authority = sf.KeyAuthority(sf.ckks.Parameters(packing=packing, max_clients=8), min_clients=2)
    total = total_of(authority, 2, round_number=1)
    opened = authority.open(total)
    path = tmp_path / "authority.key"
    authority.save(path, "correct horse")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = sf.KeyAuthority.load(path, "correct horse")
    assert again.public_key == authority.public_key
    np.testing.assert_array_equal(again.open(total), opened)
    with pytest.raises(sf.PolicyError, match="round 1"):
        again.open(total_of(authority, 3, round_number=1))


def test_secret_is_not_in_the_file(tmp_path, parameters, cheap_scrypt):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    authority.save(tmp_path / "k", "pass")
    assert bytes(authority._decryptor.export_secret())[:64] not in (tmp_path / "k").read_bytes()


def test_saving_replaces_in_one_step(tmp_path, parameters, cheap_scrypt):
    path = tmp_path / "k"
    sf.KeyAuthority(parameters, min_clients=2).save(path, "one")
    second = sf.KeyAuthority(parameters, min_clients=2)
    second.save(path, "two")
    assert sf.KeyAuthority.load(path, "two").public_key == second.public_key
    assert [entry.name for entry in tmp_path.iterdir()] == ["k"]


def test_wrong_passphrase_and_altered_files(tmp_path, parameters, cheap_scrypt):
    path = tmp_path / "k"
    sf.KeyAuthority(parameters, min_clients=2).save(path, "pass")
    with pytest.raises(sf.KeyMismatchError, match="passphrase"):
        sf.KeyAuthority.load(path, "word")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"min_clients": 2', b'"min_clients": 1'))
    with pytest.raises(sf.KeyMismatchError):
        sf.KeyAuthority.load(path, "pass")
    for bad in (b"", whole[:30], b"x" + whole, whole.replace(b'"salt"', b'"malt"'), b"\0" * 100):
        path.write_bytes(bad)
        with pytest.raises(sf.WireFormatError):
            sf.KeyAuthority.load(path, "pass")
    path.write_bytes(whole[:-1])
    with pytest.raises(sf.KeyMismatchError):
        sf.KeyAuthority.load(path, "pass")


def test_empty_passphrase(tmp_path, parameters):
    with pytest.raises(sf.ParameterError, match="passphrase"):
        sf.KeyAuthority(parameters, min_clients=2).save(tmp_path / "k", "")
    assert not list(tmp_path.iterdir())


def test_default_cost_of_a_guess_is_the_documented_one():
    assert private_file._SCRYPT_COST == 2**17


def test_passphrase_must_be_text(tmp_path, parameters):
    with pytest.raises(sf.ParameterError, match="str"):
        sf.KeyAuthority(parameters, min_clients=2).save(tmp_path / "k", b"bytes")


def weighted_total(authority, weights, round_number=0):
    encryptor = sf.ckks.Encryptor(authority.public_key)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    for weight in weights:
        aggregator.add(encryptor.encrypt(UPDATE, weight=weight, round=round_number))
    return aggregator.total()


@pytest.mark.parametrize("packing", ["exact", "slots"])
def test_weights_within_their_bounds_give_a_mean_and_others_none(packing):
    parameters = sf.ckks.Parameters(packing=packing, max_clients=8, fraction_bits=16)
    authority = sf.KeyAuthority(parameters, min_clients=2, weight_bounds=(0.1, 0.5))
    for number, weights in enumerate(((0.1, 0.1), (0.5, 0.5, 0.5), (0.1, 0.3))):
        total = weighted_total(authority, weights, number)
        for given in (total, total.to_bytes()):
            mean = authority.open_mean(given, stated_weight=sum(weights))
            np.testing.assert_allclose(mean, UPDATE, atol=1e-3)
    for number, weights in enumerate(((0.09, 0.1), (0.5, 0.5, 0.51)), start=3):
        with pytest.raises(sf.RangeError, match="weight_bounds"):
            authority.open_mean(weighted_total(authority, weights, number))
    # Two steps are more than rounding one weight can be off.
    total = weighted_total(authority, (0.3, 0.3), 5)
    for wrong in (0.6 + 2.0**-12, 0.6 - 2.0**-12, float("nan"), 0.0, -0.6):
        with pytest.raises(sf.RangeError, match="stated"):
            authority.open_mean(total, stated_weight=wrong)
    np.testing.assert_allclose(authority.open_mean(total, stated_weight=0.6), UPDATE, atol=1e-3)


def test_rounding_of_many_weights_is_no_forgery():
    parameters = sf.ckks.Parameters(max_clients=64, value_bits=10, fraction_bits=8)
    authority = sf.KeyAuthority(parameters, min_clients=2)
    # Each is rounded by as much as there can be, all in one direction.
    weights = [0.5 + 2.0**-9 - 2.0**-20] * 64
    authority.open_mean(weighted_total(authority, weights), stated_weight=sum(weights))


def test_without_encrypted_weights_the_number_of_clients_is_compared(parameters):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    total = total_of(authority, 3)
    with pytest.raises(sf.RangeError, match="stated"):
        authority.open_mean(total, stated_weight=4)
    authority.open_mean(total, stated_weight=3)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (0.5, 0.4), (0.1, np.inf), (np.nan, 1.0)])
def test_bounds_of_weights_are_checked(parameters, bounds):
    with pytest.raises(sf.ParameterError, match="weight_bounds"):
        sf.KeyAuthority(parameters, min_clients=2, weight_bounds=bounds)


def test_bounds_of_weights_are_stored_and_older_files_have_the_default(tmp_path, cheap_scrypt, monkeypatch):
    authority = sf.KeyAuthority(sf.ckks.Parameters(max_clients=8), weight_bounds=(0.25, 0.75))
    path = tmp_path / "k"
    authority.save(path, "pass")
    assert sf.KeyAuthority.load(path, "pass").weight_bounds == (0.25, 0.75)
    dumps = authority_secrets.json.dumps
    older = lambda header: dumps({k: v for k, v in header.items() if k != "weight_bounds"})  # noqa: E731
    monkeypatch.setattr(authority_secrets.json, "dumps", older)
    authority.save(path, "pass")
    assert b"weight_bounds" not in path.read_bytes()
    assert sf.KeyAuthority.load(path, "pass").weight_bounds == (2.0**-6, 1.0)


def test_a_wiped_key_opens_and_saves_nothing(tmp_path, parameters):
    authority = sf.KeyAuthority(parameters, min_clients=2)
    total = total_of(authority, 3)
    authority.open(total)
    authority.wipe()
    authority.wipe()
    for use in (lambda: authority.open(total), lambda: authority.save(tmp_path / "k", "pass")):
        with pytest.raises(sf.PolicyError, match="wiped"):
            use()
    assert not list(tmp_path.iterdir())
    assert authority.public_key.to_bytes()
