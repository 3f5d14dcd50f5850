"""``shieldfl flower``: apps that it writes, and what a node's operator does."""

from __future__ import annotations

import ast
import dataclasses
import io
import tomllib
import zipfile

import pytest

pytest.importorskip("typer")
pytest.importorskip("flwr")
from flwr.cli.build import build_fab_from_disk
from flwr.common.config import flatten_dict, validate_config

from cli.command_line import invoke
from shieldfl.errors import PolicyError
from shieldfl.flower.mod import DiskMemory
from shieldfl.flower.settings import FederationSettings, NodeSettings
from shieldfl.methods.registry import BUILT_IN, MethodSettings, make_method, named_method
from shieldfl.rounds.plan import FederationPlan
from shieldfl.settings import settings_of

# Of what Flower makes patterns with.
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("flower", "new", "two-words", "--method", "selective-shield", "--clients", "5")
    assert result.exit_code == 0, result.output
    return tmp_path / "two-words"


def config_of(folder):
    whole = tomllib.loads((folder / "pyproject.toml").read_text())
    return flatten_dict(whole["tool"]["flwr"]["app"]["config"])


def test_flower_takes_what_is_written_and_bundles_nothing_of_a_deployment(made):
    config = tomllib.loads((made / "pyproject.toml").read_text())
    assert config["project"]["name"] == "two-words"
    assert validate_config(config, check_module=False) == (True, [], [])
    for path in (one for one in made.rglob("*") if one.is_file()):
        text = path.read_text()
        assert "APP_" not in text, path
        if path.suffix == ".py":
            ast.parse(text)
    (made / "deploy" / "state" / "authority").mkdir(parents=True)
    (made / "deploy" / "state" / "authority" / "policy.toml").write_text("secret = 1\n")
    bundle = build_fab_from_disk(made)
    assert len(bundle) < 10_000
    names = zipfile.ZipFile(io.BytesIO(bundle)).namelist()
    modules = {f"two_words/{name}.py" for name in ("__init__", "task", "client_app", "server_app")}
    assert set(names) == modules | {"pyproject.toml", ".info/CONTENT"}


def test_every_setting_can_be_changed_and_what_is_written_is_taken(made):
    config = config_of(made)
    keys = {f"shieldfl.{key}" for key in settings_of(FederationSettings)}
    entries = [named_method(name).settings for name in BUILT_IN]
    of_methods = {key for entry in entries if entry is not None for key in settings_of(type(entry))}
    keys |= {f"shieldfl.settings.{key}" for key in of_methods}
    assert {key for key in config if key.startswith("shieldfl.")} == keys
    settings, own = FederationSettings.of(config)
    assert own == MethodSettings()
    expected = FederationSettings(clients=5, method="selective-shield")
    assert dataclasses.asdict(settings) == dataclasses.asdict(expected)


@pytest.mark.parametrize("method", ["full-he", "selective-shield", "sense-crypt", "fedavg"])
def test_nodes_of_its_deployment_take_part_in_the_apps_own_method(method, tmp_path, monkeypatch):
    """They refused it: what does not encrypt everything is for a node's operator to allow."""
    monkeypatch.chdir(tmp_path)
    assert invoke("flower", "new", "own", "--method", method).exit_code == 0
    script = ast.parse((tmp_path / "own" / "deploy" / "loopback.py").read_text())
    (text,) = [
        one.value.value
        for one in script.body
        if isinstance(one, ast.Assign) and one.targets[0].id == "NODE_CONFIG"
    ]
    config = tomllib.loads(text.replace(" ", "\n"))
    settings = NodeSettings.of({**config, "shieldfl-store": "store"})
    plan = FederationPlan(
        clients=3, rounds=1, min_clients=3, server_learning_rate=1.0, parameters=10, layer_offsets=(0, 10)
    )
    for opener in (None, *["aggregator"][: make_method(method, MethodSettings(), plan).aggregator_can_open]):
        settings._check_allowed(
            make_method(method, MethodSettings(), dataclasses.replace(plan, opener=opener))
        )
    own = tomllib.loads((tmp_path / "own" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert own["shieldfl"]["settings"]["encryption"] == ("kahe" if method == "sense-crypt" else "")
    assert f"method `{method}`" in (tmp_path / "own" / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["Name"], "'Name' is no name of an app: it has at most 32 lower-case letters"),
        (["a" * 33], "is no name of an app"),
        (["class"], "is no name of an app"),
        (["torch"], "there is a Python package 'torch' already: choose another name"),
        (["mine", "--method", "no-method"], "no-method"),
    ],
)
def test_refuses(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("flower", "new", *words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


def test_does_not_write_over_what_is_there(made):
    (made / "README.md").write_text("mine")
    result = invoke("flower", "new", "two-words")
    assert result.exit_code == 1
    assert result.stderr == "shieldfl: there is two-words already: choose another name, or another folder\n"
    assert (made / "README.md").read_text() == "mine"


def test_a_restored_store_goes_on_with_no_run_and_takes_new_ones(tmp_path):
    session, other = bytes(range(16)), bytes(16)
    memory = DiskMemory(tmp_path / "node")
    before, _ = memory.read(session)
    written = memory.keep(session, {"steps": b"1"}, since=before, round_number=1, update=bytes(32))
    assert invoke("flower", "restored", tmp_path / "node").exit_code == 0
    again = DiskMemory(tmp_path / "node", written)
    with pytest.raises(PolicyError):
        again.keep(session, {"steps": b"2"}, since=written, round_number=2, update=bytes([2]) * 32)
    since, kept = again.read(session)
    assert since > written
    assert kept == {}
    since, _ = again.read(other)
    again.keep(other, {"steps": b"1"}, since=since, round_number=1, update=bytes([1]) * 32)
    assert again.read(other)[1] == {"steps": b"1"}


def test_a_folder_that_is_no_store_is_named(tmp_path):
    result = invoke("flower", "restored", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"shieldfl: {tmp_path} is no store of a node")
    assert not list(tmp_path.iterdir())
