"""Nodes outside of a simulation: their own stores, an authority that is served, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from authority.conftest import cheap_passphrases  # noqa: F401
from authority_service.served import made_folder, served, with_clinics
from flower.loopback_grid import FIRST_NODE
from flower.vector_app import ALL, VectorRun
from privacy.seeded_draws import noise_from_seeds
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority.private_file import write_private_file
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, UnreachableError
from shieldfl.flower.records import ASK, MESSAGE, message_in, packed
from shieldfl.privacy.accountant import epsilon_of


@pytest.fixture(autouse=True)
def deployed(monkeypatch):
    monkeypatch.setattr("shieldfl.flower.mod.is_simulated", lambda: False)


@pytest.fixture
def strict(tmp_path):
    return with_clinics(made_folder(tmp_path / "authority"))


class Deployment:
    """Nodes with keys and stores of their own, and a served authority.

    Parameters
    ----------
    one : the served authority.
    path : where nodes keep theirs.
    """

    def __init__(self, one, path, **settings):
        self.one, self.path = one, path
        tls = {
            "authority": one.url,
            "authority_key": one.service.public_key.hex(),
            "authority_tls": str(one.folder.tls),
        }
        self.run = VectorRun(node_config=self.config_of, min_clients=3, **tls, **settings)

    def config_of(self, number):
        path = self.path / f"client-{number}.pem"
        if not path.exists():
            self.path.mkdir(exist_ok=True)
            write_private_file(path, _pem(number))
        return {
            "shieldfl-store": str(self.path / f"node-{number}"),
            "shieldfl-authority-key": self.one.service.public_key.hex(),
            "shieldfl-client-key": str(path),
            "shieldfl-client-name": f"clinic-{number}",
            "shieldfl-methods": "full-he,dict-pfl",
            "shieldfl-openers": "clients,aggregator",
        }

    def check_model(self):
        """Run it: all nodes have one model, which is the mean that a single process gives where that is known."""
        self.run.start()
        if self.run.config["shieldfl.method"] == "full-he":
            self.run.check({1: ALL, 2: ALL, 3: ALL})
        models = [arrays["weight"] for arrays in self.run.evaluated.values()]
        assert len(models) == len(ALL)
        assert all(np.array_equal(one, models[0]) for one in models)
        assert models[0].any()


def _pem(number):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize("opener", ["", "aggregator"])
def test_sums_that_a_served_authority_answers_have_the_noise_that_is_charged(strict, tmp_path, opener):
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes", opener=opener)
        run = deployment.run
        run.config |= {f"shieldfl.settings.{name}": 1.0 for name in ("sum_noise_multiplier", "sum_clip_norm")}
        with noise_from_seeds():
            run.start()
    spent, charge = run.strategy.privacy_spent, run.strategy.session.method.noise.charge
    assert spent.epsilon == pytest.approx(epsilon_of({charge: 3}, spent.delta))
    exact = run.expected({1: ALL, 2: ALL, 3: ALL})["weight"]
    models = [arrays["weight"] for arrays in run.evaluated.values()]
    assert len(models) == len(ALL)
    assert all(np.array_equal(model, models[0]) for model in models)
    # Four shares for two honest clients, three times.
    assert np.std(models[0] - exact) == pytest.approx(np.sqrt(3 * 4 / 2) / 4, rel=0.3)


def test_an_authority_that_is_away_ends_the_run_and_loses_nothing(strict, tmp_path, monkeypatch):
    monkeypatch.setattr("shieldfl.authority_service.authority_client.time.sleep", lambda seconds: None)
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes", checkpoint=str(tmp_path / "run"))
    run = deployment.run
    with pytest.raises(UnreachableError, match="does not answer"):
        run.start()
    assert not (tmp_path / "run" / "checkpoint").exists()
    with served(strict) as again:
        run.config["shieldfl.authority"] = again.url
        run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


def test_a_policy_of_the_authority_outranks_the_app(strict, tmp_path):
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes")
        deployment.run.config["shieldfl.min-clients"] = 2
        with pytest.raises(PolicyError, match="this authority opens none of fewer than 3"):
            deployment.run.start()


REFUSALS = [
    ({"authority-key": "11" * 32}, "was not signed by the key authority that is pinned here"),
    ({"authority-key": None}, "set shieldfl-authority-key"),
    ({"store": None}, "set shieldfl-store"),
    ({"client-name": None}, "set shieldfl-client-name"),
    ({"client-key": "/nowhere/client.pem"}, "cannot be read"),
    ({"methods": "fedml-he,dict-pfl"}, "takes part in dict-pfl, fedml-he, and not in full-he"),
    ({"typo": "x"}, "the node's configuration has the unknown key 'shieldfl-typo'"),
]


def test_a_node_that_is_set_up_otherwise_refuses(strict, tmp_path):
    with served(strict) as one:
        for number, (changes, words) in enumerate(REFUSALS):
            run = Deployment(one, tmp_path / f"nodes-{number}").run
            for node, config in run.grid.configs.items():
                changed = config | {f"shieldfl-{name}": value for name, value in changes.items()}
                run.grid.configs[node] = {name: one for name, one in changed.items() if one is not None}
            with pytest.raises(PolicyError) as refused:
                run.start()
            assert words in str(refused.value)
            assert run.trained == []


def test_a_client_that_the_operator_has_not_enrolled_is_refused_by_the_authority(strict, tmp_path):
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes")
        for number, config in enumerate(deployment.run.grid.configs.values()):
            config["shieldfl-client-name"] = f"clinic-{(number + 1) % 4}"
        with pytest.raises(PolicyError, match="was not signed by clinic-"):
            deployment.run.start()


def test_a_server_that_asks_without_protection_gets_nothing(strict, tmp_path):
    with served(strict) as one:
        run = Deployment(one, tmp_path / "nodes").run

        def make_app():
            app = run.app()
            app.train("other")(lambda message, context: pytest.fail("it has trained"))
            return app

        run.grid.make_app = make_app
        content = RecordDict({"arrays": run.initial(), "config": ConfigRecord({"server-round": 1})})
        for kind in ("train", "evaluate", "train.other"):
            (reply,) = run.grid.send_and_receive([Message(content, FIRST_NODE, kind)])
            assert "asks for an unprotected update" in reply.error.reason
        assert run.trained == []


LIES = [
    lambda asked, message: asked.__setitem__("participants", 3),
    lambda asked, message: asked.__setitem__("round", asked["round"] - 1),
    lambda asked, message: asked.__setitem__("round", asked["round"] + 1),
    lambda asked, message: asked.__setitem__("phase", "votes"),
    lambda asked, message: message.content.pop(MESSAGE),
    lambda asked, message: asked.__setitem__("version", 9),
    lambda asked, message: asked.__setitem__("session", bytes(16)),
    lambda asked, message: asked.__setitem__("kind", "tell"),
]


def test_a_server_that_lies_to_a_client_loses_it_for_the_round(strict, tmp_path):
    """By another lie in each round but the first; what it evaluates is the round's model."""
    with served(strict) as one:
        run, lies = Deployment(one, tmp_path / "nodes", rounds=1 + len(LIES)).run, iter(LIES)

        def hook(node, message):
            asked = message.content[ASK]
            lied = message.metadata.group_id not in ("set-up", "round 1") and asked["kind"] == "train"
            if lied and node == FIRST_NODE + 2:
                next(lies)(asked, message)

        run.grid.before = hook
        run.start()
        assert next(lies, None) is None
        run.check({1: ALL} | {2 + number: [0, 1, 3] for number in range(len(LIES))})


def test_a_server_that_changes_what_the_authority_signed_gets_no_update(strict, tmp_path):
    with served(strict) as one:
        deployment, tried = Deployment(one, tmp_path / "nodes"), []
        run = deployment.run

        def hook(node, message):
            if message.metadata.group_id != "round 2" or node != FIRST_NODE:
                return
            first = message_in(message.content)
            for name in first:
                part = bytearray(first[name])
                part[len(part) // 2] ^= 4
                altered = Message(message.content.copy(), node, "train", group_id="altered")
                altered.content[MESSAGE] = packed(RoleMessage({**first, name: bytes(part)}))
                altered.metadata.__dict__["_message_id"] = name
                reply = run.grid._delivered(altered)
                tried.append((name, reply.has_error() and reply.error.reason))

        run.grid.before = hook
        run.start()
        assert len(tried) > 3
        assert all(reason for _, reason in tried), tried
        run.check({1: ALL, 2: ALL, 3: ALL})


@pytest.fixture
def folders(tmp_path):
    return [with_clinics(made_folder(tmp_path / name)) for name in ("first", "second")]


class JointDeployment(Deployment):
    """Nodes that pin authorities, in an order of their own, and a server that asks both."""

    def __init__(self, services, path, pinned=None, **settings):
        self.pinned = [one.service.public_key.hex() for one in pinned or reversed(services)]
        super().__init__(services[0], path, **settings)
        self.ask(services)

    def ask(self, services):
        self.run.config |= {
            "shieldfl.authority": ", ".join(one.url for one in services),
            "shieldfl.authority-key": ",".join(one.service.public_key.hex() for one in services),
            "shieldfl.authority-tls": ",".join(str(one.folder.tls) for one in services),
        }

    def config_of(self, number):
        return super().config_of(number) | {"shieldfl-authority-key": ",".join(self.pinned)}


@pytest.mark.every_run("dict-pfl-", "full-he-aggregator")
@pytest.mark.parametrize(("method", "opener"), [("full-he", ""), ("full-he", "aggregator"), ("dict-pfl", "")])
@pytest.mark.parametrize("kind", [Deployment, JointDeployment])
def test_a_deployed_run_comes_to_the_model_of_an_embedded_one(folders, tmp_path, kind, method, opener):
    with served(folders[0]) as first, served(folders[1]) as second:
        services = first if kind is Deployment else [first, second]
        kind(services, tmp_path / "nodes", method=method, opener=opener).check_model()


def test_a_run_is_of_those_authorities_that_nodes_pin(folders, tmp_path):
    with served(folders[0]) as first, served(folders[1]) as second:
        services, keys = [first, second], [first.service.public_key.hex()]
        deployment = JointDeployment(services, tmp_path / "nodes")
        for alone in services:
            deployment.ask([alone])
            with pytest.raises((PolicyError, KeyMismatchError), match="not by all of them"):
                deployment.run.start()
        for name, value, words in (
            ("key", keys[0], "in the same order"),
            ("key", ",".join(keys * 2), "different key authorities"),
            ("tls", str(first.folder.tls), "in the same order"),
        ):
            deployment.ask(services)
            deployment.run.config[f"shieldfl.authority-{name}"] = value
            with pytest.raises(ParameterError, match=words):
                deployment.run.start()
        other = JointDeployment(services, tmp_path / "others", pinned=[first])
        with pytest.raises((PolicyError, KeyMismatchError), match="also by others"):
            other.run.start()
