"""``shieldfl profile``: which clients hold a round up, and what they can encrypt in time."""

from __future__ import annotations

import typer

from shieldfl.cli.profile.calibrate import calibrate
from shieldfl.cli.profile.measure import measure
from shieldfl.cli.profile.plan import plan
from shieldfl.cli.profile.simulate import simulate

__all__ = ["profile"]

profile = typer.Typer(
    name="profile",
    help="Calibrate this machine, simulate and measure rounds of a fleet of clients, and plan what they can encrypt.",
    no_args_is_help=True,
)
profile.command()(calibrate)
profile.command()(simulate)
profile.command()(plan)
profile.command()(measure)
