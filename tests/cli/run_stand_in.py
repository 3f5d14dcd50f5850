"""A stand-in for the runner of ``shieldfl run``, the command on it, and its table read back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict

from shieldfl.lab.simulation.compared_runs import ComparedRuns
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import STAGES, MethodResult, RoundRecord, RunResult
from shieldfl.methods.registry import MethodSettings


class Driver:
    """Stands in for the runner: remembers what it was asked for and returns figures at once."""

    def __init__(self) -> None:
        self.config = RunConfig()
        self.methods: Sequence[str] = ()
        self.settings = MethodSettings()
        self.error: Exception | None = None

    def __call__(
        self,
        config: RunConfig,
        methods: Sequence[str],
        seeds: Sequence[int],
        settings: MethodSettings,
        on_round: Callable[[int, str, RoundRecord], None],
    ) -> ComparedRuns:
        self.config, self.methods, self.settings = config, methods, settings
        if self.error is not None:
            raise self.error
        result = RunResult("made-up data", "mlp", asdict(config), {"version": "9.9"}, 1000)
        for name in methods:
            rounds = [self._record(number, name != "fedavg") for number in range(1, config.rounds + 1)]
            for record in rounds:
                on_round(seeds[0], name, record)
            notes = [] if name == "fedavg" else ["what a reader must know"]
            unit = None if name == "fedavg" else "client"
            result.methods.append(MethodResult(name, {}, 1000, 1e-5, rounds, 4.0, notes, privacy_unit=unit))
        return ComparedRuns(tuple(seeds), (result,))

    @staticmethod
    def _record(number: int, protected: bool) -> RoundRecord:
        return RoundRecord(
            round=number,
            participants=3,
            dropped=0,
            loss=0.5,
            accuracy=0.9125,
            personalised_accuracy=0.9375 if protected else 0.9125,
            zone_shares={"encrypted": 0.02, "personalised": 0.03, "noise": 0.95, "clear": 0.0},
            stage_seconds=dict.fromkeys(STAGES, 0.125),
            bytes_up=3000.0 if protected else 2000.0,
            bytes_down=2000.0,
            epsilon=8.5 if protected else math.inf,
            epsilon_of_noise=8.5 if protected else math.nan,
            epsilon_if_participants_true=2.5 if protected else math.nan,
            seconds=2.0 if protected else 1.0,
        )


def table_rows(text: str) -> dict[str, str]:
    """Rows of the printed table: label -> what follows."""
    matches = (re.match(r" {2,3}(\S.*?) {3,}(\S.*?) *$", line) for line in text.splitlines())
    return {match[1]: " ".join(match[2].split()) for match in matches if match}
