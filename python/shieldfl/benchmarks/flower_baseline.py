"""Flower's secure aggregation, SecAgg and SecAgg+: what masks an update in the framework that most people would use."""

from __future__ import annotations

import base64
import importlib
import inspect
import secrets
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.scheme import Scheme, Selection
from shieldfl.installing import how_to_install

__all__ = ["HOW_TO_INSTALL", "PACKAGES", "FlowerBaseline", "flower_baselines"]

_UTILITIES = "flwr.common.secure_aggregation"
_MODULES = (
    "flwr.common",
    "flwr.server.workflow",
    *(f"{_UTILITIES}.{part}" for part in ("ndarrays_arithmetic", "quantization", "secaggplus_utils")),
)
PACKAGES = ("flwr", _UTILITIES, *_MODULES)
HOW_TO_INSTALL = f"Flower 1.41 or 1.42 is not installed: {how_to_install('flower')}"

_CLIENTS = 64
# The workflow has no default for the shares: its example's, which are the fewest that it takes, and one for each
# client, which is SecAgg. A client keeps a share of its own and has a neighbour for each other one.
_SHARES = (3, _CLIENTS)


def flower_baselines(most_values: int) -> list[FlowerBaseline]:
    """Return Flower with the fewest neighbours and with all clients. Raises ModuleNotFoundError where it is missing."""
    modules = {name.rpartition(".")[2]: importlib.import_module(name) for name in _MODULES}
    return [FlowerBaseline(modules, shares - 1, most_values) for shares in _SHARES]


@dataclass
class _MaskedSum:
    """The sum of some frames of one client."""

    arrays: list[NDArray[Any]]
    frames: int


class FlowerBaseline(Scheme):
    """The client's stage that has a cost for each value, from float32 values to bytes, by Flower's own functions.

    In it: the weight, clipping and quantising, the client's own mask, one mask for each neighbour, the modulus, and
    serialising. Not in it: keys and agreeing on them, Shamir's shares, and what the server does to take masks off.
    """

    untimed = frozenset(
        {"close", "open"}
    )  # the server makes a mask for each client, and more for each that is lost

    def __init__(self, modules: dict[str, Any], neighbours: int, most_values: int) -> None:
        workflow = inspect.signature(modules["workflow"].SecAggPlusWorkflow).parameters
        self._clipping, self._quantised, self._modulus = (
            workflow[name].default for name in ("clipping_range", "quantization_range", "modulus_range")
        )
        super().__init__(
            f"Flower SecAgg{'' if neighbours == _CLIENTS - 1 else '+'}, {neighbours} neighbours",
            f"flwr {metadata.version('flwr')}, the client's masking among {_CLIENTS} clients: {neighbours + 1} shares, "
            f"so {neighbours} neighbours, clipping range {self._clipping:g}, quantisation range {self._quantised:,}, "
            f"modulus {self._modulus:,}, one thread; without key agreement, Shamir's shares and unmasking",
            most_values,
            # Rounding is random: by up to a step.
            tolerance=2 * self._clipping / self._quantised,
        )
        self._common, self._arithmetic = modules["common"], modules["ndarrays_arithmetic"]
        self._quantize, self._dequantize = (
            modules["quantization"].quantize,
            modules["quantization"].dequantize,
        )
        self._mask_of = modules["secaggplus_utils"].pseudo_rand_gen
        self._own_seed = secrets.token_bytes(32)
        # As generate_shared_key returns them. The masks of half of the neighbours are added, the others subtracted.
        keys = [base64.urlsafe_b64encode(secrets.token_bytes(32)) for _ in range(neighbours)]
        self._added, self._subtracted = keys[::2], keys[1::2]

    def encrypt(self, selection: Selection) -> list[NDArray[Any]]:
        """Weigh, quantise and mask, as the client's mod does after training; the weight is the largest allowed."""
        arithmetic = self._arithmetic
        ratio = self._quantised
        parameters = arithmetic.parameters_multiply([self.sample(selection)], ratio / self._quantised)
        quantised = self._quantize(parameters, self._clipping, self._quantised)
        return self._masked(arithmetic.factor_combine(ratio, quantised))

    def _masked(self, arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
        arithmetic, shapes = self._arithmetic, [array.shape for array in arrays]
        for seed in (self._own_seed, *self._added):
            arrays = arithmetic.parameters_addition(arrays, self._mask_of(seed, self._modulus, shapes))
        for seed in self._subtracted:
            arrays = arithmetic.parameters_subtraction(arrays, self._mask_of(seed, self._modulus, shapes))
        masked: list[NDArray[Any]] = arithmetic.parameters_mod(arrays, self._modulus)
        return masked

    def serialise(self, encrypted: list[NDArray[Any]]) -> list[bytes]:
        """Serialise each array."""
        return [self._common.ndarray_to_bytes(array) for array in encrypted]

    def start_sum(self, frame: list[bytes]) -> _MaskedSum:
        """Read the first frame."""
        return _MaskedSum([self._common.bytes_to_ndarray(part) for part in frame], 1)

    def add(self, total: _MaskedSum, frame: list[bytes]) -> None:
        """Read a frame and add it, as the server does."""
        arrays = [self._common.bytes_to_ndarray(part) for part in frame]
        total.arrays = self._arithmetic.parameters_addition(total.arrays, arrays)
        total.frames += 1

    def open(self, closed: _MaskedSum) -> NDArray[np.float64]:
        """Take the client's masks off as often as it is in the sum, as if all neighbours were lost, and dequantise."""
        masks = self._masked([np.zeros_like(array) for array in closed.arrays])
        arithmetic = self._arithmetic
        unmasked = arithmetic.parameters_subtraction(
            closed.arrays, arithmetic.parameters_multiply(masks, closed.frames)
        )
        ratio, sums = arithmetic.factor_extract(arithmetic.parameters_mod(unmasked, self._modulus))
        frames = ratio / self._quantised
        (values,) = self._dequantize(sums, self._clipping, self._quantised)
        opened: NDArray[np.float64] = values - (frames - 1) * self._clipping
        return opened
