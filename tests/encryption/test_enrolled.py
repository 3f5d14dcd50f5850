"""Schemes in which clients enrol; requests, grants and answers as docs/reference/wire-format.md says."""

from __future__ import annotations

import copy
import hashlib
import hmac
import pickle
import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import shieldfl as sf
from encryption.enrolled_clients import (
    AUTHORITY,
    answer,
    client_key,
    each_scheme,
    encrypt,
    opened,
    session,
    total_of,
)
from on_threads import on_threads
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.encryption.enrolment import (
    client_number,
    grant_key,
    open_total,
    read_answer,
    request_context,
    sealed_answer,
    sealed_grant,
    sealed_request,
)
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.parameters import SumNeeds
from shieldfl.encryption.registry import REGISTRY, scheme_named
from shieldfl.errors import (
    DuplicateFrameError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    RangeError,
    SecretCopyError,
    WireFormatError,
)


@each_scheme
def test_what_was_encrypted_for_something_else_is_not_added(scheme):
    public_key, update = session(scheme), np.ones(10, np.float32)
    aggregator = scheme.Aggregator(public_key, round=1)
    aggregator.add(encrypt(public_key, 0, update, round=1))
    before = aggregator.total().to_bytes()
    for error, batch in (
        (PolicyError, encrypt(public_key, 1, update, round=1, purpose="votes")),
        (PolicyError, encrypt(public_key, 1, update, round=1, part=1)),
        (DuplicateFrameError, encrypt(public_key, 0, update, round=1)),
        (KeyMismatchError, encrypt(session(scheme, manifest=2), 1, update, round=1)),
    ):
        with pytest.raises(error):
            aggregator.add(batch)
        assert aggregator.total().to_bytes() == before
    aggregator.add(encrypt(public_key, 1, update, round=1).to_bytes())
    assert aggregator.total().named_clients == (0, 1)


@each_scheme
def test_a_key_opens_the_total_it_was_made_for_alone(scheme):
    public_key, update = session(scheme), np.linspace(-1, 1, 500)
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
        open_total(session(scheme, manifest=2), total, key)
    with pytest.raises(KeyMismatchError, match="another scheme"):
        open_total(session(sf.pads if scheme is sf.kahe else sf.kahe), total, key)
    np.testing.assert_array_equal(open_total(public_key, total, key)[0], np.rint(update * 2**20) * 3 / 2**20)


@each_scheme
def test_sum_keys_take_the_keys_of_the_participants(scheme):
    public_key = session(scheme)
    total = total_of(public_key, [encrypt(public_key, client, np.ones(9)) for client in range(3)])
    keys = [client_key(public_key, client) for client in range(3)]
    elsewhere = [client_key(session(scheme, manifest=2), client) for client in range(3)]
    for wrong in (keys[::-1], [keys[0], keys[1], client_key(public_key, 3)], elsewhere):
        with pytest.raises(KeyMismatchError):
            sum_key(public_key, total.request(), wrong)
    with pytest.raises(ParameterError):
        sum_key(public_key, total.request(), keys[:2])
    keys[1].advance_to(1)
    with pytest.raises(KeyMismatchError):
        sum_key(public_key, total.request(), keys)


@each_scheme
def test_a_client_s_key_goes_on_with_its_rounds(scheme):
    public_key, update = session(scheme), np.ones(5, np.float32)
    key = client_key(public_key, 2)
    encryptor = scheme.Encryptor(key)
    encryptor.encrypt(update, round=3)
    assert key.round == 3
    with pytest.raises(PolicyError, match="round 2 is over"):
        encryptor.encrypt(update, round=2)
    with pytest.raises(PolicyError, match="more than 65536 rounds"):
        encryptor.encrypt(update, round=3 + 2**16 + 1)
    for number in (3, 4):
        with pytest.raises(RangeError, match="position 1 "):
            encryptor.encrypt(np.array([0.0, np.nan], np.float32), round=number)
    assert key.round == 3
    again = scheme.ClientKey(public_key, 2, key.export_secret(), round=3)
    assert again.export_secret() == key.export_secret() != client_key(public_key, 2).export_secret()


@each_scheme
@pytest.mark.parametrize(
    "make",
    [
        lambda scheme, key: scheme.PublicKey.of_session(key.parameters, bytes(31), AUTHORITY),
        lambda scheme, key: scheme.PublicKey.of_session(key.parameters, bytes(32), bytes(15)),
        lambda scheme, key: scheme.PublicKey.of_session(key.parameters, bytes(32), AUTHORITY, 2**32),
        lambda scheme, key: scheme.PublicKey.of_session(sf.ckks.Parameters(), bytes(32), AUTHORITY),
        lambda scheme, key: scheme.ClientKey.of_secret(key, 0, bytes(33)),
        lambda scheme, key: scheme.ClientKey.of_secret(key, 2**32, bytes(32)),
        lambda scheme, key: scheme.ClientKey(key, -1, bytes(32)),
        lambda scheme, key: scheme.ClientKey.request(sf.KeyAuthority(sf.ckks.Parameters(), 1).public_key, 0),
        lambda scheme, key: scheme.Encryptor(b"key"),
        lambda scheme, key: scheme.Encryptor(key),
        lambda scheme, key: scheme.Encryptor(client_key(key, 0), part=2**32),
        lambda scheme, key: scheme.Aggregator(key, weighted=1),
    ],
)
def test_what_cannot_be_is_refused(scheme, make):
    with pytest.raises(ParameterError):
        make(scheme, session(scheme))


@each_scheme
def test_secrets_are_not_copied_and_public_things_are(scheme):
    public_key = session(scheme)
    key = client_key(public_key, 1)
    for secret in (key, scheme.Encryptor(key)):
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SecretCopyError):
                take(secret)
    assert key.export_secret().hex() not in repr(key) + repr(key.__class__)
    for public in (public_key, public_key.parameters, encrypt(public_key, 1, np.ones(3))):
        assert type(pickle.loads(pickle.dumps(public))) is type(public)
    assert pickle.loads(pickle.dumps(public_key)) == public_key


def test_a_frame_is_of_the_round_that_it_was_told_whatever_other_threads_do():
    """One thread moves the key on while another encrypts: no update comes to be labelled with a later round."""
    update = np.ones(5, np.float32)
    encryptor = sf.kahe.Encryptor(client_key(session(sf.kahe), 2), 1)
    made, refused, rounds = [], [], iter(range(4000))

    def run():
        for number in rounds:
            try:
                made.append((number, encryptor.encrypt(update, round=number).round))
            except PolicyError:
                refused.append(number)

    on_threads(4, run, switch_seconds=1e-6)
    assert len(made) > 1000
    assert len(made) + len(refused) == 4000
    assert [one for one in made if one[0] != one[1]] == []


@pytest.mark.parametrize(
    ("value_bits", "fraction_bits", "more"), [(24, 20, 3), (38, 20, 2), (24, 51, 1), (40, 20, 0)]
)
def test_weights_get_bits_while_there_is_room(value_bits, fraction_bits, more):
    needs = SumNeeds(
        clients=8, value_bits=value_bits, fraction_bits=fraction_bits, most_weight=400, mean_weight=407 / 8
    )
    for name in ("kahe", "ckks", "pads"):
        chosen = scheme_named(name).update_parameters(name, needs)
        assert (chosen.value_bits, chosen.fraction_bits) == (value_bits + more, fraction_bits + more)


def test_an_unknown_count_takes_the_default_ring_and_calibration_the_quickest():
    needs = {"value_bits": 24, "fraction_bits": 20}
    scheme = REGISTRY["kahe"]
    assert scheme.update_parameters("kahe", SumNeeds(clients=20, **needs)) == sf.kahe.Parameters(
        max_clients=20
    )
    assert scheme.calibrated_parameters("kahe", 3072) == sf.kahe.Parameters.plan(goal="speed")
    with pytest.raises(ParameterError, match="guard bits"):
        scheme.update_parameters("kahe", SumNeeds(clients=2**20, value_bits=40, fraction_bits=20))


@pytest.mark.parametrize("name", ["kahe", "pads"])
def test_the_verbs_of_every_scheme_are_its_own(name):
    """Positions, encryption and sums by the interface alone, up to the opening, which is an authority's."""
    scheme = REGISTRY[name]
    needs = SumNeeds(clients=2, value_bits=24, fraction_bits=20, count=300)
    public_key = scheme.PublicKey.of_session(scheme.update_parameters(name, needs), bytes(32), AUTHORITY)
    masks = [sf.Mask.from_indices(np.arange(0, 900, 3), 1000), sf.Mask.from_indices([1, 4], 1000)]
    positions = scheme.read_positions(scheme.positions_of(masks, None).to_bytes(), 1000)
    aggregator = scheme.aggregator(public_key, None, 3, positions, weighted=True, purpose="update")
    keys = [client_key(public_key, client) for client in (0, 1)]
    updates = np.random.default_rng(2).integers(-(2**20), 2**20, (2, 1000)) * 2.0**-20
    for key, update, own in zip(keys, updates, masks, strict=True):
        frame, covered = scheme.encrypt(scheme.encryptor(key, None, "update"), update, own, positions, 0.5, 3)
        assert (covered, public_key._batch_class.from_bytes(frame).client) == (positions.mask, key.client)
        with pytest.raises(KeyMismatchError, match="another client"):
            scheme.add(aggregator, key.client + 1, frame, 1, None)
        scheme.add(aggregator, key.client, frame, 1, None)
    total = aggregator.total()
    sums, weights = open_total(public_key, total, answer(public_key, total))
    rounded = np.rint(updates * 0.5 * 2.0**20).sum(axis=0) / 2.0**20
    np.testing.assert_array_equal(sums, positions.gather(rounded))
    assert weights == 1.0
    with pytest.raises(PolicyError, match="leaves out positions"):
        scheme.encrypt(scheme.Encryptor(keys[0]), updates[0], masks[0], masks[1], None, 4)


CLIENTS, VALUE_BITS, SUM_BITS = 100, 13, 16
NARROW = {"max_clients": CLIENTS, "value_bits": VALUE_BITS, "fraction_bits": 0}
"""With sum_bits: sums of fewer bits than any sum takes, for those who know that their sums are small."""


@each_scheme
def test_draws_of_all_clients_open_in_far_fewer_bits_than_their_largest_would_take(scheme):
    narrow, full = session(scheme, **NARROW, sum_bits=SUM_BITS), session(scheme, **NARROW)
    assert narrow.parameters.bytes_per_value < 0.9 * full.parameters.bytes_per_value
    # 11 deviations of one are in range, and as many of their sum: 2^15 is 11 times the root of 100 times 298.
    updates = np.random.default_rng(5).normal(0, 298, (CLIENTS, 5_000)).round()
    assert CLIENTS * np.abs(updates).max() > 2 ** (SUM_BITS - 1)
    for public_key in (narrow, full):
        np.testing.assert_array_equal(opened(public_key, updates)[0], updates.sum(axis=0))


@each_scheme
def test_a_client_sends_what_value_bits_say_and_no_weight_beside_it(scheme):
    """The sum of weights is as large as it is, whatever the sums of values are known to be."""
    limit = 2 ** (VALUE_BITS - 1) - 1
    for sum_bits in (VALUE_BITS + 7, None):
        encrypt(session(scheme, **NARROW, sum_bits=sum_bits), 0, np.ones(1), weight=1.0)
    narrow = session(scheme, **NARROW, sum_bits=SUM_BITS)
    with pytest.raises(ParameterError, match="leave sum_bits out, or multiply by weights before encrypting"):
        encrypt(narrow, 0, np.ones(1), weight=1.0)
    encrypt(narrow, 0, np.array([float(limit)]))
    with pytest.raises(RangeError):
        encrypt(narrow, 0, np.array([limit + 1.0]))


@each_scheme
def test_narrow_parameters_are_what_they_say(scheme):
    narrow = scheme.Parameters(**NARROW, sum_bits=SUM_BITS)
    for one in (narrow, scheme.Parameters.plan(**NARROW, sum_bits=SUM_BITS, goal="size", count=10**6)):
        for again in (eval(repr(one), {"Parameters": scheme.Parameters}), pickle.loads(pickle.dumps(one))):
            assert again == one
        assert "up to 100, 3 guard bits for their sum\n" in one.describe()
        assert "below 2^15 steps, which clients see to: any sum would take 20 bits, not 16" in one.describe()
    full = scheme.Parameters(**NARROW)
    assert "which clients see to" not in full.describe()
    assert full == scheme.Parameters(**NARROW, sum_bits=VALUE_BITS + 7) != narrow
    key = session(scheme, **NARROW, sum_bits=SUM_BITS)
    assert scheme.PublicKey.from_bytes(key.to_bytes()).parameters == narrow


@each_scheme
def test_fewer_bits_than_a_value_s_and_more_than_any_sum_s_are_refused(scheme):
    for sum_bits in (VALUE_BITS - 1, VALUE_BITS + 8, 0, 2**40):
        for make in (scheme.Parameters, scheme.Parameters.plan):
            with pytest.raises(ParameterError, match=r"between 13, .* and 20, which holds any"):
                make(**NARROW, sum_bits=sum_bits)
    for sum_bits in (-1, 16.5, "16"):
        with pytest.raises(ParameterError, match="sum_bits"):
            scheme.Parameters(**NARROW, sum_bits=sum_bits)
    widest = {"max_clients": 2**20, "value_bits": 40, "fraction_bits": 0}
    with pytest.raises(ParameterError, match=r"20 guard bits .* at most 54 together"):
        scheme.Parameters(**widest)
    with pytest.raises(ParameterError, match=r"between 40, .* and 54, which float64 holds"):
        scheme.Parameters(**widest, sum_bits=55)
    more = {"ring_degree": 8192} if scheme is sf.kahe else {}
    assert scheme.Parameters(**widest, **more, sum_bits=54).max_clients == 2**20


@pytest.mark.parametrize(
    ("encryption", "bits"), [("kahe", SUM_BITS), ("pads", SUM_BITS), ("ckks", 20), ("paillier-dense", 20)]
)
@pytest.mark.parametrize("count", [None, 4000])
def test_schemes_without_a_choice_of_it_have_room_for_any_sum(encryption, bits, count):
    needs = {"clients": CLIENTS, "value_bits": VALUE_BITS, "fraction_bits": 0, "sum_bits": SUM_BITS}
    scheme = scheme_named(encryption)
    chosen = scheme.update_parameters(encryption, SumNeeds(**needs, count=count, key_bits=2048))
    assert chosen.value_bits + chosen._facts["guard_bits"] == bits


@each_scheme
def test_what_a_total_that_does_not_open_may_be_is_said(scheme):
    narrow = session(scheme, **NARROW, sum_bits=VALUE_BITS)
    with pytest.raises(WireFormatError, match="larger than sum_bits hold"):
        opened(narrow, np.full((2, 1), 2.0 ** (VALUE_BITS - 2)))
    full = session(scheme, **NARROW)
    total = total_of(full, [encrypt(full, 0, np.ones(9))])
    other = scheme.ClientKey.of_secret(full, 0, bytes(32))
    with pytest.raises(WireFormatError, match=r"one of them was altered$"):
        open_total(full, total, sum_key(full, total.request(), [other]))


SECRET, SESSION, KEY = bytes(range(32)), bytes(16), bytes(range(1, 33))


def test_an_authority_s_id_is_of_both_its_keys():
    one = AuthoritySecrets().identity
    assert (len(one.verifying_key), len(one.enrolment_key)) == (32, 1184 + 32)
    both = b"shieldfl authority 1\0" + one.verifying_key + one.enrolment_key
    assert one.id == hashlib.blake2b(both, digest_size=16).digest()


def test_a_request_says_who_asks_and_seals_what_is_shared():
    secrets = AuthoritySecrets()
    name = "clinic-7"
    number = 2**31 | int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1
    for client, stated, encoded in ((7, 7, b""), (name, number, name.encode())):
        assert client_number(client) == stated
        request = sealed_request(secrets.identity, SESSION, client, SECRET)
        head = b"SHER" + struct.pack("<BIB", 1, stated, len(encoded)) + encoded
        assert request[: len(head)] == head
        assert len(request) == len(head) + 1120 + 32 + 16
        assert SECRET not in request
        assert secrets.unseal(request, SESSION) == (client, SECRET)
        info = b"shieldfl enrolment 1\0" + struct.pack("<HIB", 16, stated, len(encoded)) + SESSION + encoded
        assert request_context(SESSION, client) == info


def test_a_grant_is_sealed_under_what_was_shared():
    context = b"shieldfl grant 1\0" + SESSION
    grant = sealed_grant(under := grant_key(SECRET, SESSION), SESSION, KEY)
    assert under == hmac.digest(SECRET, context, "sha256")
    assert AESGCM(under).decrypt(grant[:12], grant[12:], context) == KEY


def test_an_answer_is_signed_for_one_request():
    signing_key, request, sum_key = Ed25519PrivateKey.generate(), b"a request", b"a sum key"
    answer = sealed_answer(signing_key, KEY, SESSION, request, sum_key)
    context = b"shieldfl answer 2\0" + SESSION + hashlib.sha256(request).digest()
    signing_key.public_key().verify(answer[:64], context + answer[64:])
    salted = AESGCM(KEY).decrypt(answer[64:76], answer[108:], context)
    assert salted[32:] == sum_key
    assert answer[76:108] == hashlib.sha256(context + salted).digest()


@pytest.mark.parametrize("case", ["other contents", "other key", "no contents", "too short"])
def test_an_answer_opens_to_what_it_commits_to_or_to_nothing(case):
    """Whatever its authority does: for two clients with keys of its choice it has one commitment."""
    signing_key, request = Ed25519PrivateKey.generate(), b"a request"
    context = b"shieldfl answer 2\0" + SESSION + hashlib.sha256(request).digest()
    answer = sealed_answer(signing_key, KEY, SESSION, request, b"a sum key")
    key, contents = {
        "other contents": (KEY, bytes(32) + b"another sum key"),
        "other key": (bytes(32), bytes(32) + b"a sum key"),
        "no contents": (KEY, b""),
        "too short": (KEY, None),
    }[case]
    sealed = b"" if contents is None else AESGCM(key).encrypt(answer[64:76], contents, context)
    frame = answer[64:108] + sealed
    frame = signing_key.sign(context + frame) + frame
    public_key = signing_key.public_key().public_bytes_raw()
    assert read_answer(public_key, KEY, SESSION, request, answer) == b"a sum key"
    for own in (KEY, key):
        with pytest.raises(PolicyError, match="sealed for others"):
            read_answer(public_key, own, SESSION, request, frame)
