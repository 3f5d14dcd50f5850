"""What a round goes through, and what it may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl.methods.protocol.messages import OPENED

__all__ = ["TELL_OPENED", "Phase", "SyntheticDemand"]


@dataclass(frozen=True)
class Phase:
    """One exchange of messages in a round."""

    name: str
    answered_by_authority: bool
    """Whether the aggregator's message goes to the key authority, whose answer the clients get."""
    opens: str | None = "update"
    """The purpose of the total that the answer comes of, where the authority answers; None where it opens none."""
    signs_answer: bool = True
    """Whether the authority then signs its answer, and nobody goes on with another one: not the last phase's, which is
    signed as the next round's model, and not where the method itself tells a true answer from others."""
    once: bool = False
    """Whether one total is opened in the whole run: what clients send in it would be the same in a later round, so that
    two sums, of which one lacks a client, would tell what that one sent."""


TELL_OPENED = Phase(OPENED, answered_by_authority=False, opens=None)
"""Behind a phase whose total clients open, where another one follows: they tell the aggregator what it has to know."""


@dataclass(frozen=True)
class SyntheticDemand:
    """What synthetic data set a method's rounds train on, if nobody brings one."""

    epsilon: float
    """What it may cost the real data."""
    delta: float
    samples: int | None
    """For all clients together; None for as many as there are real ones."""
