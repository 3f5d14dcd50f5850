"""A run of DictPFL that tests drive by hand, and what they read from it."""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from methods.method_conformance import SteppedRun, contraction
from methods.variants import PARAMETERS, Variant
from shieldfl.authority.message import Message
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.method import DictPflSettings, read_history
from shieldfl.methods.registry import MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings

SECRET = bytes(range(32))
"""What :class:`SteppedRun` gives the roles."""


def run_of(train=contraction, **changes) -> SteppedRun:
    settings = DictPflSettings(**{"patience_rounds": 1, **changes})
    return SteppedRun(
        Variant("dict-pfl", SelectiveShieldSettings(), "dict-pfl", MethodSettings(dict_pfl=settings)),
        train=train,
    )


def held_by(client, model: Message | None = None) -> np.ndarray:
    """What a client holds of all positions: now, or once it knows the history that comes with a model."""
    held = deepcopy(client._held)
    if model is not None:
        held.settle(read_history(model, PARAMETERS, SECRET, client._settings))
    return held.values_at(Mask.full(PARAMETERS)).astype(np.float64)


def active_of(run: SteppedRun, client: int = 0) -> np.ndarray:
    return run.clients[client].disclosure.encrypted.to_bool()


def ask_count(run: SteppedRun, round_number: int) -> Message:
    return run.authority.answer("count", Message({"round": Message.from_number(round_number)}))
