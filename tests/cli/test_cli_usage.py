"""What every command has in common: how options are written, what is wrong usage, and what is imported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("opacus")
pytest.importorskip("typer")
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli.command_line import FLEET, invoke, run_without, said
from cli.terminal_run import run_on_terminal
from documentation_pages import doc
from shieldfl.build_info import how_to_install
from shieldfl.cli.app import app
from shieldfl.cli.console import ResultConsole
from shieldfl.encryption.registry import KeyBits
from shieldfl.lab.simulation import DATASETS
from shieldfl.learning import MODELS
from shieldfl.methods import registry
from shieldfl.methods.registry import BUILT_IN, GROUP, named_method
from warm_python import WarmPython

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
    for group in ("profile", "authority", "flower"):
        top |= {f"{group} {name}": one for name, one in top.pop(group).commands.items()}
    return top


def parameters() -> Iterator[tuple[str, str, typer.core.TyperOption]]:
    for name, command in commands().items():
        if not name.startswith(("authority", "flower")):
            for one in command.params:
                if not getattr(one, "is_flag", False):
                    yield name, one.opts[-1], one


# ---- to begin with


def test_without_arguments_it_says_what_to_begin_with():
    result = invoke()
    named = [line.strip(" │") for line in (result.stdout + result.stderr).splitlines()]
    for command in ("shieldfl doctor ", "shieldfl run --rounds 2 "):
        assert any(line.startswith(command) for line in named)
    for command in ("run", "audit", "doctor", "inspect", "bench", "profile", "authority", "flower"):
        assert any(line.split()[:1] == [command] for line in named)


@pytest.mark.parametrize(
    ("typed", "meant"), [(["doctr"], "doctor"), (["profil"], "profile"), (["authority", "rotat"], "rotate")]
)
def test_a_command_that_is_mistyped_is_guessed(typed: list[str], meant: str):
    result = invoke(*typed)
    assert result.exit_code == 2
    assert f"'{meant}'" in result.stderr


def test_help_has_a_line_for_each_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Those of other packages among them, also one that cannot be loaded, which says why."""
    metadata = tmp_path / "other_methods-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-methods\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\ngone = no_such_package:Gone\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_offers", registry._offers.__wrapped__)
    invalidate_caches()
    monkeypatch.setenv("COLUMNS", "80")
    result = invoke("run", "--help")
    assert result.exit_code == 0
    lines = [line.strip("│ ") for line in result.stdout.splitlines()]
    assert max(map(len, result.stdout.splitlines())) <= 80
    listed = {name: f"{one.purpose}: {one.sends}" for name in BUILT_IN for one in [named_method(name)]}
    for name, line in (listed | {"gone": "the method 'gone', no_such_package:Gone of other-methods"}).items():
        (found,) = (one for one in lines if one.split()[:1] == [name])
        shown = found.removeprefix(name).strip().removesuffix("…").strip()
        assert shown, name
        assert shown.startswith(line[: len(shown)])


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_what_the_command_prints(tmp_path: Path):
    command = tmp_path / "shieldfl"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shieldfl "$@"\n')
    command.chmod(0o755)
    # Otherwise the shell is told by the processes above this one.
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = f"""
eval "$('{command}' --show-completion bash)" || exit 1
complete -p shieldfl > /dev/null || exit 2
COMP_WORDS=(shieldfl authority r) COMP_CWORD=2
_shieldfl_completion '{command}'
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == {"revoke", "rotate"}


# ---- options


def test_every_option_says_in_one_of_few_ways_what_it_takes() -> None:
    found = {(command, option): one.metavar for command, option, one in parameters()}
    assert len(found) > 30
    for place, metavar in found.items():
        kinds = re.sub(r",?\.\.\.$", "", metavar or "").split("|")
        odd = [kind for kind in kinds if kind not in KNOWN and not re.fullmatch(r"[a-z0-9-]+", kind)]
        assert not odd, (place, metavar)
    for command, option, metavar in (
        ("run", "--method", "NAME,..."),
        ("run", "--dataset", "|".join(DATASETS)),
        ("run", "--threshold", "FLOAT|FLOAT,..."),
        ("run", "--alpha", "FLOAT|iid"),
        ("run", "--data-dir", "DIR"),
        ("bench", "--key-bits", f"{KEY_BITS},..."),
        ("bench", "--scheme", "ckks|kahe|pads|paillier"),
        ("bench", "--threads", "INTEGER,..."),
        ("profile calibrate", "--scheme", "NAME,..."),
        ("profile calibrate", "--model", "|".join(MODELS)),
        ("profile calibrate", "--key-bits", KEY_BITS),
        ("profile simulate", "--method", "NAME,..."),
        ("profile simulate", "--scheme", "NAME,..."),
    ):
        assert found[command, option] == metavar


@pytest.mark.parametrize(
    ("page", "group"),
    [
        ("README", "run"),
        ("docs/reference/methods/selective-shield", "run"),
        ("docs/explanation/benchmarks", "bench"),
        ("docs/how-to/fleet", "profile"),
    ],
)
def test_options_in_the_documentation_exist(page: str, group: str) -> None:
    known = {
        name
        for command, one in commands().items()
        if command.startswith(group)
        for parameter in one.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    text = doc(f"{page}.md")
    if group != "profile":  # of whose command alone a page speaks
        typed = re.findall(rf"shieldfl {group}(?:[^\n]*\\\n)*[^\n#]*", text)
        text = "\n".join(typed + (re.findall(r"`(--[^`\n]+)`", text) if group == "run" else []))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named
    assert named <= known | {"--help"}


PAPER = "profile simulate FLEET --paper-costs"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("inspect", "Missing argument"),
        ("inspect no-such-file", "no-such-file' does not exist"),
        ("inspect .", "'.' is a directory"),
        ("inspect - --json no-such-folder/report.json", "no folder no-such-folder"),
        ("bench --no-such-option", "No such option"),
        ("bench --share 1,2", "--share"),
        ("bench --scheme bfv", "--scheme must be one of ckks, kahe, pads, paillier"),
        ("bench --scheme paillier --values 1000000", "--values: it is not for --scheme paillier"),
        ("bench --scheme ckks --key-bits 2048", "--key-bits: it is for --scheme paillier"),
        ("profile simulate no-such-file.toml --paper-costs", "does not exist"),
        ("profile simulate FLEET", "give either --profile FILE"),
        ("profile simulate FLEET --profile PROFILE --scheme rsa", "'rsa' is not in the profile"),
        (f"{PAPER} --scheme ckks", "--scheme is for --profile"),
        (f"{PAPER} --report FLEET", "is a file"),
        ("profile plan FLEET --paper-costs", "--target-seconds"),
        ("profile calibrate --threads 0", "at least 1 and at most 1024, not '0'"),
        (
            "profile calibrate --key-bits 1",
            f"--key-bits must be one of {', '.join(map(str, KEY_SIZES))}, not '1'",
        ),
        ("profile calibrate --model linear --sample-shape ,", "--sample-shape"),
        ("run --rho 2", "--consensus (rho) must be a number, above 0 and at most 1, not '2'"),
        (
            "run --noise-multiplier 1 --target-epsilon 1",
            "give --noise-multiplier or --target-epsilon, not both",
        ),
        ("run --clients 2", "--min-clients is 3, above the number of clients (2)"),
        ("run --resume", "nothing to resume from: name the run's folder"),
        ("run --method ,", "unknown method ','"),
        ("run --method fedavg,magic", "fedavg, selective-shield"),
        ("run --audit --seeds 0,1", "a run of one seed"),
        ("run --audit --task nowhere:task", "not on a task"),
        ("run --set sense-crypt.encryption", "METHOD.NAME=VALUE"),
        ("run --set sense-crypt.encrypt=ckks", "no setting"),
        ("run --set sensecrypt.encryption=ckks", "choose from"),
        (
            "run --set sense-crypt.key_bits=many",
            "sense-crypt.key_bits must be one of 2048, 3072, 4096, not 'many'",
        ),
        ("run --set dict-pfl.rank=8", "dict-pfl does not run"),
        ("run --method full-he,dict-pfl --scheme paillier-dense", "dict-pfl.encryption must be one of"),
        ("run --method selective-shield --sum-noise 1", "has no noise on sums: who encrypts a position"),
        (
            "run --method full-he --sum-noise 1 --set full-he.sum_noise_multiplier=0",
            "has other noise by --set",
        ),
        ("audit --attack guessing", "unknown attack 'guessing'"),
        ("audit --party aunt", "there is no party 'aunt'"),
        ("audit --method fedmagic", "unknown method 'fedmagic'"),
        ("audit --clients 2", "no round can start"),
        ("audit --epsilon --attack dlg", "not with --epsilon"),
        ("audit --epsilon --report folder", "not with --epsilon"),
        ("audit --canaries 5", "goes with --epsilon"),
    ],
)
def test_what_is_refused_is_named_as_the_command_line_names_it(
    monkeypatch: pytest.MonkeyPatch, fleet: Path, profile: Path, arguments: str, words: str
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    places = {"FLEET": fleet, "PROFILE": profile}
    result = invoke(*(places.get(one, one) for one in arguments.split(" ")), data=b"")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert words in said(result.stderr)


# ---- output


@pytest.mark.parametrize(
    ("stated", "columns"), [("40", 40), ("80", 80), ("", 120), ("none", 120), ("1000", 1000)]
)
def test_a_wide_table_comes_in_parts_that_fit(capsys, monkeypatch, stated: str, columns: int):
    monkeypatch.setenv("COLUMNS", stated)
    heads = [f"column {number}" for number in range(30)]
    table = Table("key", box=SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in ("first", "second"):
        table.add_row(row, *(f"{row[0]}{number}" for number in range(30)))
    ResultConsole().print(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for number, head in enumerate(heads):
        assert {f"f{number}", f"s{number}"} <= set(words)
        assert any(head in line for line in lines)
    assert (sum("first" in line for line in lines) == 1) == (columns == 1000)


@pytest.mark.parametrize(("stated", "longest"), [("60", 60), ("", 999)])
def test_sentences_keep_to_columns_where_it_is_set(capsys, monkeypatch, stated: str, longest: int):
    monkeypatch.setenv("COLUMNS", stated)
    text = " ".join(["word"] * 200)
    ResultConsole().say(text)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= longest
    assert " ".join(out.split()) == text
    assert (out.count("\n") == 1) == (stated == "")


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)m")
TINY = "run --rounds 2 --clients 3 --local-epochs 1 --threads 1"


@pytest.mark.parametrize(
    ("arguments", "printed", "shown"),
    [
        (
            TINY,
            "accuracy, global model",
            r"selective-shield(.|\n)*2/2(.|\n)*accuracy \d\d\.\d\d %",
        ),
        (
            "bench --quick --share 1 --threads 1 --no-baselines",
            "10,000 values",
            "0/1(.|\n)*all values, 1 thread",
        ),
        ("profile calibrate --quick --scheme ckks --threads 1", "ckks", "1/2"),
    ],
)
def test_progress_is_on_the_terminal_and_the_piped_table_is_clean(
    warm_python: WarmPython, arguments: str, printed: str, shown: str
) -> None:
    out, err = run_on_terminal(arguments.split(), warm=warm_python)
    assert "\x1b" not in out
    assert printed in out
    assert re.search(shown, err)


@pytest.mark.parametrize("wish", [{}, {"NO_COLOR": "1"}])
def test_colours_are_on_a_terminal_where_they_are_wanted(
    warm_python: WarmPython, wish: dict[str, str]
) -> None:
    out, err = run_on_terminal(TINY.split(), warm=warm_python, stdout_is_terminal=True, **wish)
    assert "accuracy, global model" in out
    assert [bool(COLOUR.search(text)) for text in (out, err)] == [not wish] * 2


# ---- packages


@pytest.mark.parametrize(
    ("without", "arguments", "printed"),
    [
        ("torch opacus sklearn matplotlib jinja2", "profile simulate FLEET --paper-costs", "full-he"),
        ("torch sklearn opacus", "flower new own-app", "own-app"),
        (
            "tenseal torch sklearn opacus matplotlib",
            "bench --quick --share 1 --threads 1",
            "TenSEAL is not installed: pip install tenseal",
        ),
    ],
)
def test_what_a_command_can_do_without(tmp_path: Path, without: str, arguments: str, printed: str) -> None:
    (tmp_path / "FLEET").write_text(FLEET)
    done = run_without(without.split(), *arguments.split(), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert printed in done.stdout


@pytest.mark.parametrize(
    ("package", "arguments", "code"),
    [
        ("typer", "run --rounds 1", 2),
        ("torch", "run --rounds 1", 1),
        ("opacus", "run --rounds 1", 1),
        ("sklearn", "run --rounds 1", 1),
        ("jinja2", "run --rounds 100000 --report report", 1),
        ("jinja2", "profile simulate FLEET --paper-costs --report report", 1),
    ],
)
def test_what_is_missing_is_named_before_any_work(
    tmp_path: Path, package: str, arguments: str, code: int
) -> None:
    (tmp_path / "FLEET").write_text(FLEET)
    done = run_without([package], *arguments.split(), folder=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert f"package {package!r}: {how_to_install('lab')}" in done.stderr
    assert not (tmp_path / "report").exists()
