"""``shieldfl profile``: which clients hold a round up, and what they can encrypt in time."""

from __future__ import annotations

import typer

from shieldfl.cli.profile_calibrate import calibrate
from shieldfl.cli.profile_plan import plan
from shieldfl.cli.profile_simulate import simulate

__all__ = ["profile"]

profile = typer.Typer(
    name="profile",
    help="Measure this machine, simulate rounds of a fleet of clients, and plan what they can encrypt in time.",
    no_args_is_help=True,
)
profile.command()(calibrate)
profile.command()(simulate)
profile.command()(plan)
