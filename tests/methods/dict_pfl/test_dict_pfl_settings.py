"""What DictPFL is set up with: settings and the secret."""

from __future__ import annotations

import math

import numpy as np
import pytest

from methods.dict_pfl.dict_pfl_run import run_of
from methods.method_conformance import initial_model
from methods.small_plan import small_plan
from shieldfl.errors import ParameterError
from shieldfl.methods.dict_pfl.settings import DictPflSettings, FactorisationSettings
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": 2.5}, "rank"),
        ({"train_fully": (3.0,)}, "train_fully"),
        ({"train_fully": "fc"}, "train_fully"),
        ({"train_fully": 5}, "train_fully"),
        ({"train_fully": None}, "train_fully"),
        ({"small_percent": 100.0}, "small_percent"),
        ({"small_percent": -1.0}, "small_percent"),
        ({"small_percent": math.nan}, "small_percent"),
        ({"small_percent": "70"}, "small_percent"),
        ({"small_percent": None}, "small_percent"),
        ({"small_percent": True}, "small_percent"),
        ({"patience_rounds": 0}, "patience_rounds"),
        ({"decay": 0.0}, "decay"),
        ({"decay": "x"}, "decay"),
        ({"first_probability": 1.5}, "first_probability"),
        ({"first_probability": [1]}, "first_probability"),
        ({"ranked": "some"}, "ranked"),
        ({"value_bits": -1}, "value_bits"),
        ({"fraction_bits": 1.5}, "fraction_bits"),
    ],
    ids=str,
)
def test_bad_settings(bad, named):
    with pytest.raises(ParameterError, match=named):
        DictPflSettings(**bad)


def test_a_rank_comes_back_as_an_int():
    assert type(FactorisationSettings(np.uint8(4)).rank) is int


@pytest.mark.parametrize("bad", [{"value_bits": 41}, {"value_bits": 1}, {"fraction_bits": 53}], ids=str)
def test_a_fixed_point_that_no_ciphertext_holds_is_refused_when_the_method_is_made(bad):
    with pytest.raises(ParameterError, match="_bits"):
        run_of(**bad)


def test_the_secret_is_never_reported():
    run = run_of()
    settings = run.settings()
    assert "secret" not in repr(settings)
    assert run.shared_secret.hex() not in run.setup.to_bytes().decode()
    assert settings["rank"] == 4


@pytest.mark.parametrize("secret", [None, b"", b"too short", "x" * 32, bytearray(32)])
def test_a_secret_that_is_none_is_refused_at_set_up(secret):
    method = make_method("dict-pfl", MethodSettings(), small_plan())
    with pytest.raises(ParameterError, match=r"at least 16 random bytes|share a secret"):
        method.authority_setup(initial_model(), shared_secret=secret)
