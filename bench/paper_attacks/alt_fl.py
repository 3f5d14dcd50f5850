"""Alt-FL, figure 3 and table I: how much noise, or how large an encrypted share, each attack is defended against by."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paper_attacks.agreement import TOLERANCE, agreement
from paper_attacks.gradient_updates import Batch
from paper_attacks.success_matrix import Cell, Matrix, cross, full_grid, least
from paper_attacks.victims import Encrypted, Pool, Victim, random_where_hidden
from shieldfl.lab.audit.attack import ModelPlantingAttack, UpdateAttack, psnr
from shieldfl.lab.audit.attacks.planted_layers import CuriousAbandonHonesty, RobbingTheFed
from shieldfl.lab.audit.attacks.searches import Dlg, Inverting
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.learning.networks import build_model

__all__ = ["DIFFERENCES", "Arena", "Setup", "setups", "table"]

DIFFERENCES = (
    "The paper states no batch, model state, pool or number of iterations: ours are one image for DLG and Inverting, 8 "
    "for Robbing the Fed and Curious Abandon Honesty, untrained models, the 16,000 training images of the CIFAR-10 "
    "subset as the pool.",
    "A try is a success if one recovered image, drawn by lot, has as its nearest of the pool (by correlation, which is "
    "blind to brightness and contrast: the paper names no distance) one of the client's: its expectation is IIP. No "
    "recovered image is no success. This is less than recovery of the whole image: some of the pixels, or a blurred "
    "image of wrong contrast, may identify it. The median PSNR of identified ones stands beside. Chance is 1/16,000 "
    "for each of the client's images.",
    "Noise: each sample's gradient clipped to 4.7, and sigma x 4.7 on the sum. No clipping at sigma = 0.",
    "Encrypted: the largest of the mean magnitudes of three clients' gradients, 256 images each, on the model that is "
    "attacked, planted layers included; the mask does not follow the victim's batch. Whether the paper's mask covers "
    "planted layers it does not say.",
    "Our attacks know sigma and what is hidden: searches leave it out, planted rows take it from others "
    "that must be equal. In coarse, Inverting stands a second time with hidden values matched as random ones, which is "
    "what the paper's attacker sees (section III). Planted layers are ours, and drawn once.",
    "CIFAR-10 is a subset of 16,000 + 4,000 images.",
)
_CLIENTS, _OWN = 3, 256
"""Clients, and images of each, whose gradients decide what is encrypted."""
_MODELS = 5
"""Untrained models that victims take in turn."""


@dataclass(frozen=True)
class Setup:
    """One attack, and what the paper found of it."""

    attack: UpdateAttack
    batch: int
    full_trials: int
    coarse_trials: int
    coarse_cells: tuple[Cell, ...]
    settings: str
    paper_sigma: float
    """The least noise multiplier without encryption (table I)."""
    paper_eta: float
    """The least encrypted share without noise."""
    matches_hidden: bool = False
    """Whether hidden positions are matched as if they were random values, rather than left out."""


def setups(*, full: bool) -> tuple[Setup, ...]:
    """Return the attacks; in a coarse matrix with fewer iterations and rows."""
    rows = 1000 if full else 200
    inverting = Inverting(iterations=1000 if full else 300, smoothness=0.01)
    dlg = Dlg() if full else Dlg(iterations=15, starts=1)
    few = cross((0.0, 0.001, 0.005, 0.05, 0.1), (0.0, 0.05, 0.2, 0.4, 0.7))
    left_out = (
        Setup(RobbingTheFed(), 8, 1000, 600, cross(), "100 bins", 0.005, 0.7),
        Setup(CuriousAbandonHonesty(rows), 8, 1000, 600, cross(), f"{rows} rows", 0.005, 1.0),
        Setup(inverting, 1, 200, 20, few, f"{inverting.iterations} iterations", 0.05, 0.05),
        Setup(dlg, 1, 200, 20, few, f"{dlg.iterations} iterations, {dlg.starts} starts at most", 0.1, 0.2),
    )
    if full:
        return left_out
    told = f"{inverting.iterations} iterations, hidden values matched as random ones"
    one_share = cross((0.0,), (0.0, 0.05))
    return (*left_out, Setup(inverting, 1, 200, 8, one_share, told, 0.05, 0.05, matches_hidden=True))


class Arena:
    """One attack on clients that are drawn anew in each try."""

    def __init__(self, setup: Setup, dataset: Dataset) -> None:
        assert dataset.feature_range is not None
        self._setup, self._dataset = setup, dataset
        self._low, self._width = dataset.feature_range[0], dataset.feature_range[1] - dataset.feature_range[0]
        self._unit = (dataset.train_features - self._low) / self._width
        self._pool = Pool(self._unit)
        planting = setup.attack if isinstance(setup.attack, ModelPlantingAttack) else None
        # Planted layers want samples in [0, 1]; searches start from Gaussian noise, as normalised samples are.
        self._is_unit = planting is not None
        self._samples = self._unit if self._is_unit else dataset.train_features
        self._range = (
            (0.0, 1.0) if self._is_unit else (float(self._low.min()), float((self._low + self._width).max()))
        )
        shape = dataset.feature_shape
        if planting is not None:
            public = (dataset.test_features - self._low) / self._width
            self._models = [planting.planted(build_model("lenet5", shape, 10, 0), shape, public, seed=0)]
        else:
            self._models = [build_model("lenet5", shape, 10, seed) for seed in range(_MODELS)]
        drawn = np.random.default_rng(0).choice(len(self._samples), (_CLIENTS, _OWN), replace=False)
        self._encrypted = [Encrypted(model, [self._batch(own) for own in drawn]) for model in self._models]

    def _batch(self, chosen: np.ndarray) -> Batch:
        return Batch(self._samples[chosen], self._dataset.train_labels[chosen])

    def victim(self, number: int) -> tuple[Victim, np.ndarray]:
        """Return the client of a try, and which images of the pool are its own."""
        own = np.random.default_rng([number, 1]).choice(len(self._samples), self._setup.batch, replace=False)
        model = number % len(self._models)
        batch = self._batch(own)
        return Victim(self._models[model], batch, self._encrypted[model], number, self._range), own

    def attempts(self, number: int, cells: Sequence[Cell]) -> Iterator[tuple[bool, float]]:
        """Attack one client in each cell: whether one of the images is identified, and its PSNR to its nearest."""
        victim, own = self.victim(number)
        for cell in cells:
            observed = victim.observed(cell.sigma, cell.eta)
            assert observed is not None
            if self._setup.matches_hidden:
                observed = random_where_hidden(observed, number)
            attack = self._setup.attack
            images = None
            if attack.inapplicable(observed) is None:
                images = attack.recover(observed, number).images
            if images is None or not len(images):
                yield False, float("nan")
                continue
            image = images[np.random.default_rng([number, len(images)]).integers(len(images))]
            if not self._is_unit:
                image = (image - self._low) / self._width
            nearest = self._pool.nearest(image)
            true = self._unit[nearest]
            yield nearest in own, float(psnr(image[None], true[None], (0.0, 1.0)).clamp(max=100.0))


def table(*, full: bool = False, minutes: float = 10.0) -> dict[str, Any]:
    """Measure the matrix; a coarse one ends after so many minutes of processor time."""
    dataset = load_dataset("cifar10")
    chosen = setups(full=full)
    if full:
        _print_duration(chosen, dataset)
    rows = []
    for setup in chosen:
        began = time.process_time()
        share = float("inf") if full else 60 * minutes / len(chosen)
        arena = Arena(setup, dataset)
        matrix = Matrix(
            full_grid() if full else setup.coarse_cells,
            setup.full_trials if full else setup.coarse_trials,
            stops_early=not full,
        )
        matrix.run(arena.attempts, lambda began=began, share=share: began + share - time.process_time())
        sigma, sigma_shown = least(matrix.counts, "sigma")
        eta, eta_shown = least(matrix.counts, "eta")
        row = {
            "attack": setup.attack.name,
            "settings": setup.settings,
            "batch": setup.batch,
            "matches hidden": setup.matches_hidden,
            "least sigma": {"paper": setup.paper_sigma, "ours": sigma, "ours, shown": sigma_shown},
            "least eta": {"paper": setup.paper_eta, "ours": eta, "ours, shown": eta_shown},
            "cells": [
                {"sigma": cell.sigma, "eta": cell.eta, "tried": counts.tried, "successes": counts.successes}
                | {"rate": counts.rate, "shown near zero": counts.shows_near_zero}
                | {"median PSNR": float(np.median(counts.decibels)) if counts.decibels else None}
                for cell, counts in sorted(matrix.counts.items())
            ],
            "processor seconds": time.process_time() - began,
        }
        rows.append(row)
        _print_row(row, matrix)
    return {"differences": DIFFERENCES, "rows": rows, "agreement": _agreements(rows)}


def _agreements(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Say how the least values agree; those that no cell shows count as beyond all cells.

    All of the paper's noise multipliers lie within 0.1 of each other: there, only equal ones agree.
    """
    said = {}
    rows = [row for row in rows if not row["matches hidden"]]
    for name, tolerance in (("least sigma", 0.0), ("least eta", TOLERANCE)):
        ours = [float("inf") if row[name]["ours"] is None else row[name]["ours"] for row in rows]
        said[name] = agreement([row[name]["paper"] for row in rows], ours, tolerance)
    return said


def _print_duration(chosen: Sequence[Setup], dataset: Dataset) -> None:
    """Time one cell of each attack, and say how long the full grid takes."""
    seconds = 0.0
    for setup in chosen:
        arena = Arena(setup, dataset)
        began = time.process_time()
        list(arena.attempts(0, [Cell(0.001, 0.05)]))
        once = time.process_time() - began
        cells = sum(cell.eta < 1.0 for cell in full_grid())
        seconds += once * cells * setup.full_trials
        print(
            f"{setup.attack.name}: {once:.2f} s a try, {cells} cells, {setup.full_trials} tries each",
            flush=True,
        )
    print(f"the full grid takes some {seconds / 3600:.1f} hours of one core", flush=True)


def _print_row(row: dict[str, Any], matrix: Matrix) -> None:
    print(
        f"{row['attack']}, batch {row['batch']}, {row['settings']}, {row['processor seconds']:.0f} s of one core"
    )
    for cell, counts in sorted(matrix.counts.items()):
        print(f"  sigma {cell.sigma:<6g} eta {cell.eta:<4g} {counts}")
    for name in ("least sigma", "least eta"):
        found = row[name]
        print(
            f"  {name}: paper {found['paper']:g}, ours {found['ours']}, shown by its tries {found['ours, shown']}"
        )
    print(end="", flush=True)
