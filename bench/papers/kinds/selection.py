"""What SenseCrypt's selection chooses of one client's trained model, and what mutual information that leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from papers.kinds import Measured, check_keys
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation import DATASETS
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.local_trainer import train_locally
from shieldfl.learning.networks import build_model, default_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.masks import Mask, SelectionLimits, mutual_information, select, top_k
from shieldfl.models.torch_bridge import flatten
from shieldfl.settings import TrainingSettings

__all__ = ["FIGURES", "check", "measure"]

FIGURES = ("encrypted_share", "information_bits", "information_share", "feasible")
_KEYS = ("dataset", "model", "samples", "epochs", "bins", "limits", "order", "share")
_ORDERS = ("high", "low", "random")
_LIMITS = ("budget", "exposed_share", "exposure_decay")
"""Without which there are none."""


def check(settings: Mapping[str, Any]) -> None:
    """Raise ParameterError for an unknown data set or order, or limits that there are not."""
    check_keys(settings, _KEYS, "selection", ("dataset", "samples", "epochs", "bins"))
    if settings["dataset"] not in DATASETS:
        raise ParameterError(f"unknown data set {settings['dataset']!r}: choose one of {', '.join(DATASETS)}")
    if "limits" in settings:
        _limits(settings)
    elif settings.get("order") not in _ORDERS:
        raise ParameterError(f"give limits, or an order ({', '.join(_ORDERS)}) and a share")
    else:
        check_keys(settings, _KEYS, "selection in an order", ["share"])


def _limits(settings: Mapping[str, Any]) -> SelectionLimits:
    given = dict(settings["limits"])
    check_keys(given, SelectionLimits.__dataclass_fields__, "limits", _LIMITS)
    bits = given.pop("information_bits", math.inf)
    return SelectionLimits(information_bits=bits, bins=settings["bins"], **given)


@cache
def _scored(dataset_name: str, model_name: str | None, samples: int, epochs: int) -> tuple[Any, Any]:
    """Return scores (eq. 2) and weights of a client's model that was trained on so many samples."""
    dataset = load_dataset(dataset_name)
    model = build_model(model_name or default_model(dataset.name), dataset.feature_shape, dataset.classes, 0)
    some = np.random.default_rng(0).permutation(len(dataset.train_labels))[:samples]
    features, labels = dataset.train_features[some], dataset.train_labels[some]
    train_locally(model, features, labels, TrainingSettings(local_epochs=epochs), seed=0)
    return taylor_sensitivity(model, features, labels), flatten(model)


def measure(settings: Mapping[str, Any]) -> Measured:
    """Select by limits, or a share in an order of sensitivity.

    ``information_share`` is of what all weights tell, nothing encrypted; ``feasible`` is 1 where every limit is kept.
    """
    scores, weights = _scored(
        settings["dataset"], settings.get("model"), settings["samples"], settings["epochs"]
    )
    bins = settings["bins"]
    whole = mutual_information(weights, Mask.from_indices([], weights.size), bins)
    if "limits" in settings:
        chosen = select(scores, weights, _limits(settings))
        mask, feasible = chosen.mask, chosen.meets_security and chosen.meets_information
    else:
        count = round(settings["share"] * weights.size)
        order = settings["order"]
        ranks = np.random.default_rng(1).random(weights.size) if order == "random" else scores
        mask = top_k(ranks, count) if order != "low" else ~top_k(ranks, weights.size - count)
        feasible = True
    left = mutual_information(weights, mask, bins)
    return {
        "encrypted_share": mask.count / mask.size,
        "information_bits": left,
        "information_share": left / whole,
        "feasible": float(feasible),
    }
