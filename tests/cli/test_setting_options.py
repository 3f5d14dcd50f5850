"""Options say what an option may be, by its own name, and in one way for each kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import pytest

pytest.importorskip("typer")
import typer
from typer.testing import CliRunner

from shieldfl.cli.app import app
from shieldfl.encryption.registry import KeyBits, calibrations
from shieldfl.lab.simulation import DATASETS
from shieldfl.learning import MODELS

KEY_SIZES = get_args(KeyBits)
KEY_BITS = "|".join(map(str, KEY_SIZES))
# In capitals what it is, where it is not one of a few words.
KNOWN = {
    "INTEGER",
    "FLOAT",
    "TEXT",
    "NAME",
    "FILE",
    "FILE.png",
    "DIR",
    "FLEET.toml",
    "FRAME",
    "METHOD.NAME=VALUE",
    "MODULE:NAME",
}


def commands() -> dict[str, typer.core.TyperCommand]:
    top = dict(typer.main.get_command(app).commands)
    profile = top.pop("profile").commands
    return top | {f"profile {name}": one for name, one in profile.items()}


def parameters() -> Iterator[tuple[str, str, typer.core.TyperOption]]:
    for name, command in commands().items():
        for one in command.params:
            if not getattr(one, "is_flag", False):
                yield name, one.opts[-1], one


def metavar_of(command: str, option: str) -> str:
    (found,) = (one for name, opt, one in parameters() if (name, opt) == (command, option))
    return found.metavar


def test_every_option_says_in_one_of_few_ways_what_it_takes() -> None:
    found = {(command, option): one.metavar for command, option, one in parameters()}
    assert len(found) > 30
    for place, metavar in found.items():
        kinds = re.sub(r",?\.\.\.$", "", metavar or "").split("|")
        odd = [kind for kind in kinds if kind not in KNOWN and not re.fullmatch(r"[a-z0-9-]+", kind)]
        assert not odd, (place, metavar)


@pytest.mark.parametrize(
    ("command", "option", "metavar"),
    [
        ("run", "--method", "NAME,..."),
        ("run", "--dataset", "|".join(DATASETS)),
        ("run", "--model", "|".join(MODELS)),
        ("run", "--threshold", "FLOAT|FLOAT,..."),
        ("run", "--alpha", "FLOAT|iid"),
        ("run", "--data-dir", "DIR"),
        ("run", "--synthetic-data", "FILE"),
        ("bench", "--key-bits", f"{KEY_BITS},..."),
        ("bench", "--scheme", "ckks|kahe|pads|paillier"),
        ("bench", "--threads", "INTEGER,..."),
        ("profile calibrate", "--scheme", "NAME,..."),
        ("profile calibrate", "--model", "|".join(MODELS)),
        ("profile calibrate", "--key-bits", KEY_BITS),
        ("profile simulate", "--method", "NAME,..."),
    ],
)
def test_the_same_kind_is_written_the_same_way(command: str, option: str, metavar: str) -> None:
    assert metavar_of(command, option) == metavar


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "profile calibrate --scheme rsa",
            f"--scheme must be a list that is not empty of which each is one of {', '.join(calibrations())}, not 'rsa'",
        ),
        (
            "profile calibrate --threads 0",
            "--threads must be a list that is not empty of which each is a whole number, at least 1 and at most 1024, "
            "not '0'",
        ),
        ("profile calibrate --model magic", f"--model must be one of {', '.join(MODELS)}, not 'magic'"),
        (
            "profile calibrate --key-bits 1",
            f"--key-bits must be one of {', '.join(map(str, KEY_SIZES))}, not '1'",
        ),
        ("run --model magic", f"--model must be one of {', '.join(MODELS)}, not 'magic'"),
        ("run --rho 2", "--consensus (rho) must be a number, above 0 and at most 1, not '2'"),
        (
            "run --noise-multiplier 1 --target-epsilon 1",
            "give --noise-multiplier or --target-epsilon, not both",
        ),
        ("run --clients 2", "--min-clients is 3, above the number of clients (2)"),
        ("run --hide-personalised", "--hide-personalised needs encrypted negotiation"),
    ],
)
def test_what_is_refused_is_named_as_the_command_line_names_it(arguments: str, said: str) -> None:
    result = CliRunner().invoke(app, arguments.split(), env={"COLUMNS": "400"})
    assert result.exit_code == 2, result.output
    assert said in result.stderr


def test_no_list_of_threads_is_empty() -> None:
    result = CliRunner().invoke(app, ["profile", "calibrate", "--threads", ""])
    assert result.exit_code == 2
    assert "--threads must be a list that is not empty" in result.stderr
