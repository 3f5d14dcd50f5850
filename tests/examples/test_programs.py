"""The programs under examples/programs run as they are, and come to what they say."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest
import torch

from documentation_pages import ROOT, doc

FOLDER = ROOT / "examples" / "programs"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))


def program(name):
    spec = spec_from_file_location(f"program_{name}", FOLDER / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_every_program():
    page = doc("examples/programs/README.md")
    assert all(f"[{name}]({name})" in page for name in PROGRAMS)
    assert len(PROGRAMS) == 5


def test_one_round_shows_each_message_and_loads_no_torch():
    path = ROOT / "examples" / "one_round.py"
    assert len(path.read_text().splitlines()) <= 40
    code = f"import runpy, sys; runpy.run_path({str(path)!r}, run_name='__main__'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *messages, modules = done.stdout.splitlines()
    assert len(messages) == 14
    assert all(line.endswith(" bytes") for line in messages)
    for name in (
        "public key",
        "identity",
        "list of clients, digest of the total",
        "answer",
        "encrypted total",
    ):
        assert sum(f" {name} " in line for line in messages) == 1, name
    for name in ("request for enrolment", "grant", "encrypted update"):
        assert sum(f" {name} " in line for line in messages) == 3, name
    assert not {"torch", "shieldfl.lab.simulation", "shieldfl.lab.audit", "shieldfl.methods"} & {
        *modules.split()
    }


def test_a_regression_in_ones_own_loop(capsys):
    assert program("own_loop").main() < 0.5
    assert capsys.readouterr().out.count("mean squared error") == 20


def test_a_gru_on_text(capsys):
    result = program("text_gru").main()
    assert result.figure("full-he", "accuracy").mean > 0.9
    assert abs(result.difference("full-he", "fedavg", "accuracy").mean) < 0.05
    assert "sentences (1,000 train / 300 test)" in capsys.readouterr().out


def test_adapters_of_a_transformer(capsys):
    assert program("lora").main() > 0.85
    assert "1,346 of 9,666 parameters are sent" in capsys.readouterr().out


def test_layers_encrypted_by_name(capsys):
    module = program("half_by_name")
    mean = module.main()
    states = [module.make_model(seed).state_dict() for seed in range(module.CLIENTS)]
    for name, value in mean.items():
        plain = torch.stack([state[name].double() for state in states]).mean(dim=0)
        np.testing.assert_allclose(value.double(), plain, atol=2**-20)
    shown = capsys.readouterr().out
    assert "encoder.0.weight               640 of   640 encrypted" in shown
    module.make_model(0).load_state_dict(mean)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_says_how_it_is_run(name):
    assert f"`python {name}`" in (FOLDER / name).read_text().partition('"""\n\n')[0]
