"""What the tests of SenseCrypt share: variants, and a training whose sensitivities have groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.variants import Variant
from shieldfl.encryption.registry import encryptions
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.methods.registry import MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.methods.sense_crypt.method import SenseCryptSettings

# Half a step of 2^-20 for each value, at most, and as much again for the sum of plain numbers.
QUANTISATION = 2.0**-20


def variant(**settings) -> Variant:
    chosen = {"key_bits": 2048, "information_bits": 5.0, "clustering": "none", **settings}
    return Variant(
        "sense-crypt",
        SelectiveShieldSettings(),
        "sense-crypt",
        MethodSettings(sense_crypt=SenseCryptSettings(**chosen)),
    )


def grouped(round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
    """Train like ``contraction``, with sensitivities by which clients 0, 1, 4 and 2, 3, 5 are two groups."""
    update = contraction(round_number, client, start)
    group = 0 if client in (0, 1, 4) else 1
    pattern = np.random.default_rng(group).random(update.parameters.size, dtype=np.float32)
    own = np.random.default_rng(10 + client).random(update.parameters.size, dtype=np.float32)
    return replace(update, scores=pattern + np.float32(0.01) * own)


def mean_update(run: SteppedRun, clients: list[int], train=contraction, weights=None) -> np.ndarray:
    start = run.initial.starting_point()
    updates = [train(1, client, start).parameters - start.parameters for client in clients]
    return start.parameters + np.average(np.array(updates, dtype=np.float64), axis=0, weights=weights)


every_encryption = pytest.mark.parametrize("encryption", encryptions())
