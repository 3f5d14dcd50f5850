"""The page about Flower: its tables, commands and messages are the code's."""

from __future__ import annotations

import re
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from flwr.serverapp import strategy
from flwr.superlink.routers.control.router import router as control
from flwr.superlink.routers.fleet.router import router as fleet

from documentation_pages import ROOT, doc, prose_of
from flower.deployment import new_app
from flower.test_mods_beside import CHANGING, MODS
from setting_tables import of_flower, table_of
from shieldfl.errors import ParameterError
from shieldfl.flower.strategy import ShieldStrategy

PAGE = "docs/how-to/flower.md"


def test_tables_of_settings_are_the_code_s():
    for kind in of_flower():
        assert table_of(kind) in doc(PAGE), "run python tests/setting_tables.py"


def test_what_the_tutorial_says_to_type_is_there(tmp_path):
    """What `up`, `run` and `down` do is seen by tests that deploy."""
    first = re.search(r"^```bash\n(.*?)^```$", doc(PAGE), re.MULTILINE | re.DOTALL)[1].splitlines()
    assert first[0] == "shieldfl flower new digits-app"
    assert [line.split()[2] for line in first[1:]] == ["up", "run", "down"]
    whole = tomllib.loads((new_app(tmp_path, 3).folder / "pyproject.toml").read_text())
    for key in re.findall(r"[' ]([\w.-]+)=", " ".join(re.findall(r"(?:run|-c) '([^']*)'", doc(PAGE)))):
        place = whole["tool"]["flwr"]["app"]["config"]
        for part in key.split("."):
            place = place[part]


def messages():
    """Return all strings of the package, those that are cut over lines in one piece."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "python" / "shieldfl").rglob("*.py")))
    return re.sub(r"[\"']\n\s*f?[\"']", "", text)


def test_messages_are_those_that_are_printed():
    table = doc("docs/how-to/flower-deployment.md").partition("## When something fails")[2]
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
