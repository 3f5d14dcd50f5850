"""Keys of rounds: made for one, signed, told from others, and gone when it is over."""

from __future__ import annotations

import copy
import pickle
import weakref
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from encryption.child_process import run_python
from shieldfl.authority import round_key_check
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import KEY_DOMAIN, RoundKeyCheck, RoundKeyReader
from shieldfl.authority.round_keys import RoundKeys
from shieldfl.encryption import ckks
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError

PARAMETERS = ckks.Parameters(max_clients=4)
KEY, SIGNATURE = "round key update", "round signature update"


@pytest.fixture
def keys() -> RoundKeys:
    return RoundKeys({"update": PARAMETERS, "votes": PARAMETERS}, 2)


def first_of(keys: RoundKeys, round_number: int, *purposes: str) -> Message:
    return Message(keys.begin_round(round_number, purposes or ("update",)))


def total_under(key: ckks.PublicKey, round_number: int) -> ckks.Total:
    aggregator = ckks.Aggregator(key, round=round_number)
    for _ in range(2):
        aggregator.add(ckks.Encryptor(key).encrypt(np.ones(9), round=round_number))
    return aggregator.total()


def test_a_round_has_a_key_of_its_own_which_opens_its_total(keys):
    reader = RoundKeyReader(keys.check)
    seen = set()
    for number in (1, 2, 5):
        reader.begin_round(number, first_of(keys, number))
        key = reader.key(number, "update")
        assert key.parameters == PARAMETERS
        np.testing.assert_array_equal(keys.opener(number).open(total_under(key, number)), np.full(9, 2.0))
        seen.add(key.id)
    assert len(seen) == 3


def test_a_round_that_is_begun_again_has_the_same_keys_also_for_a_purpose_that_comes_later(keys):
    first = first_of(keys, 1)
    assert first_of(keys, 1) == first
    both = first_of(keys, 1, "update", "votes")
    assert first.items() <= both.items()
    assert both["round key votes"] != both[KEY]
    reader = RoundKeyReader(keys.check)
    for message in (first, both, first):
        reader.begin_round(1, message)
    assert reader.key(1, "votes").to_bytes() == both["round key votes"]


def test_rounds_only_go_up(keys):
    reader = RoundKeyReader(keys.check)
    first, third = first_of(keys, 1), first_of(keys, 3)
    with pytest.raises(PolicyError, match="round 2 is over"):
        keys.begin_round(2)
    reader.begin_round(3, third)
    with pytest.raises(PolicyError, match="round 1 is over"):
        reader.begin_round(1, first)
    with pytest.raises(PolicyError, match="of round 1"):
        reader.key(1, "update")
    for wrong in (-1, 2**64, 1.5):
        with pytest.raises(ParameterError):
            keys.begin_round(wrong)
    assert reader.key(3, "update")


def test_a_key_is_refused_that_is_missing_substituted_replayed_or_altered(keys):
    reader = RoundKeyReader(keys.check)
    earlier, honest = first_of(keys, 1, "update", "votes"), first_of(keys, 2)
    stranger = first_of(RoundKeys({"update": PARAMETERS}, 2), 2)
    votes = first_of(keys, 2, "votes")
    swapped = {KEY: votes["round key votes"], SIGNATURE: votes["round signature votes"]}
    flipped = bytearray(honest[SIGNATURE])
    flipped[7] ^= 1
    for parts, error, match in (
        ({}, PolicyError, "begin the round"),
        ({KEY: honest[KEY]}, PolicyError, "begin the round"),
        ({SIGNATURE: honest[SIGNATURE]}, PolicyError, "begin the round"),
        (stranger, KeyMismatchError, "not signed"),
        ({**honest, KEY: stranger[KEY]}, KeyMismatchError, "not signed"),
        (earlier, KeyMismatchError, "not signed"),
        ({**honest, KEY: earlier[KEY]}, KeyMismatchError, "not signed"),
        (swapped, KeyMismatchError, "not signed"),
        ({**honest, SIGNATURE: bytes(flipped)}, KeyMismatchError, "not signed"),
        ({**honest, SIGNATURE: b""}, KeyMismatchError, "not signed"),
        ({**honest, "round key votes": b"", "round signature votes": b""}, KeyMismatchError, "not signed"),
    ):
        with pytest.raises(error, match=match):
            reader.begin_round(2, Message(dict(parts)))
        with pytest.raises(PolicyError, match="no key"):
            reader.key(2, "update")
    with pytest.raises(KeyMismatchError):
        RoundKeyReader(replace(keys.check, session=bytes(16))).begin_round(2, honest)
    reader.begin_round(2, honest)
    assert reader.key(2, "update").to_bytes() == honest[KEY]


def test_what_is_signed_tells_every_field_from_the_others():
    """No two different fields give the same bytes: lengths are fixed, or written in front."""
    signed = {
        round_key_check.signed_bytes(KEY_DOMAIN, session, number, purpose, frame)
        for session in (bytes(16), b"\1" * 16)
        for number in (0, 1, 2**64 - 1)
        for purpose in ("", "u", "update")
        for frame in (b"", b"u", b"date", b"pdate")
    }
    assert len(signed) == 2 * 3 * 3 * 4


def test_a_signature_covers_what_the_wire_format_says(keys):
    first = first_of(keys, 7, "votes")
    covered = b"shieldfl round key 1\0" + keys.check.session + (7).to_bytes(8, "little") + b"\x05votes"
    key = ed25519.Ed25519PublicKey.from_public_bytes(keys.check.verifying_key)
    key.verify(first["round signature votes"], covered + first["round key votes"])
    assert len(first["round signature votes"]) == 64


def test_what_one_signature_was_found_to_be_says_nothing_of_another_key_message_or_signature():
    """Answers are remembered: the good one first, then each that differs in one of the three, then all once more."""
    own, other = (ed25519.Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2))
    key, of_other = (one.public_key().public_bytes_raw() for one in (own, other))
    good = own.sign(b"first")
    asked = {
        (key, good, b"first"): True,
        (of_other, good, b"first"): False,
        (key, good, b"second"): False,
        (key, other.sign(b"first"), b"first"): False,
        (key, good[:-1] + bytes([good[-1] ^ 1]), b"first"): False,
        (key, own.sign(b"second"), b"second"): True,
        (of_other, other.sign(b"first"), b"first"): True,
    }
    for _ in range(2):
        for (verifying_key, signature, signed), expected in asked.items():
            assert round_key_check._is_signature(verifying_key, signature, signed) is expected


def test_a_signed_key_of_other_parameters_is_refused(keys):
    first = first_of(keys, 1)
    other = replace(keys.check, parameters={"update": ckks.Parameters(max_clients=5)})
    with pytest.raises(KeyMismatchError, match="other parameters"):
        RoundKeyReader(other).begin_round(1, first)


def test_a_second_key_of_a_round_is_refused_though_it_is_signed(keys):
    """A restarted authority must not get updates of one round under two keys."""
    reader, first = RoundKeyReader(keys.check), first_of(keys, 1)
    reader.begin_round(1, first)
    frame = KeyAuthority(PARAMETERS).public_key.to_bytes()
    signed = round_key_check.signed_bytes(KEY_DOMAIN, keys.check.session, 1, "update", frame)
    second = Message({KEY: frame, SIGNATURE: keys._signing_key.sign(signed)})
    RoundKeyReader(keys.check).begin_round(1, second)
    with pytest.raises(PolicyError, match="another key"):
        reader.begin_round(1, second)
    assert reader.key(1, "update").to_bytes() == first[KEY]


def test_a_signed_frame_that_is_no_key_is_refused(keys):
    signed = round_key_check.signed_bytes(KEY_DOMAIN, keys.check.session, 1, "update", b"nothing")
    message = Message({KEY: b"nothing", SIGNATURE: keys._signing_key.sign(signed)})
    with pytest.raises(WireFormatError):
        RoundKeyReader(keys.check).begin_round(1, message)


@pytest.mark.parametrize("end", ["answered", "next round"])
def test_an_old_secret_is_gone_even_where_somebody_kept_its_authority(keys, end):
    message = first_of(keys, 1)
    key = ckks.PublicKey.from_bytes(message[KEY])
    authority = keys.opener(1)
    held = weakref.ref(authority._decryptor)
    assert held() is not None
    if end == "answered":
        keys.wipe(1)
        assert first_of(keys, 1) == message
    else:
        keys.begin_round(2)
    assert held() is None
    with pytest.raises(PolicyError, match="wiped"):
        keys.opener(1)
    with pytest.raises(PolicyError, match="wiped"):
        authority.open(total_under(key, 1))
    with pytest.raises(PolicyError, match="wiped"):
        authority.save("nowhere", "passphrase")


def test_the_wipe_of_a_round_that_is_over_leaves_the_newest_alone(keys):
    keys.begin_round(1)
    keys.begin_round(2)
    keys.wipe(1)
    assert keys.opener(2)
    for number, purpose in ((1, "update"), (3, "update"), (2, "votes"), (2, "nothing")):
        with pytest.raises(PolicyError, match="no secret key"):
            keys.opener(number, purpose)


SCAN = '''
import sys
import numpy as np
from shieldfl import ckks
from reference import ckks as reference
from shieldfl.authority.round_keys import RoundKeys

MASK = np.uint64(0x5A5AA5A51234FEDC)
WORDS = 6

def rows_in_memory(masked):
    """Count places in this process's memory where the secret's row begins; nothing here holds it unmasked."""
    found = 0
    chunk = np.empty(1 << 18, dtype=np.uint64)
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps.readlines():
            span, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            begin, end = (int(text, 16) for text in span.split("-"))
            for at in range(begin, end, chunk.nbytes - 8 * WORDS):
                view = chunk[: min(chunk.size, (end - at) // 8)]
                memory.seek(at)
                try:
                    count = memory.readinto(view.view(np.uint8)) // 8
                except OSError:
                    break
                view ^= MASK
                for i in np.flatnonzero(view[: count - WORDS + 1] == masked[0]):
                    # The buffer that the memory is read into is part of it.
                    is_own = 0 <= at + 8 * int(i) - chunk.ctypes.data < chunk.nbytes
                    found += bool((view[i : i + WORDS] == masked).all()) and not is_own
    return found

keys = RoundKeys({"update": ckks.Parameters(max_clients=4)}, 2)
keys.begin_round(1)
authority = keys.opener(1)
parameters = authority.public_key.parameters
exported = authority._decryptor.export_secret()
secret = [int(x) for x in np.frombuffer(exported, dtype=np.int8)[: parameters.ring_degree]]
prime = parameters._facts["primes"][0]
root = reference.Ring(parameters.ring_degree, prime).primitive_root()
bits = parameters.ring_degree.bit_length() - 1
masked = []
for index in range(WORDS):
    point = pow(root, 2 * int(f"{index:0{bits}b}"[::-1], 2) + 1, prime)
    word = 0
    for value in reversed(secret):
        word = (word * point + value) % prime
    masked.append(np.uint64(word) ^ MASK)
masked = np.array(masked)
del authority
print(rows_in_memory(masked), end=" ")
keys.begin_round(2)
print(rows_in_memory(masked))
'''


def test_no_copy_of_an_old_secret_is_left_in_memory():
    """The whole memory of a process is searched for the secret's row, before and after the next round begins."""
    done = run_python("-c", SCAN)
    assert done.returncode == 0, done.stderr
    before, after = (int(text) for text in done.stdout.split())
    assert before > 0
    assert after == 0


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_keys_are_not_copied(keys, attempt):
    with pytest.raises(TypeError, match="secret"):
        attempt(keys)


def test_what_is_public_can_be_pickled(keys):
    again: RoundKeyCheck = pickle.loads(pickle.dumps(keys.check))
    assert again == keys.check
    assert len(again.verifying_key) == 32
    RoundKeyReader(again).begin_round(1, first_of(keys, 1))


def test_bad_settings_are_refused_before_a_round():
    with pytest.raises(ParameterError, match="min_clients"):
        RoundKeys({"update": PARAMETERS}, 5)
