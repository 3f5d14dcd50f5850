"""Any process of a deployment is killed in the middle of a round: no wrong model, and nothing that was kept is lost."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest

from flower.deployment import Deployment
from flower.test_deployed_run import vectors

pytestmark = pytest.mark.slow

SECONDS = 240
SEEDS = iter(range(100, 200))
SLOW_TRAINING = """
    import time

    time.sleep(2.0)
"""


class Killing:
    """A run whose output is looked at while it comes.

    Parameters
    ----------
    deployed : that it runs on.
    config : settings of the app.
    """

    def __init__(self, deployed, config):
        self._process = deployed.begin(config)
        self._lines = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.append(line)

    @property
    def output(self):
        return "".join(self._lines)

    def wait_for(self, pattern):
        """Wait until a line of the output matches."""
        until = time.monotonic() + SECONDS
        while not re.search(pattern, self.output):
            assert time.monotonic() < until, f"{pattern!r} does not come:\n{self.output}"
            assert self._process.poll() is None, f"the run has ended without {pattern!r}:\n{self.output}"
            time.sleep(0.05)

    def status(self):
        """Wait for the end, and return the run's status."""
        self._process.wait(SECONDS)
        self._reader.join()
        self._process.stdout.close()
        told = re.findall(r"^run \d+: ([\w:]+)", self.output, re.MULTILINE)
        # A SuperLink that is gone says nothing of the run, which has failed then.
        status: str = told[0] if told else "finished:failed"
        assert (self._process.returncode == 0) == (status == "finished:completed"), self.output
        return status


def settings():
    """Return an app's settings, with a seed that no other run has: nodes send no update twice."""
    return f"rounds=4 fraction-evaluate=0.0 shieldfl.min-clients=2 timeout=90.0 seed={next(SEEDS)}"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """Nodes whose training takes two seconds."""
    methods = 'shieldfl-methods="full-he,mask-crypt" shieldfl-openers="aggregator"'
    with Deployment(tmp_path_factory.mktemp("killed"), node_config=methods) as one:
        app = one.app.folder / one.app.name / "client_app.py"
        text = app.read_text()
        slow = text.replace("    seed = int(", SLOW_TRAINING + "    seed = int(", 1)
        assert slow != text
        app.write_text(slow)
        one.up()
        yield one


@pytest.fixture(autouse=True)
def all_up(deployed):
    """Every test begins with all parts, started again where one was killed; a SuperNode takes its heartbeat's time."""
    yield
    deployed.up()


def check_models(deployed):
    """All nodes have written the same model."""
    models = vectors(deployed.models())
    assert len(models) == 3
    assert all(np.array_equal(one, models[0]) for one in models)
    assert np.isfinite(models[0]).all()


@pytest.mark.parametrize(("method", "phase"), [("full-he", "update"), ("mask-crypt", "ranking")])
def test_a_node_that_is_killed_in_any_phase_is_missed_and_comes_back(deployed, method, phase):
    run = Killing(deployed, f'{settings()} shieldfl.method="{method}"')
    run.wait_for(rf"round 2: 3 clients are asked for phase '{phase}'")
    deployed.kill("node-2")
    run.wait_for(r"client 2 left round 2: ")
    deployed.start("node-2")
    assert run.status() == "finished:completed"
    assert "round 2: 2 of 3 clients" in run.output
    assert re.search(r"round [34]: 3 of 3 clients", run.output)
    check_models(deployed)


def test_an_authority_that_is_killed_is_waited_for(deployed):
    run = Killing(deployed, settings())
    run.wait_for("round 2: 3 clients")
    deployed.kill("authority")
    time.sleep(6.0)  # longer than training: the round's end needs it
    deployed.start("authority")
    assert run.status() == "finished:completed"
    assert all(f"round {number}: 3 of 3 clients" in run.output for number in (1, 2, 3, 4))
    check_models(deployed)


def test_a_server_that_is_killed_fails_its_run_which_is_gone_on_with(deployed, tmp_path):
    config = f'{settings()} shieldfl.checkpoint="{tmp_path / "run"}"'
    run = Killing(deployed, config)
    run.wait_for(r"round 3: 3 clients are asked for phase 'update'")
    deployed.kill("superlink")
    time.sleep(2.0)
    deployed.start("superlink")
    assert run.status().startswith("finished:failed")
    again = deployed.run(f"{config} shieldfl.resume=true")
    assert again.status == "finished:completed"
    assert "the run resumes after round 2" in again.output
    assert "round 3: 3 of 3 clients" in again.output
    check_models(deployed)
