"""Whole numbers of the public interface: whatever ``operator.index`` takes is one, and nothing else is."""

from __future__ import annotations

import inspect
import re
from functools import cache

import numpy as np
import pytest

import shieldfl as sf
from encryption.enrolled_clients import total_of
from encryption.paillier_keys import authority_for
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import dirichlet_partition, grouped_partition
from shieldfl.lab.simulation.results import converged_at
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.rounds.plan import FederationPlan

SCHEMES = {"kahe": sf.kahe, "pads": sf.pads, "ckks": sf.ckks, "paillier": sf.paillier}
UPDATE = np.full(8, 0.5, np.float32)
MASK = sf.Mask.from_bool(np.arange(8) < 4)
LABELS = np.arange(30) % 3
# What results are made of. What runs take has tests of its own.
_NOT_ASKED = {"CiphertextBatch.__init__", "KeyAuthority.load", "KeyAuthority.of_contents"}
_OF_RUNS = {"ComparedRuns", "Task", "run"}


class Whole:
    """A whole number of another library, as far as ``operator.index`` sees it."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Made:
    """What calls of a scheme's interface need."""

    def __init__(self, name: str) -> None:
        self.scheme = SCHEMES[name]
        parameters = self.scheme.Parameters(max_clients=8)
        self.authority = (authority_for if name == "paillier" else sf.KeyAuthority)(parameters)
        self.key = self.authority.public_key
        self.enrols = hasattr(self.scheme, "ClientKey")
        self.clients = [self.authority.enrol(client) for client in range(3)] if self.enrols else []
        self.encryptor = self.scheme.Encryptor(self.clients[0] if self.enrols else self.key, 1)
        self.batch = self.encryptor.encrypt(UPDATE, round=1)
        others = [self.scheme.Encryptor(client).encrypt(UPDATE, round=1) for client in self.clients[1:]]
        self.total = total_of(self.key, [self.batch, *others])
        self.answer = self.authority.sum_key(self.total.request()) if self.enrols else b""

    def client_key(self, **changed):
        return self.scheme.ClientKey(**{"public_key": self.key, "client": 1, "secret": bytes(32)} | changed)


@pytest.fixture(scope="module")
def made():
    """Make what a scheme's calls need, once."""
    cached = cache(Made)
    yield cached
    cached.cache_clear()


_OF_SCHEME = {
    "Aggregator.__init__": lambda of, **number: of.scheme.Aggregator(of.key, **number),
    "Aggregator.add": lambda of, **number: of.scheme.Aggregator(of.key).add(of.batch, **number),
    "CiphertextBatch.from_bytes": lambda of, **number: type(of.batch).from_bytes(
        of.batch.to_bytes(), **number
    ),
    "CiphertextBatch.parse": lambda of, **number: type(of.batch)(of.batch.to_bytes()).parse(**number),
    "ClientKey.__init__": lambda of, **number: of.client_key(**number),
    "ClientKey.advance_to": lambda of, **number: of.client_key().advance_to(**number),
    "ClientKey.of_secret": lambda of, **number: of.scheme.ClientKey.of_secret(
        of.key, secret=bytes(32), **number
    ),
    "ClientKey.request": lambda of, **number: of.scheme.ClientKey.request(of.key, **number),
    "ClientKey.requests": lambda of, **number: of.scheme.ClientKey.requests(of.key, **number),
    "Encryptor.__init__": lambda of, **number: of.scheme.Encryptor((*of.clients, of.key)[0], **number),
    "Encryptor.ciphertexts_for": lambda of, **number: of.encryptor.ciphertexts_for(**number),
    "Encryptor.encrypt": lambda of, **number: of.encryptor.encrypt(UPDATE, **number),
    "Encryptor.encrypt_in_union": lambda of, **number: of.encryptor.encrypt_in_union(
        UPDATE, sf.paillier.UnionOrder.from_masks([MASK]), MASK, **number
    ),
    "Encryptor.precompute": lambda of, **number: of.encryptor.precompute(**number),
    "Parameters.__init__": lambda of, **number: of.scheme.Parameters(**{"max_clients": 8} | number),
    "Parameters.fit": lambda of, **number: of.scheme.Parameters.fit(
        UPDATE, **({"goal": "size"} if "count" in number else {}), **number
    ),
    "Parameters.plan": lambda of, **number: of.scheme.Parameters.plan(
        **{"max_clients": 8} | number
    ).describe(),
    "Parameters.ring_costs": lambda of, **number: of.scheme.Parameters(max_clients=8).ring_costs(**number),
    "PublicKey.of_session": lambda of, **number: type(of.key).of_session(
        of.key.parameters, bytes(32), of.key.identity, **number
    ),
    "Total.digest": lambda of, **number: type(of.total)(of.total.to_bytes()).digest(**number),
    "Total.from_bytes": lambda of, **number: type(of.total).from_bytes(of.total.to_bytes(), **number),
    "Total.parse": lambda of, **number: type(of.total)(of.total.to_bytes()).parse(**number),
    "UnionOrder.from_bytes": lambda of, **number: sf.paillier.UnionOrder.from_bytes(
        sf.paillier.UnionOrder.from_masks([MASK]).to_bytes(), **number
    ),
    "UnionOrder.from_masks": lambda of, **number: sf.paillier.UnionOrder.from_masks([MASK], **number),
    "open": lambda of, **number: of.scheme.open(of.total, of.answer, of.clients[0], **number),
}

COMPRESSION = sf.Compression(bits=4, clients=200)
_OF_NONE = {
    "Compression.__init__": lambda **number: sf.Compression(**{"bits": 4, "clients": 4} | number),
    "Compression.count": COMPRESSION.count,
    "Compression.lost_deviation": lambda **number: COMPRESSION.lost_deviation(
        **{"exponent": 0, "size": 8} | number
    ),
    "Compression.levels": lambda **number: COMPRESSION.levels(UPDATE, **{"client": 1, "round": 1} | number),
    "Compression.mean": lambda clients=1, **number: COMPRESSION.mean(
        np.zeros(72), [clients], **{"round": 1} | number
    ),
    "Compression.range_of": COMPRESSION.range_of,
    "Compression.sum_bits": COMPRESSION.sum_bits,
    "KeyAuthority.__init__": lambda **number: sf.KeyAuthority(sf.ckks.Parameters(max_clients=8), **number),
    "Mask.empty": sf.Mask.empty,
    "Mask.from_bytes": lambda **number: sf.Mask.from_bytes(MASK.to_bytes(), **number),
    "Mask.from_indices": lambda **number: sf.Mask.from_indices(np.array([0]), **number),
    "Mask.full": sf.Mask.full,
    "Mask.gather": lambda **number: MASK.gather(UPDATE, **number),
    "Mask.resized": MASK.resized,
    "Mask.scatter": lambda **number: MASK.scatter(UPDATE[:4], UPDATE.copy(), **number),
    "Mask.scatter_add": lambda **number: MASK.scatter_add(UPDATE[:4], UPDATE.copy(), **number),
    "Votes.__init__": sf.Votes,
    "Votes.add": lambda **number: sf.Votes(8).add(MASK, **number),
    "Votes.consensus": lambda **number: voted().consensus(0.5, **number),
    "Votes.counts": lambda **number: voted().counts(**number),
    "encrypted_mean": lambda **number: sf.encrypted_mean([UPDATE] * 3, **number),
    "negotiate": lambda **number: sf.negotiate([MASK], **number),
}
VALUES = {
    **{"max_clients": 8, "value_bits": 24, "fraction_bits": 20, "ring_degree": 4096, "sum_bits": 27},
    **{"key_bits": 3072, "max_weight": 10, "expected_size": 8, "size": 8, "most_positions": 8, "client": 100},
}


def voted():
    votes = sf.Votes(8)
    votes.add(MASK)
    return votes


def integer_arguments():
    """Every argument of the public interface whose type is a whole number."""
    for scheme, module in {"": sf, **SCHEMES}.items():
        for name in set(module.__all__) - _OF_RUNS:
            one = getattr(module, name)
            calls = {name: one} if inspect.isfunction(one) else {}
            if inspect.isclass(one) and not issubclass(one, Exception):
                public = [method for method in dir(one) if method == "__init__" or method[0] != "_"]
                calls = {f"{name}.{method}": getattr(one, method) for method in public}
            for call in (call for call in calls if callable(calls[call]) and call not in _NOT_ASKED):
                for parameter in inspect.signature(calls[call]).parameters.values():
                    # No number of a client is taken where nobody enrols.
                    refused = (scheme, call, parameter.name) == ("ckks", "Aggregator.add", "client")
                    if re.search(r"\bint\b", str(parameter.annotation)) and not refused:
                        yield scheme, call, parameter.name, "None" not in str(parameter.annotation)


@pytest.mark.parametrize(("scheme", "call", "argument", "needed"), sorted(integer_arguments()))
def test_every_integer_argument_takes_what_is_an_index_and_refuses_the_rest(
    made, scheme, call, argument, needed
):
    def give(value):
        return (
            _OF_SCHEME[call](made(scheme), **{argument: value})
            if scheme
            else _OF_NONE[call](**{argument: value})
        )

    value = VALUES.get(argument, 1)
    if (call, argument) == ("Aggregator.add", "client"):
        value = 0
    if argument == "part" and scheme not in ("kahe", "pads"):
        value = 0  # no other is taken where nobody enrols
    give(value)
    for whole in (np.int64(value), Whole(value)):
        give(whole)
    for other in (float(value), np.float64(value), object(), *[None] * needed):
        with pytest.raises(ParameterError):
            give(other)


def test_whole_numbers_of_rules_sessions_and_stores_are_stored_as_what_they_are(tmp_path):
    store, saved = tmp_path / "store", tmp_path / "key"
    with sf.KeyAuthority(
        sf.kahe.Parameters(max_clients=8), np.int64(3), store=store, most_values=np.uint16(100)
    ) as authority:
        authority.save(saved, "a passphrase")
        authority.close_round(np.int32(4))
    with sf.KeyAuthority.load(
        saved, "a passphrase", store=store, at_least=(np.int64(0), np.int64(1))
    ) as authority:
        assert (authority.min_clients, authority.newest_closed_round) == (3, 4)
    sf.KeyAuthority(sf.ckks.Parameters(max_clients=8), np.int64(3)).save(
        tmp_path / "ckks.key", "a passphrase"
    )


def test_whole_numbers_of_settings_and_of_what_is_computed():
    plan = FederationPlan(
        clients=Whole(5),
        rounds=np.int8(2),
        min_clients=np.int64(3),
        server_learning_rate=1.0,
        parameters=Whole(7),
    )
    assert (plan.clients, plan.rounds, plan.min_clients, plan.parameters) == (5, 2, 3, 7)
    assert type(RunConfig(rounds=np.int64(2)).rounds) is int
    for call in (
        lambda whole: converged_at([0.5] * 20, whole),
        lambda whole: noise_multiplier_for(1.0, 1e-5, whole),
        lambda whole: [list(part) for part in dirichlet_partition(LABELS, whole, 1.0, whole)],
        lambda whole: [list(part) for part in grouped_partition(LABELS, whole, whole, whole)],
    ):
        assert call(3) == call(np.int64(3)) == call(Whole(3))
        for other in (3.0, "3", None):
            with pytest.raises(ParameterError):
                call(other)


@pytest.mark.parametrize("seeds", [np.arange(2), range(2), (Whole(0), np.int64(1)), [0, 1]])
def test_seeds_are_whole_numbers_of_any_kind(seeds):
    compared = sf.run("digits", "fedavg", seeds=seeds, rounds=1, clients=3, local_epochs=1, model="linear")
    assert compared.seeds == (0, 1)
    assert (
        compared.state_dict("fedavg", seed=np.int64(1)).keys() == compared.state_dict("fedavg", seed=0).keys()
    )


@pytest.mark.parametrize("seeds", [1.5, [0, 1.5], "01", None, np.array([[0], [1]]), -1])
def test_what_is_no_seed_is_refused(seeds):
    with pytest.raises(ParameterError, match="seed"):
        sf.run("digits", "fedavg", seeds=seeds, rounds=1, clients=3)
