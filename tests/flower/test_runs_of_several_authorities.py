"""Runs whose server asks two served authorities, and whose nodes pin both."""

from __future__ import annotations

import pytest

from authority_service.served import KEYS, made_folder, served
from flower.test_served_runs import ALL, Deployment, cheap_passphrases, deployed
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError

__all__ = ["cheap_passphrases", "deployed"]


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
