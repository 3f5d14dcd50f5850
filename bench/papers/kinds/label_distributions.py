"""How far clients' labels lie apart where groups of them have classes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.kinds import Measured, check_keys
from shieldfl.lab.simulation.data import grouped_partition, label_shares

__all__ = ["FIGURES", "check", "measure"]

FIGURES = ("mean_label_distance",)
_KEYS = ("clients", "classes", "samples_per_class", "classes_per_client")


def check(settings: Mapping[str, Any]) -> None:
    """Raise ParameterError for settings that give no partition."""
    check_keys(settings, _KEYS, "label-distributions")
    measure(settings | {"samples_per_class": settings["clients"]})


def measure(settings: Mapping[str, Any]) -> Measured:
    """Return the mean earth mover's distance of every two clients; labels alone decide it."""
    labels = np.repeat(np.arange(settings["classes"]), settings["samples_per_class"])
    parts = grouped_partition(labels, settings["clients"], settings["classes_per_client"], seed=0)
    return {"mean_label_distance": mean_label_distance(label_shares(parts, labels, settings["classes"]))}


def mean_label_distance(shares: npt.NDArray[np.float64]) -> float:
    """Return how far clients' labels lie apart: the mean earth mover's distance of every two of them.

    SenseCrypt, appendix D and figure 10, which does not define it: the Wasserstein distance of two
    distributions over the index of the class, in classes, gives its figures. ``shares`` is (clients,
    classes).
    """
    below = np.cumsum(shares, axis=1)
    first, second = np.triu_indices(len(shares), 1)
    return float(np.abs(below[first] - below[second]).sum(axis=1).mean())
