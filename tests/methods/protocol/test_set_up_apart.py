"""What makes clients and aggregators holds no secret of anybody else, and cannot import what does."""

from __future__ import annotations

import ast
import types
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import shieldfl
from methods.method_conformance import SteppedRun
from methods.variants import every_variant, variants
from shieldfl import _core
from shieldfl.methods.discovery import BUILT_IN
from shieldfl.methods.protocol.steps import AuthoritySteps, ClientSteps
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.round_keys import RoundKeys

WEIGHTS = (10_007, 10_009, 10_037, 10_061)
SECRETS = (
    AuthoritySteps,
    ClientSteps,
    KeyAuthority,
    RoundKeys,
    Ed25519PrivateKey,
    _core.CkksDecryptor,
    _core.PaillierDecryptor,
)
PACKAGE = Path(shieldfl.__file__).parent
# What holds secrets, or opens what was encrypted.
HOLDERS = ("shieldfl.roles.key_authority", "shieldfl.roles.round_keys", "shieldfl.roles.key_file")


def reachable(root: object) -> list[object]:
    """Every object that can be got at from this one, by attributes, items and closures, not by modules or classes."""
    found: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in found or isinstance(one, (type, types.ModuleType, types.FrameType)):
            continue
        found[id(one)] = one
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            waiting += one
        elif isinstance(one, types.FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
        elif isinstance(one, types.MethodType):
            waiting.append(one.__self__)
        slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
        waiting += [getattr(one, name) for name in slots if hasattr(one, name)]
        waiting += vars(one).values() if hasattr(one, "__dict__") else []
    return list(found.values())


def secrets_in(role: object, run: SteppedRun, own_weight: int | None) -> list[str]:
    """Name what a role holds that it must not."""
    found = []
    for one in reachable(role):
        if one is not role and isinstance(one, SECRETS):
            found.append(type(one).__name__)
        if (
            own_weight is not None
            and isinstance(one, int)
            and one in set(WEIGHTS) - {own_weight, max(WEIGHTS)}
        ):
            found.append("weight")
        is_client_of_secret = own_weight is not None and run.method.needs_shared_secret
        if isinstance(one, bytes) and one == run.shared_secret and not is_client_of_secret:
            found.append("shared secret")
        is_model = isinstance(one, np.ndarray) and np.array_equal(one, run.initial.parameters)
        if is_model and own_weight is None and run.authority is not None:
            found.append("model")
    return found


@every_variant
def test_clients_and_aggregator_reach_no_secret_of_others(variant):
    run = SteppedRun(variant, weights=WEIGHTS)
    run.run_round()
    for index, client in enumerate(run.clients):
        assert secrets_in(client, run, WEIGHTS[index]) == []
    assert secrets_in(run.aggregator, run, None) == []


@pytest.mark.parametrize("label", ["full-he", "selective-shield/encrypted", "sense-crypt/dense"])
def test_a_planted_secret_is_found(label):
    run = SteppedRun(next(one for one in variants() if one.label == label), weights=WEIGHTS)
    run.run_round()
    keys = next(one for one in reachable(run.authority) if isinstance(one, RoundKeys))
    client, aggregator = run.clients[0], run.aggregator
    for planted, name in (
        (run.authority, "AuthoritySteps"),
        (lambda: keys, "RoundKeys"),
        ({"key": [keys._signing_key]}, "PrivateKey"),
        (run.clients[1].step, "Client"),
        ((WEIGHTS[1],), "weight"),
        (run.shared_secret, "shared secret"),
    ):
        client._planted = planted
        assert any(name.removesuffix("Steps") in one for one in secrets_in(client, run, WEIGHTS[0])), name
    aggregator._planted = run.initial
    assert secrets_in(aggregator, run, None) == ["model"]


def module_imports(path: Path) -> set[str]:
    """The modules that a module imports when it is loaded: not in functions, nor for type checkers alone."""
    found = set()
    waiting: list[ast.stmt] = list(ast.parse(path.read_text("utf-8")).body)
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.dump(one.test):
            continue
        if isinstance(one, ast.ImportFrom) and one.module:
            found |= {one.module, *(f"{one.module}.{alias.name}" for alias in one.names)}
        elif isinstance(one, ast.Import):
            found |= {alias.name for alias in one.names}
        elif not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += [inner for inner in ast.iter_child_nodes(one) if isinstance(inner, ast.stmt)]
    return {name for name in found if name.startswith("shieldfl.")}


def test_what_makes_clients_and_aggregators_imports_nothing_that_holds_a_secret():
    files = {
        ".".join(("shieldfl", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in PACKAGE.rglob("*.py")
    }
    loaded = set()
    waiting = {"shieldfl.methods.registry", *(place.partition(":")[0] for place in BUILT_IN.values())}
    while waiting:
        name = waiting.pop()
        if name in files and name not in loaded and name != "shieldfl":
            loaded.add(name)
            waiting |= module_imports(files[name])
    assert "shieldfl.methods.selective_shield.client" in loaded
    assert "shieldfl.methods.masked_average.aggregator" in loaded
    assert not [name for name in loaded if name in HOLDERS or name.endswith("_authority")]
    # The search would find them: where keys are made, they are imported.
    assert set(HOLDERS[:1]) < module_imports(files["shieldfl.roles.round_keys"])
