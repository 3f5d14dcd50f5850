"""The mean in one call: what it is, bit for bit, and that it comes of frames."""

from __future__ import annotations

import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
import shieldfl._core as _core
from shieldfl.errors import ArrayTypeError, ParameterError, PrecisionWarning, RangeError, ShieldError

SHAPE = (3, 4)
WEIGHTS = [10, 400, 900, 100]


def updates(count=4):
    rng = np.random.default_rng(5)
    return [rng.normal(0, 1, SHAPE).astype(np.float32) for _ in range(count)]


def rounded_mean(given, weights=None, fraction_bits=20, weight_bits=20):
    """The fixed-point mean by its definition."""
    shares = np.ones(len(given)) if weights is None else np.asarray(weights) / max(weights)
    shares = np.rint(shares * 2.0**weight_bits) / 2.0**weight_bits
    steps = sum(
        np.rint(one.astype(np.float64) * share * 2.0**fraction_bits)
        for one, share in zip(given, shares, strict=True)
    )
    return steps / 2.0**fraction_bits / sum(shares)


@pytest.mark.parametrize("weights", [None, WEIGHTS, np.array(WEIGHTS)], ids=["alike", "weights", "array"])
@pytest.mark.parametrize(("value_bits", "fraction_bits"), [(24, 20), (30, 26), (12, 8)])
def test_the_mean_is_that_of_rounded_values_bit_for_bit(weights, value_bits, fraction_bits):
    mean = sf.encrypted_mean(updates(), weights=weights, value_bits=value_bits, fraction_bits=fraction_bits)
    assert (mean.dtype, mean.shape) == (np.float64, SHAPE)
    np.testing.assert_array_equal(
        mean, rounded_mean(updates(), weights, fraction_bits, min(fraction_bits, value_bits - 2))
    )
    np.testing.assert_allclose(
        mean, np.average(updates(), axis=0, weights=weights), atol=2.0 ** (2 - fraction_bits)
    )


def test_each_update_travels_as_a_frame_and_nothing_else_is_added(monkeypatch):
    added, opened = [], []
    add, open_mean = (
        sf.kahe.Aggregator.add,
        sf.KeyAuthority(sf.kahe.Parameters(max_clients=3)).__class__.open_mean,
    )
    monkeypatch.setattr(
        sf.kahe.Aggregator, "add", lambda self, frame: (added.append(frame), add(self, frame))[1]
    )
    monkeypatch.setattr(
        "shieldfl.authority.total_opener.TotalOpener.open_mean",
        lambda self, total: (opened.append(total), open_mean(self, total))[1],
    )
    sf.encrypted_mean(iter(updates()))
    assert [_core.summarise_frame(frame).kind_name for frame in added] == ["kahe batch"] * 4
    assert len({bytes(frame) for frame in added}) == 4
    assert [total.clients for total in opened] == [4]
    # Of a ring that few values suit.
    assert max(map(len, added)) < 15_000


def test_the_structure_is_that_of_the_first_update():
    given = [
        OrderedDict(weight=one, norm={"mean": one[0].astype(np.float64), "count": np.array([number])})
        for number, one in enumerate(updates())
    ]
    given[1]["weight"] = given[1]["weight"].astype(np.float64)
    mean = sf.encrypted_mean(given, weights=WEIGHTS)
    assert [*mean, *mean["norm"]] == ["weight", "norm", "mean", "count"]
    np.testing.assert_array_equal(mean["weight"], rounded_mean(updates(), WEIGHTS))
    np.testing.assert_array_equal(mean["norm"]["mean"], rounded_mean([one[0] for one in updates()], WEIGHTS))
    mean["norm"]["count"][:] = 7
    assert given[0]["norm"]["count"] == 0


def test_state_dicts_of_torch_become_one_that_a_module_loads():
    modules = [nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)) for _ in range(3)]
    states = [module.state_dict() for module in modules]
    mean = sf.encrypted_mean(states)
    for name, value in mean.items():
        if name.endswith("num_batches_tracked"):
            continue
        assert value.dtype == torch.float64
        np.testing.assert_array_equal(value, rounded_mean([state[name].numpy() for state in states]))
    modules[0].load_state_dict(mean)
    halves = [torch.full((2,), value, dtype=torch.bfloat16, requires_grad=True) for value in (0.5, 1.0, 1.5)]
    assert sf.encrypted_mean(halves).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_what_a_mask_leaves_out_is_averaged_in_the_clear(weights):
    mask = sf.Mask.from_bool(np.arange(12) % 3 == 0)
    mean = sf.encrypted_mean(updates(), mask=mask, weights=weights).reshape(-1)
    chosen = mask.to_bool()
    np.testing.assert_array_equal(mean[chosen], rounded_mean(updates(), weights).reshape(-1)[chosen])
    exact = np.average(np.stack(updates(), dtype=np.float64), axis=0, weights=weights).reshape(-1)
    np.testing.assert_allclose(mean[~chosen], exact[~chosen], atol=1e-14 if weights is None else 2.0**-20)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda given: given[:2], ParameterError, "at least 3 updates, not 2"),
        (lambda _: None, ParameterError, "several in a list, not one NoneType"),
        (lambda given: {"a": given[0]}, ParameterError, "several in a list, not one dict"),
        (lambda given: [*given, given[0][0]], ParameterError, r"update 4: .*\(4,\)"),
        (
            lambda given: [{"a": given[0]}] * 2 + [{"b": given[0]}],
            ParameterError,
            "update 2: .*'b' is not in the layout",
        ),
        (
            lambda given: [*given, 1e4 * given[0]],
            RangeError,
            "update 4: .* raise value_bits or lower fraction_bits",
        ),
        (lambda given: [given[0] * np.nan, *given], RangeError, "update 0: .* NaN"),
        (lambda given: [one.astype(int) for one in given], ParameterError, "convert arrays"),
        (lambda given: [np.ma.masked_less(one, 0) for one in given], ArrayTypeError, "masked"),
    ],
)
def test_what_has_no_such_mean_is_refused(change, error, words):
    with pytest.raises(error, match=words):
        sf.encrypted_mean(change(updates()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": [1, 2, 3]}, "each of the 4 updates a finite weight"),
        ({"weights": [1, 2, 3, 0]}, "above 0"),
        ({"weights": ["1", 2, 3, 4]}, "a weight must be a number"),
        (
            {"weights": [1, 2, 3, 1e9]},
            "below 9.53674e-07 of the largest: .* raise fraction_bits and value_bits",
        ),
        ({"mask": sf.Mask.empty(12)}, "some of the 12 values"),
        ({"value_bits": 99}, "value_bits must be"),
    ],
)
def test_options_that_do_not_go_are_refused(options, words):
    with pytest.raises(ParameterError, match=words):
        sf.encrypted_mean(updates(), **options)


def test_small_values_are_not_lost_in_silence():
    with pytest.warns(PrecisionWarning, match="round to zero"):
        sf.encrypted_mean([1e-7 * one for one in updates()])


def test_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ShieldError, match="pip install"):
        sf.encrypted_mean(updates())
