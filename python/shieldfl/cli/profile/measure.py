"""``shieldfl profile measure``: rounds of real client processes, beside the simulation of the same fleet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from shieldfl.build_info import build_info
from shieldfl.cli.bench.command import progress_of
from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.profile import options
from shieldfl.cli.profile.pictures import picture_option
from shieldfl.cli.setting_options import given_settings, with_options
from shieldfl.errors import ShieldError
from shieldfl.fleet.costs.calibration import CalibrationSettings, calibrate
from shieldfl.fleet.costs.device_profile import DeviceProfile, load_profile
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.fleet_file import load_fleet
from shieldfl.fleet.measure.measured_comparison import MethodComparison, compare
from shieldfl.fleet.measure.measured_fleet import MeasuredFleet, MeasureSettings, measure_fleet, trains_model
from shieldfl.fleet.measure.processor_quota import processor_quotas

__all__ = ["measure"]


@with_options((MeasureSettings, ""))
def measure(
    *,
    fleet_file: options.FleetFile,
    profile: options.ProfileFile = None,
    gantt: Annotated[
        Path | None,
        picture_option("Draw the first round of the last method, measured and simulated."),
    ] = None,
    json_file: options.JsonFile = None,
    **settings: Any,
) -> None:
    """Run the clients of a fleet as processes under limits on processor and link, and compare with the simulation.

    Each client trains and takes the method's steps for real; an aggregator adds, the key authority opens, and where a
    method gives the mean of all updates, that is checked. Without --profile this machine is calibrated first.
    """
    chosen = given_settings(MeasureSettings, settings)
    # Told to end, it ends its clients and takes their limits away first.
    with interruptible(), failures_on_stderr():
        fleet = load_fleet(fleet_file)
        quotas = processor_quotas(fleet, build_info()["threads"])
        trains = trains_model(fleet)
        calibration = CalibrationSettings(
            schemes=(chosen.scheme,),
            threads=tuple({quota.threads for quota in quotas}),
            model=fleet.model.name if trains else None,
            # Every client runs on this processor, with its best set.
            other_sets=False,
        )
        steps = 2 + trains if profile is None else 0
        with progress_of(steps + 1 + len(chosen.methods) * chosen.rounds) as show:
            done = count()
            costs = (
                calibrate(calibration, on_step=lambda step: show(next(done), f"calibrating: {step}"))
                if profile is None
                else load_profile(profile)
            )
            show(next(done), "starting clients")
            measured = measure_fleet(
                fleet,
                costs,
                chosen,
                on_round=lambda name, number: show(next(done), f"{name}, round {number + 1}"),
            )
        compared = [compare(one) for one in measured]
        _draw(measured[-1], gantt)
        write_json(_to_json(fleet, chosen.scheme, costs, compared), json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.profile.measure_table import print_measured
            from shieldfl.cli.result_console import result_console

            print_measured(fleet, chosen.scheme, compared, result_console())
        _check_survivors(measured)


def _check_survivors(measured: Sequence[MeasuredFleet]) -> None:
    """Refuse to end well where a method has nothing measured. Raises ShieldError."""
    lost = [one.measured.plan.method for one in measured if one.measured.dropped.all()]
    if lost:
        raise ShieldError(
            f"all clients dropped out under {', '.join(lost)}, so nothing was measured: the system ended them, or they "
            "were not done in time; give the fleet fewer clients, or the machine more memory"
        )


def _draw(one: MeasuredFleet, path: Path | None) -> None:
    if path is None:
        return
    from shieldfl.fleet.report import pictures

    method = one.measured.plan.method
    labels = (f"{method}, measured", f"{method}, simulated")
    pictures.write_png(pictures.draw_gantt((one.measured, one.simulated), labels=labels), path)


def _to_json(
    fleet: Fleet, scheme: str, costs: DeviceProfile, compared: Sequence[MethodComparison]
) -> dict[str, Any]:
    return {
        "fleet": fleet.name,
        "clients": fleet.size,
        "parameters": fleet.model.parameters,
        "scheme": scheme,
        "profile": costs.to_json(),
        "methods": [one.to_json() for one in compared],
    }
