"""The page about Flower: its tables, commands and messages are the code's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from flwr.serverapp import strategy
from flwr.superlink.routers.control.router import router as control
from flwr.superlink.routers.fleet.router import router as fleet

from documentation_pages import ROOT, doc, prose_of
from flower.deployment import BIN
from flower.test_mods_beside import CHANGING, MODS
from setting_tables import of_flower, table_of
from shieldfl.errors import ParameterError
from shieldfl.flower.strategy import ShieldStrategy

PAGE = "docs/flower.md"
SHELL = {"text": True, "env": os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}}


def blocks():
    return re.findall(r"^```bash\n(.*?)^```$", doc(PAGE), re.MULTILINE | re.DOTALL)


def commands():
    """Return the words of each command, also of those in the text."""
    lines = "".join(blocks()).replace("\\\n", " ") + "\n".join(
        re.findall(r"`((?:shieldfl|flwr) [^`]+)`", doc(PAGE))
    )
    return [line.split() for line in re.sub(r"'[^']*'", "TEXT", lines).splitlines() if line.strip()]


def test_tables_of_settings_are_the_code_s():
    for kind in of_flower():
        assert table_of(kind) in doc(PAGE), "run python tests/setting_tables.py"


def test_what_the_tutorial_says_to_type_is_there(tmp_path):
    """What the script does once it is called so is seen by tests that deploy."""
    new, *script = blocks()[0].splitlines()
    subprocess.run(["bash", "-euc", new], cwd=tmp_path, check=True, capture_output=True, **SHELL)
    assert [line.split()[2] for line in script] == ["up", "run", "down"]
    for line in script:
        asked = f"{line} --help"
        done = subprocess.run(
            ["bash", "-euc", asked], cwd=tmp_path, capture_output=True, check=False, **SHELL
        )
        assert done.returncode == 0, done.stderr
    config = tomllib.loads((tmp_path / "digits-app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"][
        "config"
    ]
    for key in re.findall(r"[' ]([\w.-]+)=", " ".join(re.findall(r"(?:run|-c) '([^']*)'", doc(PAGE)))):
        place = config
        for part in key.split("."):
            place = place[part]


@pytest.mark.slow  # a second for each of the programs to start
@pytest.mark.parametrize(
    "program", ["flower-superlink", "flower-supernode", "flwr run", "flwr supernode register"]
)
def test_options_of_flower_s_programs_exist(program):
    words = program.split()
    named = {
        word for line in commands() if line[: len(words)] == words for word in line if word.startswith("-")
    }
    assert named
    environment = SHELL["env"] | {"FLWR_TELEMETRY_ENABLED": "0", "COLUMNS": "200"}
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, env=environment, check=True)
    assert named <= set(re.findall(r"(?<!\w)--?[a-z][a-z-]*", done.stdout))


def test_commands_of_shieldfl_exist():
    from typer.main import get_command

    from shieldfl.cli.app import app

    named = [line for line in commands() if line[0] == "shieldfl"]
    assert {tuple(line[1:3]) for line in named} >= {
        ("flower", "new"),
        ("flower", "restored"),
        ("authority", "init"),
    }
    for _, group, name, *words in (line for line in named if line[1] != "run"):
        known = get_command(app).commands[group].commands[name].params
        assert {word for word in words if word.startswith("--")} <= {
            one for each in known for one in each.opts
        }


def messages():
    """Return all strings of the package, those that are cut over lines in one piece."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "python" / "shieldfl").rglob("*.py")))
    return re.sub(r"[\"']\n\s*f?[\"']", "", text)


def test_messages_are_those_that_are_printed():
    table = doc(PAGE).partition("## When something fails")[2]
    texts = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(texts) > 10
    printed = messages()
    assert [one for one in texts if one not in printed] == [
        "Key 'shieldfl....' is not present in the main dictionary"
    ]
    assert (
        "is not present in the main dictionary"
        in Path(sys.modules["flwr.common.config"].__file__).read_text()
    )


def test_paths_of_flower_s_interfaces_are_those_that_a_proxy_is_to_tell_apart():
    page = prose_of(PAGE)
    assert f"begins with `{control.prefix}`, and those of nodes with `{fleet.prefix}`" in page


def compatibility():
    """Return, by the names in the table's first column, what its second says."""
    section = doc(PAGE).partition("## Strategies, wrappers and mods")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (yes|no|one line) \|", section, re.MULTILINE)
    assert len(rows) > 10
    return {name: works for names, works in rows for name in re.findall(r"`(\w+)`", names)}


_ARGUMENTS = {
    "QFedAvg": (0.1,),
    "DifferentialPrivacyClientSideFixedClipping": (strategy.FedAvg(), 1.0, 1.0, 100),
    "DifferentialPrivacyServerSideFixedClipping": (strategy.FedAvg(), 1.0, 1.0, 100),
    "DifferentialPrivacyClientSideAdaptiveClipping": (strategy.FedAvg(), 1.0, 100),
    "DifferentialPrivacyServerSideAdaptiveClipping": (strategy.FedAvg(), 1.0, 100),
}


@pytest.mark.parametrize("name", sorted({*strategy.__all__} - {"Result", "Strategy"}))
def test_the_table_says_which_of_flowers_strategies_are_taken(name):
    own = getattr(strategy, name)(*_ARGUMENTS.get(name, ()))
    for takes_mean in (False, True):
        with nullcontext() if compatibility()[name] == "yes" else pytest.raises(ParameterError, match=name):
            ShieldStrategy(own, {"shieldfl.clients": 3}, takes_mean=takes_mean)


def test_the_table_says_which_of_flowers_mods_are_of_training_alone():
    """What they do before and after ShieldMod is seen by test_mods_beside.py."""
    table = compatibility()
    assert {name: table[name] for name in MODS} == {
        name: "one line" if name in CHANGING else "yes" for name in MODS
    }
