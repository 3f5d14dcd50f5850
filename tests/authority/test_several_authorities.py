"""A session of several key authorities: each has to answer, for one list, and one that is honest protects clients."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from authority.enrolled_session import OF_SCHEMES, updates
from encryption.enrolled_clients import total_of
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.key_authority import SumKeyAuthority, session_key
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import AuthorityGroup
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError

NAMES = ("clinic-1", "clinic-2", "clinic-3", "clinic-4")


class Joint:
    """Authorities on machines of their own, the first with a store or none, and clients that enrolled with each."""

    def __init__(self, scheme, count, store=None):
        self.scheme, self.parameters = getattr(sf, scheme), OF_SCHEMES[scheme]
        self.owners = [AuthoritySecrets() for _ in range(count)]
        self.group = AuthorityGroup(tuple(owner.identity for owner in self.owners))
        self.public_key = session_key(self.parameters, self.group, 3)
        stores = [store, *[None] * (count - 1)]
        self.authorities = [
            SumKeyAuthority(self.parameters, owner=owner, public_key=self.public_key, store=own)
            for owner, own in zip(self.owners, stores, strict=True)
        ]
        self.keys = [self.enrolled(name) for name in NAMES]
        self.round = 0

    def enrolled(self, name):
        # What travels: the bytes of the public key, and those of who the authorities are.
        pinned = type(self.public_key).from_bytes(self.public_key.to_bytes(), self.group.to_bytes())
        key, requests = self.scheme.ClientKey.requests(pinned, name)
        for authority, request in zip(self.authorities, requests, strict=True):
            assert authority.accept(request) == name
            key.take_grant(authority.grant(name))
        return key

    def frame(self, index, round=1):
        return self.scheme.Encryptor(self.keys[index], 1).encrypt(updates()[index], round=round).to_bytes()

    def total(self, frames):
        return total_of(self.public_key, frames, threads=1)

    def answers(self, total):
        return [authority.sum_key(total.request()) for authority in self.authorities]


@pytest.fixture(scope="module", params=[("kahe", 2), ("kahe", 3), ("pads", 2), ("pads", 3)], ids=str)
def joint(request):
    return Joint(*request.param)


def fresh_round(joint):
    joint.round += 1
    return joint.round, [joint.frame(index, joint.round) for index in range(len(NAMES))]


def test_all_their_answers_open_a_total_and_fewer_do_not(joint):
    _, frames = fresh_round(joint)
    total = joint.total(frames)
    answers = joint.answers(total)
    expected = updates().astype(np.float64).sum(axis=0)
    for key in joint.keys:
        np.testing.assert_array_equal(joint.scheme.open(total, answers, key), expected)
    for fewer in (answers[:-1], answers[0], [*answers, answers[0]]):
        with pytest.raises(ParameterError, match="each of which has to answer"):
            joint.scheme.open(total, fewer, joint.keys[0])
    # One's answer is not another's.
    with pytest.raises(KeyMismatchError, match="not signed"):
        joint.scheme.open(
            total, answers[::-1] if len(answers) == 2 else answers[1:] + answers[:1], joint.keys[0]
        )


def test_each_keeps_its_own_list_and_two_lists_open_nothing(joint):
    """An aggregator asks one for all and another for all but one: no difference of two sums comes of it."""
    _, frames = fresh_round(joint)
    everybody, fewer = joint.total(frames), joint.total(frames[1:])
    first, *others = joint.authorities
    split = [first.sum_key(everybody.request()), *(one.sum_key(fewer.request()) for one in others)]
    for total in (everybody, fewer):
        with pytest.raises(KeyMismatchError):
            joint.scheme.open(total, split, joint.keys[1])
    # Nor can it ask on: each has answered for these clients.
    with pytest.raises(PolicyError):
        first.sum_key(fewer.request())
    for one in others:
        with pytest.raises(PolicyError):
            one.sum_key(everybody.request())


def test_one_of_them_opens_nothing_and_enrols_nobody_by_itself(joint):
    _, frames = fresh_round(joint)
    authority, total = joint.authorities[0], joint.total(frames)
    with pytest.raises(PolicyError, match="several authorities"):
        authority.open(total)
    with pytest.raises(ParameterError, match="requests"):
        authority.enrol("clinic-9")
    with pytest.raises(ParameterError, match="requests"):
        joint.scheme.ClientKey.request(joint.public_key, "clinic-9")


def test_one_authority_s_part_of_a_key_encrypts_nothing(joint):
    part = joint.scheme.ClientKey.of_secret(joint.public_key, "clinic-9", bytes(32))
    with pytest.raises(ParameterError, match="authorities"):
        joint.scheme.Encryptor(part)


def test_a_key_is_exported_and_taken_again(joint):
    number, _ = fresh_round(joint)
    key = joint.keys[0]
    secret = key.export_secret()
    assert len(secret) == 32 * len(joint.authorities)
    again = joint.scheme.ClientKey(joint.public_key, key.client, secret, key.round)
    later = joint.scheme.Encryptor(again, 1).encrypt(updates()[0], round=number + 1).to_bytes()
    rest = [joint.frame(index, number + 1) for index in range(1, len(NAMES))]
    total = joint.total([later, *rest])
    opened = joint.scheme.open(total, joint.answers(total), joint.keys[1])
    np.testing.assert_array_equal(opened, updates().astype(np.float64).sum(axis=0))
    joint.round = number + 1


def test_a_request_that_was_sealed_to_one_is_refused_by_another(joint):
    _, requests = joint.scheme.ClientKey.requests(joint.public_key, "clinic-8")
    with pytest.raises(KeyMismatchError):
        joint.authorities[1].accept(requests[0])


@pytest.mark.every_run("kahe")
@pytest.mark.parametrize("scheme", list(OF_SCHEMES))
def test_a_member_goes_on_from_its_store_and_a_restored_one_refuses_the_old_session(tmp_path, scheme):
    path = tmp_path / "store"
    joint = Joint(scheme, 2, path)
    owner, public_key = joint.owners[0], joint.public_key
    with joint.authorities[0] as authority:
        authority.save(tmp_path / "key", "a passphrase")
    with sf.KeyAuthority.load(tmp_path / "key", "a passphrase", store=path) as joint.authorities[0]:
        for name, key in zip(NAMES, joint.keys, strict=True):
            key.take_grant(joint.authorities[0].grant(name))
        total = joint.total([joint.frame(index) for index in range(len(NAMES))])
        opened = joint.scheme.open(total, joint.answers(total), joint.keys[0])
        np.testing.assert_array_equal(opened, updates().astype(np.float64).sum(axis=0))
    with pytest.raises(PolicyError, match="begin a new session together"):
        sf.KeyAuthority.load(tmp_path / "key", "a passphrase", store=path, restored=True)
    restored = AuthorityStore(path, owner.store_key, owner.store_id, restored=True)
    with pytest.raises(PolicyError):
        SumKeyAuthority(joint.parameters, owner=owner, public_key=public_key, store=restored)
    restored.close()
    again = AuthorityStore(path, owner.store_key, owner.store_id)
    renewed = session_key(joint.parameters, AuthorityGroup(joint.group.members, (again.position.epoch, 0)), 3)
    with SumKeyAuthority(joint.parameters, owner=owner, public_key=renewed, store=again) as authority:
        assert authority.public_key.epoch == again.position.epoch == 1


def test_groups_that_cannot_be_are_refused():
    one, two, *more = (AuthoritySecrets().identity for _ in range(4))
    for members in ((), (one,), (one, one), (one, two, *more)):
        with pytest.raises(ParameterError):
            AuthorityGroup(members)
    for epochs in ((1,), (1, 2, 3), (0, 2**32), (0, -1)):
        with pytest.raises(ParameterError):
            AuthorityGroup((one, two), epochs)
    group = AuthorityGroup((one, two), (3, 4))
    assert AuthorityGroup.from_bytes(group.to_bytes()) == group
    assert AuthorityGroup((two, one), (4, 3)).id != group.id != AuthorityGroup((one, two)).id
    for data in (b"", group.to_bytes()[:-1], one.verifying_key + one.enrolment_key + bytes(4)):
        with pytest.raises(WireFormatError):
            AuthorityGroup.from_bytes(data)
    public_key = session_key(kahe.Parameters(), group, 3)
    with pytest.raises(ParameterError, match="other key authorities"):
        SumKeyAuthority(kahe.Parameters(), owner=AuthoritySecrets(), public_key=public_key)
