"""SenseCrypt's masks of clients that really train: sizes and unions for simulated fleets.

Each cluster trains a model by federated averaging on its clients' samples; after the last round every client scores its
weights by eq. 2 over its own samples and selects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from shieldfl.encryption.paillier import UnionOrder
from shieldfl.lab.fleet.cost_source import EncryptionPlan, MaskSettings, fleet_budgets
from shieldfl.lab.fleet.fleet import Fleet
from shieldfl.lab.simulation.data import Dataset
from shieldfl.learning.local_trainer import train_locally
from shieldfl.learning.networks import build_model, default_model
from shieldfl.masks import Mask, SelectionLimits, select
from shieldfl.models.torch_bridge import flatten, load_flat
from shieldfl.settings import TrainingSettings

AT_A_TIME = 1000
TRAINING = TrainingSettings(local_epochs=1, momentum=0.9)


@dataclass(frozen=True)
class Rule:
    """Which of the paper's equations decide a mask's size, within the budget (eq. 6) and above the floor (eq. 7)."""

    name: str
    cost_weight: float = 1.0
    information_bits: float = math.inf


RULES = (
    # So heavy that no position is worth its cost unless security asks for it.
    Rule("eqs. 6, 7: as few as security allows", cost_weight=1e9),
    Rule("eqs. 6, 7, 9: also all above the mean score"),
    Rule("eqs. 6 to 9: also at most 2 bits", information_bits=2.0),
)


@dataclass(frozen=True)
class ScoredClient:
    """A client's trained weights and how sensitive each of them is, float32 of shape (P,)."""

    weights: np.ndarray
    scores: np.ndarray


def score_clients(dataset: Dataset, fleet: Fleet, rounds: int, seed: int) -> list[ScoredClient]:
    """Train each cluster of a fleet on its part of the classes, all of them where there is one cluster."""
    generator = np.random.default_rng(seed)
    parts: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * fleet.size
    classes = np.array_split(np.arange(dataset.classes), len(fleet.cluster_names))
    scored: dict[int, ScoredClient] = {}
    for cluster, labels in enumerate(classes):
        members = np.flatnonzero(fleet.clusters == cluster)
        samples = generator.permutation(np.flatnonzero(np.isin(dataset.train_labels, labels)))
        for member, part in zip(members, np.array_split(samples, members.size), strict=True):
            parts[member] = part
        clients = [parts[member] for member in members]
        scored |= dict(zip(members.tolist(), _train_cluster(dataset, clients, rounds, seed), strict=True))
    return [scored[client] for client in range(fleet.size)]


def _train_cluster(dataset: Dataset, parts: list[np.ndarray], rounds: int, seed: int) -> list[ScoredClient]:
    model = build_model(default_model(dataset.name), dataset.feature_shape, dataset.classes, seed)
    features = torch.as_tensor(dataset.train_features)
    labels = torch.as_tensor(dataset.train_labels).long()
    average = flatten(model)
    scored: list[ScoredClient] = []
    for number in range(1, rounds + 1):
        trained = []
        for client, part in enumerate(parts):
            load_flat(model, average)
            train_locally(model, features[part], labels[part], TRAINING, seed=1000 * number + client)
            trained.append(flatten(model))
            if number == rounds:
                scored.append(_score(model, features[part], labels[part]))
        average = np.mean(trained, axis=0, dtype=np.float32)
    return scored


def _score(model: torch.nn.Module, features: torch.Tensor, labels: torch.Tensor) -> ScoredClient:
    """Score by |w * gradient of the mean loss over all samples| (eq. 2)."""
    model.zero_grad()
    for start in range(0, len(features), AT_A_TIME):
        some = slice(start, start + AT_A_TIME)
        loss = torch.nn.functional.cross_entropy(model(features[some]), labels[some], reduction="sum")
        (loss / len(features)).backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]).numpy()
    weights = flatten(model)
    return ScoredClient(weights, np.abs(weights * gradient))


def select_masks(fleet: Fleet, clients: list[ScoredClient], floor: MaskSettings, rule: Rule) -> list[Mask]:
    """Return each client's mask under its budget in the fleet."""
    return [
        select(
            client.scores,
            client.weights,
            SelectionLimits(
                budget=budget,
                exposed_share=floor.exposed_share,
                exposure_decay=floor.exposure_decay,
                information_bits=rule.information_bits,
                cost_weight=rule.cost_weight,
            ),
        ).mask
        for client, budget in zip(clients, fleet_budgets(fleet).tolist(), strict=True)
    ]


def measured_plan(fleet: Fleet, masks: list[Mask], values_per_ciphertext: int) -> EncryptionPlan:
    """SenseCrypt's plan for the fleet's model, with the shares of the positions that these masks have."""
    unions, fields = [], np.zeros(fleet.size)
    for cluster in range(len(fleet.cluster_names)):
        members = np.flatnonzero(fleet.clusters == cluster)
        order = UnionOrder.from_masks([masks[member] for member in members])
        unions.append(order.count)
        starts = np.arange(0, order.count, values_per_ciphertext)
        lengths = np.diff(np.append(starts, order.count))
        for member in members:
            chosen = masks[member].to_bool()[order.positions]
            fields[member] = lengths[np.logical_or.reduceat(chosen, starts)].sum()
    scale = fleet.model.parameters / masks[0].size

    def scaled(counts: object) -> np.ndarray:
        return np.rint(np.asarray(counts) * scale).astype(np.int64)

    return EncryptionPlan(
        method="sense-crypt",
        values=scaled([mask.count for mask in masks]),
        fields=scaled(fields),
        groups=fleet.clusters,
        union_values=scaled(unions),
        scores=True,
        selects=True,
        sends_mask=True,
        budget_shortfall=np.zeros(fleet.size),
    )
