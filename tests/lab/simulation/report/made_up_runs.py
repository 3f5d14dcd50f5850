"""Results of runs that nobody has made, with figures that are easy to check."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import STAGES, MethodResult, RoundRecord, RunResult

__all__ = ["SIXTEEN", "changed", "record", "run_of", "run_of_sixteen"]

SIXTEEN = [
    "fedavg",
    "selective-shield",
    "sense-crypt",
    "full-he",
    "plain-he",
    "top-2",
    "fedml-he",
    "mask-crypt",
    "dict-pfl",
    "batch-crypt",
    "alt-fl-pi",
    "alt-fl-si-dp",
    "alt-fl-si-he",
    "alt-fl-mp",
    "dp-sgd",
    "dp-fedavg",
]


def record(number: int, protected: bool) -> RoundRecord:
    shares = {"encrypted": 0.02, "personalised": 0.04, "noise": 0.94, "clear": 0.0}
    return RoundRecord(
        round=number,
        participants=19,
        dropped=0,
        loss=1.0 / number,
        accuracy=1.0 - 0.5 / number,
        personalised_accuracy=1.0 - (0.6 if protected else 0.5) / number,
        zone_shares=shares
        if protected
        else {"encrypted": 0.0, "personalised": 0.0, "noise": 0.0, "clear": 1.0},
        stage_seconds=dict.fromkeys(STAGES, 0.25) if protected else {"train": 0.5},
        bytes_up=1_500_000 if protected else 1_000_000,
        bytes_down=1_200_000 if protected else 1_000_000,
        epsilon=2.5 * number if protected else math.inf,
        epsilon_of_noise=2.5 * number if protected else math.nan,
        epsilon_if_participants_true=0.75 * number if protected else math.nan,
        seconds=2.0 if protected else 0.75,
    )


def run_of(*methods: str, rounds: int = 3) -> RunResult:
    return RunResult(
        dataset="made-up data (<100 & more)",
        model="mlp",
        config=asdict(RunConfig(clients=20, rounds=rounds)),
        environment={"version": "9.9", "processor": "a <fast> one"},
        parameters=12_345,
        methods=[
            MethodResult(
                method=name,
                settings={} if name == "fedavg" else {"threshold": 0.05, "target_epsilon": None},
                parameters=12_345,
                delta=math.nan if name == "fedavg" else 1e-5,
                rounds=[record(number, name != "fedavg") for number in range(1, rounds + 1)],
                seconds=6.0,
                privacy_unit=None if name == "fedavg" else "client",
                privacy_adversary=None if name == "fedavg" else "the aggregator, which sees no model",
                notes=[] if name == "fedavg" else ["a note to the reader"],
            )
            for name in methods
        ],
    )


def changed(result: RunResult, number: int, **figures: object) -> RunResult:
    """Return a run in which every round of one method has other figures."""
    methods = list(result.methods)
    rounds = [replace(record, **figures) for record in methods[number].rounds]
    methods[number] = replace(methods[number], rounds=rounds)
    return replace(result, methods=methods)


def run_of_sixteen() -> RunResult:
    """Return a run of every method: costs that differ a thousandfold, lines that cross and coincide, long words."""
    result = run_of(*SIXTEEN, rounds=6)
    for number in range(1, len(SIXTEEN)):
        factor = 10.0 ** (number / 5.0)
        method = result.methods[number]
        rounds = [
            replace(
                one,
                accuracy=one.accuracy - 0.02 * (number // 2),
                seconds=one.seconds * factor,
                stage_seconds={stage: seconds * factor for stage, seconds in one.stage_seconds.items()},
                bytes_up=one.bytes_up * factor,
            )
            for one in method.rounds
        ]
        parts = ["mask", "sizes of layers", "norms"][: number % 4]
        result.methods[number] = replace(method, rounds=rounds, training=str(number), readable_parts=parts)
    return result
