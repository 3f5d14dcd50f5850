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


@pytest.mark.slow
def test_a_process_that_fails_says_why(script):
    with pytest.raises(RuntimeError, match="dataset must be one of digits"):
        script.measured(script.ROOT, "fedavg", script.Task(dataset="nowhere"))
