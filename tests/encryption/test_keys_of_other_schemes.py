"""Keys of one scheme are refused by the classes of another: its name promises who can open what."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.errors import ParameterError

SCHEMES = {name: getattr(sf, name) for name in ("kahe", "pads", "ckks")}


@pytest.fixture(scope="module")
def keys():
    authorities = {
        name: sf.KeyAuthority(scheme.Parameters(max_clients=4)) for name, scheme in SCHEMES.items()
    }
    own = {name: authorities[name].enrol("clinic") for name in ("kahe", "pads")}
    return {name: one.public_key for name, one in authorities.items()}, own


@pytest.mark.parametrize(("name", "other"), list(itertools.permutations(SCHEMES, 2)))
def test_a_key_of_another_scheme_is_refused(name, other, keys):
    public, own = keys
    with pytest.raises(ParameterError, match="expected a PublicKey"):
        SCHEMES[name].Encryptor(own.get(other, public[other]))
    with pytest.raises(ParameterError, match="expected a PublicKey"):
        SCHEMES[name].Aggregator(public[other])


def test_what_frames_do_not_carry_is_refused(keys):
    public, _ = keys
    for made in (sf.ckks.Encryptor, sf.ckks.Aggregator):
        with pytest.raises(ParameterError, match="only where clients enrol"):
            made(public["ckks"], purpose="scores")
    frame = sf.ckks.Encryptor(public["ckks"]).encrypt(np.ones(2, np.float32))
    with pytest.raises(ParameterError, match="do not say whose they are"):
        sf.ckks.Aggregator(public["ckks"]).add(frame, client=5)
