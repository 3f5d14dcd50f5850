"""Nodes outside of a simulation: their own stores, an authority that is served, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from authority_service.served import KEYS, made_folder, served
from flower.loopback_grid import FIRST_NODE
from flower.vector_app import ALL, VectorRun
from privacy.seeded_draws import noise_from_seeds
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority.private_file import write_private_file
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, UnreachableError
from shieldfl.flower.wire import ASK, MESSAGE, message_in, packed
from shieldfl.privacy.accountant import epsilon_of


@pytest.fixture(scope="module", autouse=True)
def cheap_passphrases():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shieldfl.authority.private_file._SCRYPT_COST", 2**4)
        yield


@pytest.fixture(autouse=True)
def deployed(monkeypatch):
    monkeypatch.setattr("shieldfl.flower.mod.is_simulated", lambda: False)


@pytest.fixture
def strict(tmp_path):
    made = made_folder(tmp_path / "authority")
    for index, key in enumerate(KEYS):
        made.registry.register(f"clinic-{index}", key.public_key)
    return made


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


@pytest.mark.every_run("dict-pfl-", "full-he-aggregator")
@pytest.mark.parametrize(("method", "opener"), [("full-he", ""), ("full-he", "aggregator"), ("dict-pfl", "")])
def test_a_deployed_run_comes_to_the_model_of_an_embedded_one(strict, tmp_path, method, opener):
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes", method=method, opener=opener)
        deployment.check_model()


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
        with pytest.raises(PolicyError, match="this authority none of fewer than 3"):
            deployment.run.start()


def refusals_of(deployment, **changes):
    """Return why nodes refuse to be set up with these changes of their configuration."""
    run = deployment.run
    for config in run.grid.configs.values():
        for name, value in changes.items():
            key = f"shieldfl-{name.replace('_', '-')}"
            config.pop(key, None)
            if value is not None:
                config[key] = value
    with pytest.raises(PolicyError) as refused:
        run.start()
    assert run.trained == []
    return str(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"authority_key": "11" * 32}, "was not signed by the key authority that is pinned here"),
        ({"authority_key": None}, "set shieldfl-authority-key"),
        ({"store": None}, "set shieldfl-store"),
        ({"client_name": None}, "set shieldfl-client-name"),
        ({"client_key": "/nowhere/client.pem"}, "cannot be read"),
        ({"methods": "fedml-he,dict-pfl"}, "takes part in dict-pfl, fedml-he, and not in full-he"),
        ({"typo": "x"}, "there is no setting 'shieldfl-typo'"),
    ],
)
def test_a_node_that_is_set_up_otherwise_refuses(strict, tmp_path, changes, words):
    with served(strict) as one:
        assert words in refusals_of(Deployment(one, tmp_path / "nodes"), **changes)


def test_a_client_that_the_operator_has_not_enrolled_is_refused_by_the_authority(strict, tmp_path):
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes")
        for number, config in enumerate(deployment.run.grid.configs.values()):
            config["shieldfl-client-name"] = f"clinic-{(number + 1) % 4}"
        with pytest.raises(PolicyError, match="was not signed by clinic-"):
            deployment.run.start()


@pytest.mark.parametrize("kind", ["train", "evaluate", "train.other"])
def test_a_server_that_asks_without_protection_gets_nothing(strict, tmp_path, kind):
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes")
        run = deployment.run

        def make_app():
            app = run.app()
            app.train("other")(lambda message, context: pytest.fail("it has trained"))
            return app

        run.grid.make_app = make_app
        content = RecordDict({"arrays": run.initial(), "config": ConfigRecord({"server-round": 1})})
        (reply,) = run.grid.send_and_receive([Message(content, FIRST_NODE, kind)])
        assert "asks for one as it is" in reply.error.reason
        assert run.trained == []


LIES = {
    "participants": lambda asked, message: asked.__setitem__("participants", 3),
    "an earlier round": lambda asked, message: asked.__setitem__("round", 1),
    "a later round": lambda asked, message: asked.__setitem__("round", 3),
    "another phase": lambda asked, message: asked.__setitem__("phase", "votes"),
    "no message": lambda asked, message: message.content.pop(MESSAGE),
    "another version": lambda asked, message: asked.__setitem__("version", 9),
    "another session": lambda asked, message: asked.__setitem__("session", bytes(16)),
    "an unknown kind": lambda asked, message: asked.__setitem__("kind", "tell"),
}


@pytest.mark.every_run("an earlier round", "no message", "an unknown kind", "participants")
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_to_a_client_loses_it_for_the_round(strict, tmp_path, lie):
    with served(strict) as one:
        deployment, lied = Deployment(one, tmp_path / "nodes"), []
        run = deployment.run

        def hook(node, message):
            if message.metadata.group_id == "round 2" and node == FIRST_NODE + 2 and not lied:
                lied.append(lie)
                LIES[lie](message.content[ASK], message)

        run.grid.before = hook
        run.start()
        assert lied
        run.check({1: ALL, 2: [0, 1, 3], 3: ALL})


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


def test_another_key_than_the_apps_begins_no_session(strict, tmp_path):
    with served(strict) as one:
        deployment = Deployment(one, tmp_path / "nodes")
        deployment.run.config["shieldfl.authority-key"] = "22" * 32
        with pytest.raises(KeyMismatchError, match="not signed by the key authority"):
            deployment.run.start()


@pytest.fixture
def folders(tmp_path):
    made = [made_folder(tmp_path / name) for name in ("first", "second")]
    for folder in made:
        for index, key in enumerate(KEYS):
            folder.registry.register(f"clinic-{index}", key.public_key)
    return made


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
def test_a_run_of_two_authorities_comes_to_the_model_of_one(folders, tmp_path, method, opener):
    with served(folders[0]) as first, served(folders[1]) as second:
        deployment = JointDeployment([first, second], tmp_path / "nodes", method=method, opener=opener)
        deployment.check_model()


def test_a_run_goes_on_with_both_authorities_after_both_were_started_again(folders, tmp_path):
    with served(folders[0]) as first, served(folders[1]) as second:
        deployment = JointDeployment([first, second], tmp_path / "nodes", checkpoint=str(tmp_path / "run"))
        run = deployment.run

        def end(node, message):
            if message.metadata.group_id == "round 2":
                raise KeyboardInterrupt

        run.grid.before = end
        with pytest.raises(KeyboardInterrupt):
            run.start()
    run.grid.before = None
    run.config["shieldfl.resume"] = True
    with served(folders[0]) as first, served(folders[1]) as second:
        deployment.ask([first, second])
        run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


@pytest.mark.parametrize("alone", [0, 1])
def test_nodes_that_pin_two_authorities_take_part_in_no_run_of_one(folders, tmp_path, alone):
    with served(folders[0]) as first, served(folders[1]) as second:
        services = [first, second]
        deployment = JointDeployment(services, tmp_path / "nodes")
        deployment.ask([services[alone]])
        with pytest.raises((PolicyError, KeyMismatchError), match="not by all of them"):
            deployment.run.start()


def test_a_node_that_pins_one_authority_takes_part_in_no_run_of_two(folders, tmp_path):
    with served(folders[0]) as first, served(folders[1]) as second:
        deployment = JointDeployment([first, second], tmp_path / "nodes", pinned=[first])
        with pytest.raises((PolicyError, KeyMismatchError), match="no others"):
            deployment.run.start()


def test_a_client_that_one_authority_does_not_know_takes_no_part(folders, tmp_path):
    folders[1].registry.revoke("clinic-2")
    with served(folders[0]) as first, served(folders[1]) as second:
        deployment = JointDeployment([first, second], tmp_path / "nodes")
        with pytest.raises(PolicyError, match=f"{second.url}.*clinic-2"):
            deployment.run.start()


def test_settings_of_several_authorities_are_as_many_and_different(folders, tmp_path):
    with served(folders[0]) as first, served(folders[1]) as second:
        deployment = JointDeployment([first, second], tmp_path / "nodes")
        for name, value, words in (
            ("key", first.service.public_key.hex(), "in one order"),
            ("key", ",".join([first.service.public_key.hex()] * 2), "different key authorities"),
            ("tls", str(first.folder.tls), "in one order"),
        ):
            deployment.ask([first, second])
            deployment.run.config[f"shieldfl.authority-{name}"] = value
            with pytest.raises(ParameterError, match=words):
                deployment.run.start()
