"""The page about a method of one's own, and its example: every block runs, with the package as if installed."""

from __future__ import annotations

import json
import re
import shlex
import sys

import pytest

from documentation_pages import ROOT, doc

FOLDER = ROOT / "examples" / "chosen_share"
PAGE = "docs/how-to/own-method.md"
MOST_LINES = 45
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', doc(PAGE), re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", doc(PAGE), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def places(places_of) -> list[str]:
    pytest.importorskip("opacus")
    return places_of(FOLDER)


@pytest.fixture
def run(places, warm_python, tmp_path, monkeypatch):
    """Run code as a process of its own, in which the package is installed; return what it printed."""
    monkeypatch.setenv("COLUMNS", "200")

    def run_code(code: str, *arguments: str) -> str:
        done = warm_python.run(f"import sys; sys.path[1:1] = {places!r}\n{code}", arguments, folder=tmp_path)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return done.stdout.decode()

    return run_code


def command(run, line: str) -> str:
    program, *words = shlex.split(line)
    assert program == "shieldfl"
    return run("from shieldfl.cli.main import main; main()", *words)


def test_the_page_has_the_example_s_files_and_the_method_is_short():
    ours = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".toml"))
    assert sorted(FILES) == sorted([*ours, "compare.py", "renamed.py"])
    for name in ours:
        assert FILES[name] == (FOLDER / name).read_text()
    assert len(FILES["chosen_share.py"].splitlines()) <= MOST_LINES
    assert [one.split()[1] for one in COMMANDS] == ["run", "flower"]


@pytest.mark.parametrize("name", ["compare.py", "renamed.py"])
def test_programs_of_the_page_run(run, name):
    printed = run(FILES[name])
    assert ("seeds 0, 1" in printed) == (name == "compare.py")


def test_the_command_line_names_it(run):
    assert "chosen-share" in command(run, "shieldfl run --help")


def test_it_runs_beside_published_ones_with_its_own_settings(run, tmp_path):
    printed = command(run, f"{COMMANDS[0]} --json result.json")
    assert "seeds 0, 1" in printed
    first, second = json.loads((tmp_path / "result.json").read_text())["runs"]
    for one in (first, second):
        plain, full, chosen = one["methods"]
        assert [each["hidden_share"] for each in (plain, full, chosen)] == [0.0, 1.0, 0.5]
        assert [each["rounds"][-1]["epsilon"] for each in (plain, full, chosen)] == [
            "Infinity",
            None,
            "Infinity",
        ]
        assert chosen["settings"]["share"] == 0.5
        assert chosen["aggregator_sees"] == "values outside of the share, and weights"


def test_an_app_of_flower_trains_by_it(run, places, tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    from flwr.common.config import parse_config_args

    from flower.app_in_process import AppInProcess
    from shieldfl.methods import registry

    new, _, asked, _ = COMMANDS[1].splitlines()
    command(run, new)
    (changes,) = shlex.split(asked)[3:]
    for place in places:
        monkeypatch.syspath_prepend(place)
    registry._offers.cache_clear()
    stated = []
    kept = registry.method_class("chosen-share").__init__

    def told(self, name, settings, plan):
        stated.append(settings.share)
        kept(self, name, settings, plan)

    monkeypatch.setattr(registry.method_class("chosen-share"), "__init__", told)
    try:
        override = parse_config_args([changes]) | {"result": str(tmp_path / "result.json")}
        AppInProcess(tmp_path / "own-app", "own_app").run(monkeypatch, 3, **override)
    finally:
        registry._offers.cache_clear()
        sys.modules.pop("chosen_share", None)
    rounds = json.loads((tmp_path / "result.json").read_text())["rounds"]
    assert list(rounds) == ["1", "2"]
    assert set(stated) == {0.5}


@pytest.mark.slow
def test_a_program_compares_it_with_published_ones_over_three_seeds(run):
    program = str(ROOT / "examples" / "programs" / "own_method.py")
    printed = run(f"import runpy; runpy.run_path({program!r}, run_name='__main__')")
    assert "seeds 0, 1, 2" in printed
    assert printed.count("seed by seed") == 3
    rows = [line.split()[0] for line in printed.splitlines() if " ± " in line]
    assert rows[:4] == ["chosen-share", "fedavg", "full-he", "fedml-he"]


def test_it_passes_the_suite(run):
    suite = str(FOLDER / "test_chosen_share.py")
    words = ("-q", "-p", "no:cacheprovider", "-W", "error", suite)
    printed = run("import pytest; raise SystemExit(pytest.main())", *words)
    assert " passed" in printed
    assert "skipped" not in printed
