"""bench/many_clients.py measures whole simulations, in small."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

from documentation_pages import ROOT


@pytest.fixture
def script(monkeypatch):
    for needed in ("torch", "typer", "sklearn"):
        pytest.importorskip(needed)
    monkeypatch.syspath_prepend(ROOT / "bench")
    return importlib.import_module("many_clients")


def run_of(script, wall: float, result: str = "accuracy 0.5"):
    return script.Run(wall, 2.0, 1.0, 5_000_000, result)


def test_lines_are_medians_and_say_whether_results_are_the_same(script):
    other = ROOT / "other"
    found = {
        (script.ROOT, "fedavg"): [run_of(script, wall) for wall in (9.0, 4.0, 3.0)],
        (other, "fedavg"): [run_of(script, 8.0)],
        (script.ROOT, "full-he"): [run_of(script, 2.0), run_of(script, 2.0, "accuracy 0.6")],
    }
    first, second, third = script.rows(found, 20)
    assert first == ["this", "fedavg", "300.0", "4.00", "2.00", "1.00", "5", "the same"]
    assert (second[0], second[2], second[-1]) == (str(other), "150.0", "the same")
    assert third[-1] == "differs"


def test_checkouts_go_by_turns_and_other_simulators_once(script, monkeypatch):
    order = []
    monkeypatch.setattr(
        script, "measured", lambda checkout, method, task: (order.append((checkout.name, method)), 1)[1]
    )
    other = ROOT / "other"
    script.by_turns([script.ROOT, other], ["fedavg", "pfl"], script.Task(), 2)
    here = script.ROOT.name
    assert order == [(here, "fedavg"), ("other", "fedavg"), (here, "pfl")] * 2


def test_a_process_runs_what_the_task_says(script, monkeypatch, capsys):
    run = importlib.import_module("many_clients_run")
    monkeypatch.setattr(run, "use_package_of", lambda folder: None)
    results = []
    for threads in (1, 2):
        small = script.Task("digits", "small-mlp", 6, share=0.5, rounds=2, local_epochs=1, threads=threads)
        monkeypatch.setattr(sys, "argv", ["run", str(ROOT / "python"), "full-he", *small.as_arguments()])
        run.main()
        results.append(script.Run(**importlib.import_module("json").loads(capsys.readouterr().out)))
    for one in results:
        assert one.wall > 0 < one.user
        assert one.peak_bytes > 50e6
    assert results[0].result == results[1].result
    assert "accuracy 0." in results[0].result


def test_a_folder_without_compiled_modules_is_the_installed_one_or_refused(script, monkeypatch, tmp_path):
    run = importlib.import_module("many_clients_run")
    finders, path = list(sys.meta_path), list(sys.path)
    monkeypatch.setattr(sys, "meta_path", list(finders))
    monkeypatch.setattr(sys, "path", list(path))
    (tmp_path / "shieldfl").mkdir()
    with pytest.raises(SystemExit, match="has no compiled package"):
        run.use_package_of(str(tmp_path))
    installed = importlib.util.find_spec("shieldfl").origin
    run.use_package_of(installed.removesuffix("/shieldfl/__init__.py"))
    (tmp_path / "shieldfl" / "_core.so").touch()
    run.use_package_of(str(tmp_path))
    assert sys.path[0] == str(tmp_path)


@pytest.mark.slow
def test_a_process_that_fails_says_why(script):
    with pytest.raises(RuntimeError, match="dataset must be one of digits"):
        script.measured(script.ROOT, "fedavg", script.Task(dataset="nowhere"))
