"""Labels that an attack counts (iLRG) in what an aggregator got of a client, as bench/paper_attacks measures them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from paper_attacks import selective_shield, sense_crypt
from paper_attacks.label_tries import AS_IN_PAPERS, LabelTries, first_model, label_tries
from papers.kinds import Measured, check_keys
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.views.view import Trial
from shieldfl.lab.simulation.data import load_dataset

__all__ = ["FIGURES", "SOURCES", "check", "measure"]

FIGURES = (
    "encrypted_share",
    "personalised_share",
    "existence",
    "number",
    "number_floor",
    "number_strongest",
    "number_difference_high",
)
SOURCES = tuple(
    path
    for folder in ("paper_attacks", "attack_references")
    for path in sorted((Path(__file__).parents[2] / folder).glob("*.py"))
)
_KEYS = ("method", "dataset", "trials", "threshold", "consensus", "client")
_NEEDED = {
    "selective-shield": ("dataset", "trials", "threshold", "consensus"),
    "sense-crypt": ("trials", "client"),
}
"""By method."""


def check(settings: Mapping[str, Any]) -> None:
    """Raise ParameterError for another method than the two, or what it does not have."""
    check_keys(settings, _KEYS, "label-attack", ["method"])
    method = settings["method"]
    if method not in _NEEDED:
        raise ParameterError(f"unknown method {method!r}: choose one of {', '.join(_NEEDED)}")
    check_keys(settings, _KEYS, f"label-attack of {method}", _NEEDED[method])
    if method == "selective-shield":
        selective_shield.settings_for(settings["threshold"], settings["consensus"])
        if settings["dataset"] not in _federations():
            raise ParameterError(f"the attack is not made on {settings['dataset']!r}")
    elif not 1 <= settings["client"] <= len(sense_crypt.SPEEDS):
        raise ParameterError(f"there are clients 1 to {len(sense_crypt.SPEEDS)}")


def _federations() -> dict[str, Any]:
    return {config.dataset: config for config, _ in selective_shield.configurations(1)}


def measure(settings: Mapping[str, Any]) -> Measured:
    """Return the scores of the paper's reading, zeros for what is hidden, and of the strongest guess.

    ``number_floor`` is the higher one of what is right without looking, ``number_difference_high`` the upper end of the
    95 % interval of what encryption takes off, beside the same batch without it.
    """
    if settings["method"] == "sense-crypt":
        return _of_client(settings["trials"])[settings["client"]]
    config = _federations()[settings["dataset"]]
    dataset, tries, shares = load_dataset(config.dataset), LabelTries(), []
    for number in range(settings["trials"]):
        batches = selective_shield.batches_of(config.run_config(number), dataset)
        chosen = selective_shield.settings_for(settings["threshold"], settings["consensus"])
        trial = Trial("selective-shield", chosen, config, dataset, number, batches=batches)
        for one in trial.record.disclosures.values():
            shares.append((one.encrypted.count / one.encrypted.size, one.kept.count / one.kept.size))
        for victim in range(config.clients):
            tries.add(*label_tries(trial, victim, first_model(trial)))
    encrypted, personalised = np.mean(shares, axis=0).tolist()
    return _scores(tries) | {"encrypted_share": encrypted, "personalised_share": personalised}


def _scores(tries: LabelTries) -> Measured:
    zeros, strongest = tries.figures(AS_IN_PAPERS), tries.figures(tries.strongest)
    return {
        "existence": zeros["LeAcc"].mean,
        "number": zeros["LnAcc"].mean,
        "number_strongest": strongest["LnAcc"].mean,
        "number_floor": max(tries.figures(name)["LnAcc"].mean for name in tries.floors),
    }


@cache
def _of_client(trials: int) -> dict[int, Measured]:
    """Return figures of each client of SenseCrypt's figure 6: all are attacked in the same federations."""
    found = {}
    for row in sense_crypt.table(trials)["rows"]:
        if row["aggregator has the model"] and row["processors"] is not None:
            zeros = row["zeros"]
            found[row["client"]] = {
                "encrypted_share": row["encrypted"],
                "existence": zeros["LeAcc"].mean,
                "number": zeros["LnAcc"].mean,
                "number_strongest": row["strongest"]["LnAcc"].mean,
                "number_floor": max(one["LnAcc"].mean for one in row["floors"].values()),
                "number_difference_high": zeros["below its own unencrypted"].high,
            }
    return found
