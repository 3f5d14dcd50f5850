"""SenseCrypt, figure 6: labels counted of clients that encrypt by their speed, beside one that encrypts nothing."""

from __future__ import annotations

from typing import Any

from paper_attacks.label_tries import AS_IN_PAPERS, Figure, LabelTries, first_model, label_tries
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.view import Trial
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.methods.registry import MethodSettings

__all__ = ["DIFFERENCES", "SPEEDS", "configuration", "settings", "table"]

SPEEDS = (32.0, 24.0, 16.0, 12.0, 10.0, 8.0, 2.0, 1.0)
"""Processors of clients 1 to 8; client 9 encrypts nothing."""
DIFFERENCES = (
    "The paper prints figure 6 without numbers: what it says is that every client's LnAcc is significantly below the "
    "unencrypted client's while LeAcc hardly changes, and that the slowest one encrypts 3.1 %.",
    "The unencrypted client is one of a federation of plain averaging with the same model and batches; each client is "
    "held against its own batch without encryption as well.",
    "First round of an untrained model, one step on a batch of 30 drawn uniformly, rate 0.1; one cluster; budgets down "
    "to 1/32 (ours stop at 0.1 by default).",
    "iLRG reads the model's last layer, which the aggregator is not sent in the clear. Attacked is the view as it is, "
    "with a model drawn anew, and that of an aggregator that has the model.",
    "ResNet-50 on CIFAR-100 is not run: nothing was measured on CIFAR-100.",
)


def configuration(clients: int) -> AuditConfig:
    """Return what a federation is of: the first clients have the same batches, however many there are."""
    return AuditConfig(dataset="mnist", model="lenet5", samples=30, clients=clients, rounds=1, threads=1)


def settings() -> MethodSettings:
    """Return the method's settings: the paper's speeds, and no budget that is lifted."""
    values = {"compute_speeds": SPEEDS, "least_budget": 1 / max(SPEEDS), "clustering": "none"}
    return MethodSettings().changed("sense-crypt", values)


def table(trials: int = 10) -> dict[str, Any]:
    """Measure the figure: a row for each client and knowledge of the model, the unencrypted one last."""
    dataset = load_dataset("mnist")
    clients = len(SPEEDS)
    hidden = {(has, client): LabelTries() for has in (True, False) for client in range(clients)}
    shown = {client: LabelTries() for client in range(clients + 1)}
    shares: list[list[float]] = [[] for _ in SPEEDS]
    for number in range(trials):
        trial = Trial("sense-crypt", settings(), configuration(clients), dataset, number)
        plain = Trial("fedavg", MethodSettings(), configuration(clients + 1), dataset, number)
        for client in range(clients + 1):
            shown[client].add(*label_tries(plain, client, None))
        for client in range(clients):
            one = trial.record.disclosures[client, 1]
            shares[client].append(one.encrypted.count / one.encrypted.size)
            for has in (True, False):
                model = first_model(trial) if has else None
                hidden[has, client].add(*label_tries(trial, client, model))
    rows = [
        _row(client, has, found, shown[client], sum(shares[client]) / trials)
        for (has, client), found in hidden.items()
    ]
    rows.append(_row(clients, True, shown[clients], shown[clients], 0.0))
    for row in rows:
        print(line(row), flush=True)
    return {
        "differences": DIFFERENCES,
        "rows": rows,
        "agreement": [
            {"client": row["client"], "aggregator has the model": row["aggregator has the model"]}
            | {name: row[name]["below its own unencrypted"].high < 0 for name in ("zeros", "strongest")}
            for row in rows[:-1]
        ],
    }


def _row(client: int, has_model: bool, found: LabelTries, own: LabelTries, share: float) -> dict[str, Any]:
    def figures(name: str) -> dict[str, Figure]:
        pairs = zip(found.scores[name], own.scores[name], strict=True)
        below = Figure.of([hidden[1] - shown[1] for hidden, shown in pairs])
        return found.figures(name) | {"below its own unencrypted": below}

    return {
        "client": client + 1,
        "processors": SPEEDS[client] if client < len(SPEEDS) else None,
        "aggregator has the model": has_model,
        "tries": len(found.scores[AS_IN_PAPERS]),
        "encrypted": share,
        "zeros": figures(AS_IN_PAPERS),
        "strongest": figures(found.strongest),
        "strongest guess": found.strongest,
        "floors": {name: found.figures(name) for name in found.floors},
    }


def line(row: dict[str, Any]) -> str:
    """Return a row as it is printed."""
    who = "unencrypted" if row["processors"] is None else f"{row['processors']:g} processors"
    zeros, strongest = row["zeros"], row["strongest"]
    floors = ", ".join(f"{name} {found['LnAcc'].mean:.2f}" for name, found in row["floors"].items())
    return (
        f"client {row['client']}, {who}, {'model' if row['aggregator has the model'] else 'no model'}: encrypted "
        f"{row['encrypted']:.1%}; zeros LeAcc {zeros['LeAcc']} LnAcc {zeros['LnAcc']} (to own unencrypted "
        f"{zeros['below its own unencrypted']}); strongest LeAcc {strongest['LeAcc']} LnAcc {strongest['LnAcc']} (to "
        f"own unencrypted {strongest['below its own unencrypted']}; {row['strongest guess']}); floors LnAcc {floors}; "
        f"{row['tries']} tries"
    )
