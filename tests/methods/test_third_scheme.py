"""A scheme that is registered when the program runs: everything outside of its classes takes it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.encryption import ckks
from shieldfl.encryption.ckks import Ckks
from shieldfl.encryption.registry import REGISTRY, encryptions, scheme_of
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.methods.registry import MethodSettings
from shieldfl.testing import MethodCase, SteppedRun


class ToyParameters(ckks.Parameters):
    __slots__ = ()


class ToyPublicKey(ckks.PublicKey):
    __slots__ = ()
    _scheme = "toy"
    _parameters_class = ToyParameters


class Toy(Ckks):
    encryptions = ("toy-coarse", "toy-fine")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    scheme = Toy(ToyPublicKey, ckks.Encryptor, ckks.Aggregator)
    with monkeypatch.context() as patch:
        patch.setitem(REGISTRY, scheme.name, scheme)
        # A class is made with the schemes that are registered by then: a line in the registry comes before.
        patch.setattr(MaskedAverage, "schemes", encryptions())
        yield scheme


def test_full_he_runs_under_it(toy: Toy) -> None:
    settings = MethodSettings().changed("full-he", {"encryption": "toy-fine"})
    run, plain = SteppedRun(MethodCase("full-he", settings)), SteppedRun(MethodCase("fedavg"))
    assert scheme_of(run.method.purposes["update"]) is toy
    for one in (run, plain):
        one.run_round()
        one.run_round()
    np.testing.assert_allclose(run.parameters, plain.parameters, rtol=0.0, atol=2.0**-18)


def test_the_key_authority_opens_its_totals_and_no_others(toy: Toy) -> None:
    authority = KeyAuthority(ToyParameters(max_clients=4), min_clients=1)
    key = authority.public_key
    assert type(key) is ToyPublicKey
    assert scheme_of(key) is toy
    aggregator = toy.Aggregator(key, 1)
    aggregator.add(toy.Encryptor(key, 1).encrypt(np.full(5, 0.5)))
    np.testing.assert_array_equal(authority.open(aggregator.total()), np.full(5, 0.5))
