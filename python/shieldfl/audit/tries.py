"""What came of one attack so far, for one method and party, and the cell that it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shieldfl.audit.attack import UpdateAttack
from shieldfl.audit.result import Cell
from shieldfl.audit.scores.intervals import bootstrap_interval
from shieldfl.audit.scores.outcome import FIGURES, Outcome

__all__ = ["Found", "Tries"]


@dataclass
class Found:
    """What one attack came to on one trial, for one party."""

    received: bool = False
    """Whether the party knows a value of the client's update, or of a sum with it."""
    reason: str = ""
    """Why the attack does not apply, where it does not."""
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    """With their forms, in the order in which they came."""

    def join(self, more: Found) -> None:
        """Add what came later of the same trial."""
        self.received = self.received or more.received
        self.reason = self.reason or more.reason
        self.outcomes += more.outcomes


@dataclass
class Tries:
    """What came of one method, attack and party so far."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    """By form."""
    reason: str = ""
    """Why the attack did not apply, where it did not."""
    received: bool = False
    """Whether the party ever knew a value of the client's update, or of a sum with it."""

    def add(self, found: Found) -> None:
        """Add what came of one more trial, or of a part of one."""
        self.received = self.received or found.received
        self.reason = self.reason or found.reason
        for form, outcome in found.outcomes:
            self.outcomes.setdefault(form, []).append(outcome)

    def cell(self, method: str, attack: UpdateAttack, party: str, seed: int) -> Cell:
        """Return what came of it: the form with the highest mean."""
        if not self.outcomes:
            if self.reason:
                return Cell(method, attack.name, party, "does not apply", self.reason)
            if not self.received:
                why = "no value of a client's update, and no sum with it, came to this party"
                return Cell(method, attack.name, party, "nothing received", why)
            return Cell(method, attack.name, party, "not attacked", "the audit ended before the first try")
        means = {form: float(np.mean([one.figure for one in found])) for form, found in self.outcomes.items()}
        form = max(means, key=lambda name: means[name])
        found = self.outcomes[form]
        interval = bootstrap_interval([one.figure for one in found], "mean", seed)
        names = sorted({name for one in found for name in one.others})
        return Cell(
            method,
            attack.name,
            party,
            "attacked",
            measured_by=FIGURES[attack.recovers],
            figure=means[form],
            low=interval.low,
            high=interval.high,
            chance=float(np.mean([one.chance for one in found])),
            tries=len(found),
            form=form + _remarks(found),
            others={
                name: float(np.mean([one.others[name] for one in found if name in one.others]))
                for name in names
            },
            example=next((one.example for one in found if one.example is not None), None),
        )


def _remarks(found: Sequence[Outcome]) -> str:
    """Say what attacks remarked, and of how many tries."""
    counted = Counter(one.remark for one in found if one.remark)
    return "".join(f"; {remark}, in {count} of {len(found)} tries" for remark, count in counted.items())
