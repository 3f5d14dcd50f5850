"""Layouts under every scheme, with masks, weights and scaled values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shieldfl as sf
from encryption.paillier_keys import authority_for
from shieldfl.models import ModelLayout

STEP = 2.0**-20
SCHEMES = ("kahe", "pads", "ckks", "paillier")


def summed(scheme, layout, models, mask=None, **options):
    """Return the sums of models that clients have encrypted under a scheme, and their weights' sum if there are any."""
    module = getattr(sf, scheme)
    if scheme in ("kahe", "pads"):
        authority = sf.KeyAuthority(module.Parameters(max_clients=4), min_clients=2)
        keys = [authority.enrol(f"client-{number}") for number in range(len(models))]
        encryptors = [module.Encryptor(key) for key in keys]
    else:
        authority = (
            sf.KeyAuthority(sf.ckks.Parameters(max_clients=4), min_clients=2)
            if scheme == "ckks"
            else authority_for(sf.paillier.Parameters(key_bits=2048, max_clients=4))
        )
        encryptors = [module.Encryptor(authority.public_key)] * len(models)
    aggregator = module.Aggregator(authority.public_key, round=3)
    for encryptor, model in zip(encryptors, models, strict=True):
        frame = layout.encrypt(encryptor, model, mask, round=3, **options)
        assert frame.round == 3
        assert frame.is_of(mask or sf.Mask.full(layout.size))
        assert frame.weighted == ("weight" in options)
        aggregator.add(frame.to_bytes())
    total = aggregator.total()
    return authority.open_mean(total) if "weight" in options else authority.open(total)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_models_are_summed_under_every_scheme(scheme, masked):
    torch.manual_seed(1)
    models = [{"w": torch.randn(3, 5), "b": torch.randn(5, dtype=torch.float64)} for _ in range(3)]
    layout = ModelLayout.of(models[0], ranges={"b": 100.0})
    mask = layout.mask("b") | sf.Mask.from_indices([2, 7], layout.size) if masked else None
    arrays = layout.replaced(models[0], summed(scheme, layout, models, mask), mask)
    w = sum(one["w"] for one in models)
    if masked:
        chosen = torch.zeros(15, dtype=torch.bool)
        chosen[[2, 7]] = True
        w = torch.where(chosen.reshape(3, 5), w, models[0]["w"])
    torch.testing.assert_close(arrays["w"], w, atol=3 * STEP, rtol=1e-6)
    torch.testing.assert_close(arrays["b"], sum(one["b"] for one in models), atol=3 * 16 * STEP, rtol=0)


def test_tensors_that_serve_as_they_are_are_not_copied():
    seen = []

    class Recorder:
        def encrypt(self, pieces, mask, **options):
            seen.extend(pieces)

    state = {
        "w": torch.randn(3, 5),
        "t": torch.randn(4, 3).T,
        "h": torch.randn(6).half(),
        "e": torch.zeros(0),
    }
    layout = ModelLayout.of(state)
    layout.encrypt(Recorder(), state)
    assert [piece.size for piece in seen] == [15, 12, 6, 0]
    memory = [piece.__array_interface__["data"][0] for piece in seen]
    assert memory[0] == state["w"].data_ptr()
    assert memory[1] != state["t"].data_ptr()
    np.testing.assert_array_equal(np.concatenate(seen), layout.flatten(state))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_options_of_encryptors_are_handed_on(scheme):
    before = {"w": torch.full((4,), 100.0)}
    models = [{"w": torch.full((4,), 101.0)}, {"w": torch.full((4,), 150.0)}]
    layout = ModelLayout.of(before)
    with pytest.raises(sf.RangeError, match=r"the tensor 'w'"):
        summed(scheme, layout, models, None, since=before)
    mean = summed(scheme, layout, models, None, since=before, weight=0.5, clip=True)
    # The second one's update, 50, is clipped to 8 times 2 for its weight.
    assert layout.moved(before, mean)["w"].tolist() == pytest.approx([108.5] * 4, abs=1e-4)


@pytest.mark.parametrize("largest", [8.0 - STEP, 8.0, np.nextafter(64.0, 0.0), 64.0, 65_536.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_up_to_the_range_that_is_named_are_encrypted(largest, dtype):
    largest = float(dtype(largest))
    model = {"w": np.array([largest, -largest], dtype)}
    layout = ModelLayout.of(model, ranges={"w": largest})
    encryptor = sf.ckks.Encryptor(sf.KeyAuthority(sf.ckks.Parameters()).public_key)
    assert layout.encrypt(encryptor, model).clipped == 0
    # And no more is scaled than has to be.
    (place,) = layout.places
    if place.exponent:
        doubled = {"w": model["w"] * 2}
        with pytest.raises(sf.RangeError, match="'w'"):
            layout.encrypt(encryptor, doubled)


def test_the_limit_is_that_of_the_parameters():
    params = sf.ckks.Parameters(value_bits=30, fraction_bits=20)
    model = {"w": np.array([params.value_limit]), "x": np.array([2 * params.value_limit])}
    layout = ModelLayout.of(
        model, ranges={name: float(one[0]) for name, one in model.items()}, limit=params.value_limit
    )
    assert [place.exponent for place in layout.places] == [0, 1]
    layout.encrypt(sf.ckks.Encryptor(sf.KeyAuthority(params).public_key), model)
    default = sf.ckks.Parameters().value_limit
    assert ModelLayout.of(model, ranges={"w": default}).places[0].exponent == 0
    assert ModelLayout.of(model, ranges={"w": np.nextafter(default, 9)}).places[0].exponent == 1
