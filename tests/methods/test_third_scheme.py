"""A scheme that is registered when the program runs: everything outside of its classes takes it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from methods.small_plan import small_plan
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.encryption import ckks
from shieldfl.encryption.ckks.scheme import Ckks
from shieldfl.encryption.registry import REGISTRY, encryptions, scheme_of
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.calibration import CalibrationSettings, calibrate
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.full_encryption import FullEncryption, FullEncryptionSettings
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.rounds.global_model import GlobalModel

SIZE = 300


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
    scheme = Toy(ToyPublicKey)
    with monkeypatch.context() as patch:
        patch.setitem(REGISTRY, scheme.name, scheme)
        # A class is made with the schemes that are registered by then: a line in the registry comes before.
        patch.setattr(MaskedAverage, "schemes", encryptions())
        yield scheme


def test_without_registration_it_is_unknown() -> None:
    with pytest.raises(ParameterError, match="encryption must be one of"):
        EncryptionSettings(encryption="toy-fine")


def test_full_he_runs_under_it(toy: Toy) -> None:
    plan = small_plan(clients=2, rounds=2, parameters=SIZE, buffers=0)
    method = FullEncryption("full-he", FullEncryptionSettings(encryption="toy-fine"), plan)
    assert scheme_of(method.update_parameters) is toy
    model = GlobalModel(np.zeros(SIZE, dtype=np.float32), np.empty(0, dtype=np.float32))
    authority, setup = method.authority_setup(model)
    assert authority is not None
    aggregator = method.aggregator_steps(setup, (1, 1))
    clients = [method.client_steps(setup, index, 1, model) for index in range(2)]
    generator = np.random.default_rng(3)
    keys = set()
    for number in (1, 2):
        message = authority.begin_round(number)
        keys.add(message["round key update"])
        aggregator.begin_round(number, message)
        aggregator.begin_phase("update", number, None)
        # Multiples of the step, so that nothing is lost.
        updates = generator.integers(-(2**19), 2**19, (2, SIZE)).astype(np.float32) * 2.0**-19
        for index, client in enumerate(clients):
            start = client.begin_round(number, 2, message)
            client.finish_training(start.trained(start.parameters + updates[index], model.buffers))
            aggregator.receive("update", index, client.step("update", None))
        before = GlobalModel.from_message(message, SIZE, 0).parameters
        message = authority.answer("update", aggregator.close("update"))
        after = GlobalModel.from_message(message, SIZE, 0).parameters
        np.testing.assert_allclose(after - before, updates.mean(axis=0), rtol=0.0, atol=2.0**-20)
    assert len(keys) == 2


def test_the_key_authority_opens_its_totals_and_no_others(toy: Toy) -> None:
    authority = KeyAuthority(ToyParameters(max_clients=4), min_clients=1)
    key = authority.public_key
    assert type(key) is ToyPublicKey
    assert scheme_of(key) is toy
    aggregator = toy.Aggregator(key, 1)
    aggregator.add(toy.Encryptor(key, 1).encrypt(np.full(5, 0.5)))
    np.testing.assert_array_equal(authority.open(aggregator.total()), np.full(5, 0.5))


def test_it_is_calibrated_like_the_others(toy: Toy) -> None:
    assert toy.calibrations == toy.encryptions
    settings = CalibrationSettings(schemes=("toy-fine", "ckks"), threads=(1,), values=3000, seconds=0.0)
    profile = calibrate(settings)
    assert profile.scheme_names == ("toy-fine", "ckks")
    assert not profile.schemes[0].adds_clear_values
