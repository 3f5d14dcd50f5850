"""Key-additive encryption as it is used from Python."""

from __future__ import annotations

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.encryption import kahe
from shieldfl.encryption.answers import open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.errors import (
    CapacityError,
    DuplicateFrameError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    RangeError,
    SecretCopyError,
    WireFormatError,
)

AUTHORITY = bytes(range(16))


def session(parameters=None, manifest=1, **options):
    parameters = parameters or kahe.Parameters(max_clients=4, **options)
    return kahe.PublicKey.of_session(parameters, bytes([manifest]) * 32, AUTHORITY)


def client_key(public_key, client, round=0):
    key = kahe.ClientKey.of_secret(public_key, client, bytes([client + 1]) * 32)
    key.advance_to(round)
    return key


def encrypt(public_key, client, update, *, round=0, mask=None, weight=None, **options):
    encryptor = kahe.Encryptor(client_key(public_key, client), **options)
    return encryptor.encrypt(update, mask, weight, round)


def total_of(public_key, batches, **options):
    aggregator = kahe.Aggregator(public_key, **options)
    for batch in batches:
        aggregator.add(batch)
    return aggregator.total()


def answer(public_key, total):
    keys = [client_key(public_key, client, total.round) for client, _ in total.participants]
    return sum_key(public_key, total.request(), keys)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("degree", [2048, 4096, 8192])
def test_weighted_masked_sums_open_exactly(dtype, degree):
    rng = np.random.default_rng(degree)
    public_key = session(ring_degree=degree)
    mask = sf.Mask.from_bool(rng.random(30_000) < 0.6)
    weights = [1.0, 0.5, 0.25, 0.125]
    updates = [rng.uniform(-7, 7, 30_000).astype(dtype) for _ in weights]
    batches = [
        encrypt(public_key, client, update, round=5, mask=mask, weight=weight)
        for client, (update, weight) in enumerate(zip(updates, weights, strict=True))
    ]
    total = total_of(public_key, batches, round=5, positions=mask, weighted=True)
    sums, weight_sum = open_total(
        public_key, kahe.Total.from_bytes(total.to_bytes()), answer(public_key, total)
    )
    expected = sum(
        np.rint(mask.gather(update).astype(np.float64) * weight * 2**20)
        for update, weight in zip(updates, weights, strict=True)
    )
    np.testing.assert_array_equal(sums, expected / 2**20)
    assert weight_sum == sum(weights)
    assert total.clients == 4
    assert total.is_of(mask)
    assert [client for client, _ in total.participants] == [0, 1, 2, 3]


def test_an_update_takes_hardly_more_bytes_than_in_the_clear():
    update = np.zeros(2_000_000, np.float32)
    for settings, most in (
        ({"max_clients": 64}, 4.1),
        ({"max_clients": 32, "value_bits": 16, "fraction_bits": 10}, 2.9),
        ({"max_clients": 1000, "value_bits": 16, "fraction_bits": 10}, 3.6),
    ):
        public_key = session(kahe.Parameters(**settings))
        assert encrypt(public_key, 0, update).nbytes <= most * update.size


def test_what_was_encrypted_for_something_else_is_not_added():
    public_key, update = session(), np.ones(10, np.float32)
    aggregator = kahe.Aggregator(public_key, round=1)
    aggregator.add(encrypt(public_key, 0, update, round=1))
    before = aggregator.total().to_bytes()
    for error, batch in (
        (PolicyError, encrypt(public_key, 1, update, round=2)),
        (PolicyError, encrypt(public_key, 1, update, round=1, purpose="votes")),
        (PolicyError, encrypt(public_key, 1, update, round=1, part=1)),
        (DuplicateFrameError, encrypt(public_key, 0, update, round=1)),
        (KeyMismatchError, encrypt(session(manifest=2), 1, update, round=1)),
        (ParameterError, encrypt(session(kahe.Parameters(max_clients=5)), 1, update, round=1)),
        (ParameterError, encrypt(public_key, 1, np.ones(11, np.float32), round=1)),
        (WireFormatError, aggregator.total()),
    ):
        with pytest.raises(error):
            aggregator.add(batch)
        assert aggregator.total().to_bytes() == before
    for client in (1, 2, 3):
        aggregator.add(encrypt(public_key, client, update, round=1).to_bytes())
    with pytest.raises(CapacityError):
        aggregator.add(encrypt(public_key, 4, update, round=1))


def test_a_key_opens_the_total_it_was_made_for_alone():
    public_key, update = session(), np.linspace(-1, 1, 500)
    batches = [encrypt(public_key, client, update) for client in range(3)]
    total, other = total_of(public_key, batches), total_of(public_key, batches[:2])
    key = answer(public_key, total)
    with pytest.raises(KeyMismatchError, match="another list"):
        open_total(public_key, other, key)
    again = total_of(public_key, [encrypt(public_key, client, update) for client in range(3)])
    with pytest.raises(KeyMismatchError):
        open_total(public_key, again, key)
    with pytest.raises(PolicyError, match="only totals"):
        open_total(public_key, batches[0], key)
    with pytest.raises(WireFormatError):
        open_total(public_key, total, key[:-9])
    with pytest.raises(KeyMismatchError):
        open_total(session(manifest=2), total, key)
    np.testing.assert_array_equal(open_total(public_key, total, key)[0], np.rint(update * 2**20) * 3 / 2**20)


def test_sum_keys_take_the_keys_of_the_participants():
    public_key = session()
    total = total_of(public_key, [encrypt(public_key, client, np.ones(9)) for client in range(3)])
    keys = [client_key(public_key, client) for client in range(3)]
    for wrong in (keys[::-1], [keys[0], keys[1], client_key(public_key, 3)]):
        with pytest.raises(KeyMismatchError):
            sum_key(public_key, total.request(), wrong)
    with pytest.raises(ParameterError):
        sum_key(public_key, total.request(), keys[:2])
    with pytest.raises(KeyMismatchError):
        sum_key(public_key, total.request(), [client_key(session(manifest=2), client) for client in range(3)])
    keys[1].advance_to(1)
    with pytest.raises(KeyMismatchError):
        sum_key(public_key, total.request(), keys)


def test_a_client_s_key_goes_on_with_its_rounds():
    public_key, update = session(), np.ones(5, np.float32)
    key = client_key(public_key, 2)
    encryptor = kahe.Encryptor(key)
    encryptor.encrypt(update, round=3)
    assert key.round == 3
    with pytest.raises(PolicyError, match="round 2 is over"):
        encryptor.encrypt(update, round=2)
    with pytest.raises(PolicyError, match="more than 65536 rounds"):
        encryptor.encrypt(update, round=3 + 2**16 + 1)
    with pytest.raises(RangeError, match="position 1 "):
        encryptor.encrypt(np.array([0.0, np.nan], np.float32), round=3)
    with pytest.raises(RangeError, match="position 1 "):
        encryptor.encrypt(np.array([0.0, np.nan], np.float32), round=4)
    assert key.round == 3
    again = kahe.ClientKey(public_key, 2, key.export_secret(), round=3)
    assert again.export_secret() == key.export_secret() != client_key(public_key, 2).export_secret()


@pytest.mark.parametrize(
    "make",
    [
        lambda key: kahe.PublicKey.of_session(kahe.Parameters(), bytes(31), AUTHORITY),
        lambda key: kahe.PublicKey.of_session(kahe.Parameters(), bytes(32), bytes(15)),
        lambda key: kahe.PublicKey.of_session(kahe.Parameters(), bytes(32), AUTHORITY, 2**32),
        lambda key: kahe.PublicKey.of_session(sf.ckks.Parameters(), bytes(32), AUTHORITY),
        lambda key: kahe.ClientKey.of_secret(key, 0, bytes(33)),
        lambda key: kahe.ClientKey.of_secret(key, 2**32, bytes(32)),
        lambda key: kahe.ClientKey(key, -1, bytes(32)),
        lambda key: kahe.Encryptor(b"key"),
        lambda key: kahe.Encryptor(client_key(key, 0), part=2**32),
        lambda key: kahe.Aggregator(key, weighted=1),
        lambda key: kahe.Parameters(ring_degree=1024),
        lambda key: kahe.Parameters(max_clients=0),
        lambda key: kahe.Parameters(value_bits=41),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(ParameterError):
        make(session())


def test_secrets_are_not_copied_and_public_things_are():
    public_key = session(ring_degree=2048)
    key = client_key(public_key, 1)
    for secret in (key, kahe.Encryptor(key)):
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SecretCopyError):
                take(secret)
    assert key.export_secret().hex() not in repr(key) + repr(key.__class__)
    for public in (public_key, public_key.parameters, encrypt(public_key, 1, np.ones(3))):
        assert type(pickle.loads(pickle.dumps(public))) is type(public)
    assert pickle.loads(pickle.dumps(public_key)) == public_key


def test_descriptions_say_what_parameters_are():
    text = kahe.Parameters(max_clients=64).describe()
    for words in ("N = 4096", "50 + 50 bits", "4.04 bytes a value", "2^-111", "128-bit", "docs/kahe.md"):
        assert words in text


def test_a_frame_is_of_the_round_that_it_was_told_whatever_other_threads_do():
    """One thread moves the key on while another encrypts: no update comes to be labelled with a later round."""
    public_key, update = session(), np.ones(5, np.float32)
    key = client_key(public_key, 2)
    encryptor = kahe.Encryptor(key, 1)
    made, refused, rounds = [], [], iter(range(4000))

    def run():
        for number in rounds:
            try:
                made.append((number, encryptor.encrypt(update, round=number).round))
            except PolicyError:
                refused.append(number)

    threads = [threading.Thread(target=run) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(made) > 1000
    assert len(made) + len(refused) == 4000
    assert [one for one in made if one[0] != one[1]] == []


def test_threads_encrypt_and_add_at_once():
    public_key, update = session(), np.ones(200_000, np.float32)
    aggregator = kahe.Aggregator(public_key, threads=2)

    def run(client):
        aggregator.add(encrypt(public_key, client, update, threads=2))

    threads = [threading.Thread(target=run, args=(client,)) for client in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = aggregator.total()
    assert (open_total(public_key, total, answer(public_key, total))[0] == 4.0).all()
