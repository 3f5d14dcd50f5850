"""What protects by masks, and what does not protect: Flower's secure aggregation and a copy."""

from __future__ import annotations

import inspect
import io
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from shieldfl.lab.bench import Effort, UpdateCase, compare, grid
from shieldfl.lab.bench import others as flower
from shieldfl.lab.bench.measurement import measure
from shieldfl.lab.bench.others import PlainCopy
from shieldfl.lab.bench.scheme import WrongSumError, select

ONCE = Effort(0.0, 1, 1, baseline_values=4096, mask_positions=2000)
MODULUS, RANGE, CLIPPING = 2**32, 2**22, 8.0


class StandIn:
    """Flower's functions by their contract, and which masks were asked for."""

    def __init__(self) -> None:
        self.seeds: list[bytes] = []

        def each(function):
            return lambda left, right: [function(*pair) for pair in zip(left, right, strict=True)]

        def with_one(function):
            return lambda arrays, one: [function(array, one) for array in arrays]

        def workflow(
            num_shares, *, clipping_range=CLIPPING, quantization_range=RANGE, modulus_range=MODULUS
        ): ...

        self.modules = {
            "workflow": SimpleNamespace(SecAggPlusWorkflow=workflow),
            "common": SimpleNamespace(ndarray_to_bytes=self.write, bytes_to_ndarray=self.read),
            "ndarrays_arithmetic": SimpleNamespace(
                factor_combine=lambda factor, arrays: [np.array([factor]), *arrays],
                factor_extract=lambda arrays: (arrays[0][0], arrays[1:]),
                parameters_addition=each(np.add),
                parameters_subtraction=each(np.subtract),
                parameters_mod=with_one(lambda array, modulus: array & (modulus - 1)),
                parameters_multiply=with_one(np.multiply),
            ),
            "quantization": SimpleNamespace(quantize=self.quantize, dequantize=self.dequantize),
            "secaggplus_utils": SimpleNamespace(pseudo_rand_gen=self.mask),
        }

    @staticmethod
    def write(array) -> bytes:
        out = io.BytesIO()
        np.save(out, array, allow_pickle=False)
        return out.getvalue()

    @staticmethod
    def read(data):
        return np.load(io.BytesIO(data), allow_pickle=False)

    @staticmethod
    def quantize(arrays, clipping, steps):
        return [
            np.rint((np.clip(one, -clipping, clipping) + clipping) * steps / (2 * clipping)).astype(np.int32)
            for one in arrays
        ]

    @staticmethod
    def dequantize(arrays, clipping, steps):
        return [one.astype(float) * (2 * clipping) / steps - clipping for one in arrays]

    def mask(self, seed, modulus, shapes):
        self.seeds.append(seed)
        rng = np.random.default_rng(list(seed))
        return [rng.integers(0, modulus, shape, dtype=np.int64) for shape in shapes]


@pytest.fixture(params=["stand-in", "flwr"])
def baselines(request, monkeypatch):
    if request.param == "flwr":
        pytest.importorskip("flwr")
        return flower.flower_baselines(4096)
    monkeypatch.setattr(flower.metadata, "version", lambda package: "0")
    return [flower.FlowerBaseline(StandIn().modules, neighbours, 4096) for neighbours in (2, 63)]


def test_flower_opens_what_went_in_and_only_a_client_s_stages_are_timed(baselines):
    for figure, neighbours in zip(measure(baselines, select(6000, 1.0), ONCE), (2, 63), strict=True):
        assert not figure.own
        assert figure.values == 4096
        assert f"{neighbours} neighbours" in figure.scheme
        assert set(figure.stage_ns) == {"encrypt", "serialise", "encrypt and serialise", "add"}
        assert 8.0 < figure.bytes_per_value < 8.2


def test_flower_s_check_sees_a_value_that_is_off(baselines):
    selection = select(100, 1.0)
    for baseline in baselines:
        total = baseline.start_sum(baseline.serialise(baseline.encrypt(selection)))
        opened = baseline.open(total)
        baseline.check(opened, selection.values, times=1)
        opened[3] += 2.0**-16
        with pytest.raises(WrongSumError, match="off by"):
            baseline.check(opened, selection.values, times=1)


def test_flower_s_setting_says_what_it_was_measured_with(baselines):
    for baseline, neighbours in zip(baselines, (2, 63), strict=True):
        for part in (
            "among 64 clients",
            f"{neighbours + 1} shares, so {neighbours} neighbours",
            "clipping range 8,",
            "quantisation range 4,194,304",
            "modulus 4,294,967,296",
            "without key agreement",
        ):
            assert part in baseline.setting


def test_a_client_masks_by_itself_and_by_every_neighbour(monkeypatch):
    monkeypatch.setattr(flower.metadata, "version", lambda package: "0")
    stand_in = StandIn()
    flower.FlowerBaseline(stand_in.modules, 63, 4096).encrypt(select(10, 1.0))
    assert len(stand_in.seeds) == len(set(stand_in.seeds)) == 64


def test_a_masked_update_is_below_the_modulus_and_is_not_the_update(baselines):
    selection = select(2000, 1.0)
    for baseline in baselines:
        _, masked = baseline.encrypt(selection)
        assert masked.min() >= 0
        assert masked.max() < MODULUS
        assert np.abs(np.corrcoef(masked, selection.values)[0, 1]) < 0.2


def test_the_defaults_are_flower_s_own():
    workflow = pytest.importorskip("flwr.server.workflow").SecAggPlusWorkflow
    parameters = inspect.signature(workflow).parameters
    assert parameters["num_shares"].default is inspect.Parameter.empty
    assert (
        f"quantisation range {parameters['quantization_range'].default:,}"
        in flower.flower_baselines(1)[0].setting
    )


def test_says_how_to_install_flower_where_it_is_missing(monkeypatch):
    for name in flower.FLOWER.packages:  # those that were imported before are found without their package
        monkeypatch.setitem(sys.modules, name, None)
    comparison = compare(grid(UpdateCase, [100], [1.0], [1]), effort=ONCE)
    (line,) = [line for line in comparison.missing if "Flower" in line]
    assert re.search(r"pip install .*\bflwr\b", line)
    names = [figure.scheme for figure in comparison.cases[0].figures]
    assert not any(name.startswith("Flower") for name in names)
    assert names[-1] == "plain copy"


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_copy_is_four_bytes_a_value_and_exact(share):
    selection = select(3000, share)
    (figure,) = measure([PlainCopy()], selection, ONCE)
    assert figure.bytes_per_value == 4.0
    assert figure.values == selection.values.size
    assert "close" not in figure.stage_ns
    copy = PlainCopy()
    total = copy.start_sum(copy.serialise(copy.encrypt(selection)))
    opened = copy.open(total)
    opened[0] = np.nextafter(opened[0], np.inf)
    with pytest.raises(WrongSumError):
        copy.check(opened, selection.values, times=1)


def test_a_copy_takes_what_it_is_given_each_time():
    copy = PlainCopy()
    for size in (10, 20, 10):
        selection = select(size, 1.0)
        selection.values[:] = size
        assert copy.encrypt(selection).tolist() == [size] * size
