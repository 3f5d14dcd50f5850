"""What makes clients and aggregators holds no secret of anybody else, and cannot import what does."""

from __future__ import annotations

import ast
import functools
import gc
import pickle
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import shieldfl
import shieldfl._core as _core
from methods.method_conformance import SteppedRun, run_of
from methods.variants import every_variant, labelled, opened_by_aggregator, opened_by_clients, variants
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.key_authority import KeyAuthority, SumKeyAuthority
from shieldfl.authority.round_keys import RoundSigner
from shieldfl.authority.total_opener import ClientKeys
from shieldfl.encryption import kahe
from shieldfl.methods.registry import BUILT_IN
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.training_client import TrainingClient

WEIGHTS = (10_007, 10_009, 10_037, 10_061)
SECRETS = (
    AuthoritySteps,
    TrainingClient,
    KeyAuthority,
    RoundSigner,
    AuthoritySecrets,
    AuthorityStore,
    SumKeyAuthority,
    ClientKeys,
    kahe.ClientKey,
    Ed25519PrivateKey,
    MLKEM768PrivateKey,
    X25519PrivateKey,
    _core.CkksDecryptor,
    _core.PaillierDecryptor,
    _core.ClientKey,
)
PACKAGE = Path(shieldfl.__file__).parent
# What holds secrets, or opens what was encrypted.
HOLDERS = (
    "shieldfl.authority.key_authority",
    "shieldfl.authority.round_keys",
    "shieldfl.rounds.authorities",
    "shieldfl.authority.authority_secrets",
    "shieldfl.authority.authority_store",
    "shieldfl.encryption.opening",
)


SET_UP = {("shieldfl.rounds.method", "Method", name) for name in ("_made_round_keys", "_bound_authority")}
"""What makes secrets, and so may import what holds them: functions by module and class."""


def reachable(root: object) -> list[object]:
    """Every object that can be got at from this one, by whatever holds it, but not by modules and classes."""
    found: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in found or isinstance(one, (type, types.ModuleType, types.FrameType)):
            continue
        found[id(one)] = one
        if isinstance(one, types.FunctionType):
            # Not its globals: they are its module's.
            waiting += [one.__closure__, one.__defaults__, one.__kwdefaults__, one.__dict__]
        elif isinstance(one, np.ndarray):
            waiting += [one.base, *(one.ravel().tolist() if one.dtype == object else [])]
        elif isinstance(one, types.GeneratorType):
            waiting.append(one.gi_frame.f_locals)
        else:
            waiting += gc.get_referents(one)
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(one, name) for name in slots if hasattr(one, name)]
            waiting += vars(one).values() if hasattr(one, "__dict__") else []
    return list(found.values())


def count_of(one: object, values: np.ndarray) -> int:
    """Say how many of these values a number or an array of numbers is or has."""
    is_number = isinstance(one, (int, float, np.number)) and not isinstance(one, bool)
    is_array = isinstance(one, np.ndarray) and one.dtype.kind in "iuf"
    return int(np.count_nonzero(np.isin(one, values))) if is_number or is_array else 0


def own_keys(role: object) -> list[object]:
    """What a client that enrols shares with the key authority, and so has itself."""
    if getattr(role, "_own_keys", None) is None:
        return []
    keys = list(role._own_keys._keys.values())
    return [role._own_keys, *keys, *(core for key in keys for core in key._cores)]


def bytes_of_keys(client: object) -> list[bytes]:
    """The secrets in a client's own keys."""
    keys = getattr(client, "_own_keys", None)
    return [] if keys is None else [keys.enrolment._grant_key, *(secret for _, secret in keys._held.values())]


def secrets_in(role: object, run: SteppedRun, own_weight: int | None) -> list[str]:
    """Name what a role holds that it must not."""
    found = []
    others = np.array(sorted(set(WEIGHTS) - {own_weight, max(WEIGHTS)}))
    weights = np.concatenate((others, others / max(WEIGHTS)))
    trained = [one.update.parameters for one in run.clients if one is not role]
    # What was not trained is the global model's, and everybody's.
    updates = np.concatenate(trained)[~np.isin(np.concatenate(trained), run.initial.parameters)]
    models = np.concatenate((run.initial.parameters, run.parameters))
    is_client_of_secret = own_weight is not None and run.method.needs_shared_secret
    own = own_keys(role)
    shared = [secret for one in run.clients if one is not role for secret in bytes_of_keys(one)]
    for one in reachable(role):
        if one is not role and isinstance(one, SECRETS) and not any(one is key for key in own):
            found.append(type(one).__name__)
        if isinstance(one, (bytes, bytearray)) and any(secret in one for secret in shared):
            found.append("client's key")
        if own_weight is not None and count_of(one, weights):
            found.append("weight")
        # Chance alone makes two random float32 equal now and then.
        if own_weight is not None and count_of(one, updates) > 3:
            found.append("update")
        if isinstance(one, (bytes, bytearray)) and run.shared_secret in one and not is_client_of_secret:
            found.append("shared secret")
        if own_weight is None and run.authority is not None and count_of(one, models) > 3:
            found.append("model")
    return found


@every_variant
def test_clients_and_aggregator_reach_no_secret_of_others(variant):
    run = SteppedRun(variant, weights=WEIGHTS)
    run.run_round()
    for index, client in enumerate(run.clients):
        assert secrets_in(client, run, WEIGHTS[index]) == []
    assert secrets_in(run.aggregator, run, None) == []


@pytest.mark.parametrize("opened_by", [opened_by_clients, opened_by_aggregator])
def test_who_opens_sums_has_no_part_of_a_key_authority(opened_by):
    run = SteppedRun(opened_by([labelled("full-he")])[0])
    run.run_round()
    for role in (run.clients[0], run.aggregator):
        names = {type(one).__name__ for one in reachable(role)}
        assert {name for name in names if "Authority" in name} <= {"AuthorityIdentity", "AuthorityGroup"}
        assert not any(isinstance(one, RoundSigner) for one in reachable(role))


def test_the_walk_knows_a_client_s_own_keys_and_no_other_s():
    """They are the only secrets that it may hold, and no secret of the authority's is among them."""
    run = run_of("selective-shield/encrypted", weights=WEIGHTS)
    client, other = run.clients[:2]
    found = [
        one for one in reachable(client) if isinstance(one, (ClientKeys, kahe.ClientKey, _core.ClientKey))
    ]
    assert {id(one) for one in found} == {id(one) for one in own_keys(client)}
    assert len(found) == 1 + 2 * len(client.context.keys.parameters)
    assert set(bytes_of_keys(client)).isdisjoint(bytes_of_keys(other))
    run.run_round()
    owner, (mlkem, x25519) = run.authority.keys._owner, AuthoritySecrets()._enrolment
    for planted, name in (
        (other._own_keys, "ClientKeys"),
        (other._own_keys.key("update"), "ClientKey"),
        (other._own_keys.key("update")._cores[0], "ClientKey"),
        (other._own_keys._held, "client's key"),
        (b"more" + other._own_keys.enrolment._grant_key, "client's key"),
        (owner, "AuthoritySecrets"),
        (run.authority.keys._store, "AuthorityStore"),
        (run.authority.keys._authorities, "SumKeyAuthority"),
        (mlkem, "PrivateKey"),
        (x25519, "PrivateKey"),
    ):
        for role, weight in ((client, WEIGHTS[0]), (run.aggregator, None)):
            assert secrets_in(role, run, weight) == []
            role._planted = planted
            assert any(name in one for one in secrets_in(role, run, weight)), name
            del role._planted


@pytest.mark.parametrize("label", ["full-he/ckks", "selective-shield/encrypted"])
def test_a_planted_secret_is_found(label):
    run = run_of(label, weights=WEIGHTS)
    run.run_round()
    keys = next(one for one in reachable(run.authority) if isinstance(one, RoundSigner))
    signer = type(keys).__name__
    client, aggregator, other = run.clients[0], run.aggregator, run.clients[1]
    for planted, name in (
        (run.authority, "AuthoritySteps"),
        (lambda: keys, signer),
        (functools.partial(print, keys), signer),
        (types.MappingProxyType({"key": keys}), signer),
        ([keys].append, signer),
        ((one for one in [keys]), signer),
        (np.array([keys, None], dtype=object), signer),
        ({"key": [keys._signing_key]}, "PrivateKey"),
        (other.step, "Client"),
        (other.update.parameters[5:], "update"),
        (np.array(WEIGHTS), "weight"),
        (WEIGHTS[1] / max(WEIGHTS), "weight"),
        (bytearray(run.shared_secret) + b"more", "shared secret"),
    ):
        assert secrets_in(client, run, WEIGHTS[0]) == []
        client._planted = planted
        assert any(name.removesuffix("Steps") in one for one in secrets_in(client, run, WEIGHTS[0])), name
        del client._planted
    for model in (run.initial, run.parameters[:10].reshape(2, 5).copy()):
        aggregator._planted = model
        assert set(secrets_in(aggregator, run, None)) == {"model"}


def module_imports(path: Path, module: str) -> set[str]:
    """The modules and names that a module imports, also in functions, but where secrets are made or types checked."""
    found = set()
    tree = ast.parse(path.read_text("utf-8"))
    waiting: list[ast.AST] = [tree]
    exempt = {
        one
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
        for one in kind.body
        if isinstance(one, ast.FunctionDef) and (module, kind.name, one.name) in SET_UP
    }
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.dump(one.test):
            continue
        if one in exempt:
            continue
        if isinstance(one, ast.ImportFrom):
            assert one.level == 0, f"{path} imports by a relative name, which is not followed"
            found |= {one.module, *(f"{one.module}.{alias.name}" for alias in one.names)}
        elif isinstance(one, ast.Import):
            found |= {alias.name for alias in one.names}
        waiting += ast.iter_child_nodes(one)
    return {name for name in found if name.startswith("shieldfl.")}


def test_what_makes_clients_and_aggregators_imports_nothing_that_holds_a_secret():
    files = {
        ".".join(("shieldfl", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in PACKAGE.rglob("*.py")
    }
    named = set()
    waiting = {"shieldfl.methods.registry", *(place.partition(":")[0] for place in BUILT_IN.values())}
    while waiting:
        name = waiting.pop()
        if name not in named:
            named.add(name)
            waiting |= module_imports(files[name], name) if name in files else set()
    assert "shieldfl.methods.selective_shield.method" in named
    assert "shieldfl.methods.masked_average.method" in named
    assert not [name for name in named if name in HOLDERS or name.endswith(".KeyAuthority")]
    # The search would find them: where keys are made, they are imported.
    assert set(HOLDERS[:1]) < module_imports(
        files["shieldfl.authority.round_keys"], "shieldfl.authority.round_keys"
    )


def test_an_import_within_a_function_is_found(tmp_path):
    source = tmp_path / "client.py"
    module, kind, name = "shieldfl.rounds.method", "Method", "_made_round_keys"
    for where, outer, function, exempt in (
        (module, kind, name, True),
        (module, kind, "step", False),
        (module, "Other", name, False),
        ("shieldfl.methods.masked_average.method", kind, name, False),
    ):
        source.write_text(
            f"class {outer}:\n    def {function}(self):\n        from shieldfl.authority.round_keys import RoundKeys\n"
        )
        assert (module_imports(source, where) == set()) == exempt
    source.write_text(f"def {name}():\n    from shieldfl.authority.round_keys import RoundKeys\n")
    assert "shieldfl.authority.round_keys" in module_imports(source, module)


IN_A_FRESH_PROCESS = """
import pickle, sys
holders, setups, planted = pickle.load(sys.stdin.buffer)
import numpy as np
from shieldfl.rounds.plan import GlobalModel
from shieldfl.rounds.plan import PublicSetup
from shieldfl.methods.registry import method_of
def held():
    return (name for name in sys.modules if name in holders)
for data, digest, *initial in setups:
    model = GlobalModel(*initial)
    setup = PublicSetup.from_bytes(data, digest)
    method = method_of(setup)
    weights = [1] * setup.plan.clients
    method.client_steps(setup, 0, 1, model, shared_secret=bytes(range(32)))
    method.aggregator_steps(setup, weights, initial=None if method.purposes else model)
    print(setup.method, *held())
__import__(planted)
print(*held())
"""


def test_a_process_of_clients_and_aggregators_has_no_module_that_holds_secrets():
    runs = [SteppedRun(one) for one in {one.method: one for one in variants()}.values()]
    setups = [
        (run.setup.to_bytes(), run.setup.digest, run.initial.parameters, run.initial.buffers) for run in runs
    ]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS],
        input=pickle.dumps((HOLDERS, setups, HOLDERS[1])),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    *lines, planted = done.stdout.decode().splitlines()
    assert set(lines) == set(BUILT_IN)
    assert HOLDERS[1] in planted
