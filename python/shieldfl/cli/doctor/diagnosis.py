"""What ``shieldfl doctor`` found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shieldfl.cli.doctor.machine import InstructionSets, installation, instruction_sets, warnings_of
from shieldfl.cli.doctor.packages import Part, parts
from shieldfl.cli.doctor.self_test import Check, self_test

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True)
class Diagnosis:
    """Facts of an installation and its machine, and whether the two go together."""

    installation: dict[str, Any]
    sets: InstructionSets
    parts: list[Part]
    checks: list[Check]
    warnings: list[str]

    @property
    def problems(self) -> list[str]:
        """What does not work, most general first; empty where all does."""
        stated = [self.sets.error] if self.sets.error else []
        failed = [check for check in self.checks if check.problem]
        return stated + [f"{check.name} with {check.instruction_set}: {check.problem}" for check in failed]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "works": not self.problems,
            "problems": self.problems,
            "warnings": self.warnings,
            "installation": self.installation,
            "instruction_sets": self.sets.to_json(),
            "packages": [part.to_json() for part in self.parts],
            "self_test": [asdict(check) for check in self.checks],
        }


def diagnose() -> Diagnosis:
    """Gather facts and run the self-test."""
    facts, sets = installation(), instruction_sets()
    return Diagnosis(facts, sets, parts(), self_test(sets.usable), warnings_of(facts, sets))
