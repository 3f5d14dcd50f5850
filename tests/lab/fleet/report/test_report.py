from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from lab.fleet.fleets import COSTS, RIGID, client, fleet_of, three_clients
from page_reader import PageReader, assert_needs_nothing_from_elsewhere
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import CostSource, DeviceProfile, SchemeProfile
from shieldfl.lab.fleet.fleet import Fleet
from shieldfl.lab.fleet.fleet_simulation import (
    FleetSimulation,
    SimulationSettings,
    simulate_fleets,
    summarise,
)
from shieldfl.lab.fleet.round_simulation import simulate
from shieldfl.lab.report.fleet_page import (
    MOST_CLIENT_ROWS,
    clients_table,
    methods_table,
    write_report,
)
from shieldfl.quantities import seconds_text
from small_pictures import small_pictures

HOSTILE = '<script>alert("$x$")</script> & ../../etc'
MACHINE = {"processor": "a <fast> one", "date": "a day"}
MEASURED = SchemeProfile("tens", "made up", 10, 100.0, {1: 1.0}, 0.25, 0.5, True)


def simulation_of(
    *fleets: Fleet, methods: tuple[str, ...] = SimulationSettings().methods, schemes: int = 1
) -> FleetSimulation:
    models = {"tens": COSTS, "rigid": replace(RIGID, scheme=replace(RIGID.scheme, name="rigid"))}
    chosen = dict(list(models.items())[:schemes])
    profile = DeviceProfile(MACHINE, (MEASURED,), 1e-9, 1e-9, 1e-9)
    return simulate_fleets(fleets, CostSource(chosen, profile), SimulationSettings(methods=methods))


@pytest.fixture(scope="module", autouse=True)
def _small_pictures() -> Iterator[None]:
    with small_pictures():
        yield


@pytest.fixture(scope="module")
def two_fleets(tmp_path_factory: pytest.TempPathFactory) -> tuple[FleetSimulation, Path]:
    odd = fleet_of(client(HOSTILE, cluster="<b>"), client("lost", dropout_probability=1.0, count=2))
    simulation = simulation_of(three_clients(), replace(odd, name=HOSTILE), schemes=2)
    folder = tmp_path_factory.mktemp("reports") / "new" / "folder"
    written = write_report(simulation, folder)
    assert sorted(written) == sorted(folder.iterdir())
    return simulation, folder


def page_of(folder: Path) -> str:
    return (folder / "index.html").read_text()


def test_an_earlier_report_leaves_no_pictures_and_other_files_stay(
    two_fleets: tuple[FleetSimulation, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(two_fleets[1], folder)
    mine = {"gantt-fleet-9-scheme-9.png.bak", "my-gantt-fleet-1-scheme-1.png", "photo.png"}
    for name in mine:
        (folder / name).write_text("mine")
    smaller = write_report(simulation_of(three_clients(), methods=("fedavg", "full-he")), folder)
    assert {path.name for path in folder.iterdir()} == mine | {path.name for path in smaller}
    for name in mine:
        assert (folder / name).read_text() == "mine"


def test_pictures_in_a_folder_without_a_report_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "gantt-fleet-7-scheme-7.png").write_text("mine")
    write_report(simulation_of(three_clients(), methods=("full-he",)), tmp_path)
    assert (tmp_path / "gantt-fleet-7-scheme-7.png").read_text() == "mine"


def test_the_page_is_whole_and_json_holds_the_simulation(two_fleets: tuple[FleetSimulation, Path]) -> None:
    simulation, folder = two_fleets
    assert json.loads((folder / "simulation.json").read_text()) == simulation.to_json()
    page = page_of(folder)
    assert_needs_nothing_from_elsewhere(page)
    assert page.count('<svg class="wide"') == page.count('<svg class="narrow"') == 4
    for raw in (str(folder), "<script", "<b>", "<fast>"):
        assert raw not in page
    assert HOSTILE in PageReader(page).text


def test_page_holds_every_table(two_fleets: tuple[FleetSimulation, Path]) -> None:
    simulation, folder = two_fleets
    text = PageReader(page_of(folder)).text
    for one in simulation.fleets:
        assert one.fleet.name in text
        for scheme, runs in one.runs.items():
            assert scheme in text
            summaries = [summarise(rounds) for rounds in runs]
            tables = [methods_table(summaries), *map(clients_table, runs)]
            for row in (cells for table in tables for cells in (table.heads, *table.rows)):
                assert " ".join(" ".join(row).split()) in text
    for scheme in simulation.schemes:
        for runs in zip(*(one.runs[scheme] for one in simulation.fleets), strict=True):
            times = " ".join(seconds_text(float(one.round_seconds.mean())) for one in runs)
            assert f"{runs[0].plan.method} {times}" in text
    assert simulation.notes
    for expected in ("dropouts: 2", "a <fast> one", "mask overlap", *simulation.notes):
        assert expected in text


def test_one_fleet_and_method_have_nothing_to_be_compared_with(tmp_path: Path) -> None:
    write_report(simulation_of(three_clients(), methods=("full-he",)), tmp_path)
    text = PageReader(page_of(tmp_path)).text
    assert "Seconds of a round" not in text
    assert "1 fleet, 1 scheme, 1 method, 1 round." in text


def test_tables_of_large_fleets_show_the_slowest() -> None:
    fleet = fleet_of(client("usual", count=MOST_CLIENT_ROWS + 9), client("slow", cpu_share=0.1))
    table = clients_table(simulate("full-he", fleet, COSTS))
    assert len(table.rows) == MOST_CLIENT_ROWS
    assert table.rows[0][0] == "slow"
    assert table.note == "The 200 slowest; simulation.json also has the other 10."
    assert clients_table(simulate("full-he", three_clients(), COSTS)).note == ""


def test_a_simulation_of_nothing_is_refused(tmp_path: Path) -> None:
    for simulation in (simulation_of(), simulation_of(three_clients(), schemes=0)):
        with pytest.raises(ParameterError, match="nothing was simulated"):
            write_report(simulation, tmp_path)
    assert list(tmp_path.iterdir()) == []
