"""Small fleets and costs whose rounds can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from shieldfl.lab.fleet.cost_source import CostModel, SchemeProfile
from shieldfl.lab.fleet.fleet import Aggregator, ClientKind, Fleet, Model, Training

# A ciphertext holds 10 values in 100 bytes; encrypting takes 1 s, adding 0.25 s, opening 0.5 s.
SCHEME = SchemeProfile("tens", "made up", 10, 100.0, {1: 1.0}, 0.25, 0.5, adds_clear_values=True)
COSTS = CostModel(
    SCHEME, train_seconds_per_sample=0.1, score_seconds_per_value=0.01, select_seconds_per_value=0.02
)
# Ciphertexts take no plain numbers.
RIGID = replace(COSTS, scheme=replace(SCHEME, adds_clear_values=False))

WIDE = {"upload_bytes_per_second": 1e15, "download_bytes_per_second": 1e15}


def free_but_for(**scheme: object) -> CostModel:
    """Costs of nothing but one scheme's steps, of one value in a ciphertext."""
    nothing = {"encrypt_seconds": {1: 0.0}, "add_seconds": 0.0, "open_seconds": 0.0}
    return replace(
        COSTS,
        scheme=replace(SCHEME, **(nothing | {"values_per_ciphertext": 1} | scheme)),
        train_seconds_per_sample=0.0,
        score_seconds_per_value=0.0,
        select_seconds_per_value=0.0,
    )


def client(name: str, **settings: object) -> ClientKind:
    """One core, 10 samples, 100 bytes a second up and 400 down, unless said otherwise."""
    usual: dict[str, object] = {
        "cores": 1.0,
        "samples": 10,
        "upload_bytes_per_second": 100.0,
        "download_bytes_per_second": 400.0,
    }
    return ClientKind(name=name, **(usual | settings))  # type: ignore[arg-type]


def fleet_of(*kinds: ClientKind, parameters: int = 100, min_clients: int = 1, cores: float = 1.0) -> Fleet:
    return Fleet("test", Model(parameters), kinds, Training(1, min_clients), Aggregator(cores))


def three_clients(**settings: object) -> Fleet:
    """A fast one, one with half a core, and one with a slow link."""
    return fleet_of(
        client("fast", cores=2.0, **settings),
        client("half", cpu_share=0.5, **settings),
        client("far", upload_bytes_per_second=20.0, latency_seconds=1.0, **settings),
    )
