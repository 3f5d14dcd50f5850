"""What a whole run takes on the wire, beside the same app without protection."""

from __future__ import annotations

import re

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAdam, FedAvg

from flower.vector_app import ALL, ONE, VectorRun, as_arrays
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.flower.records import HELD, MESSAGE, message_in, packed

CLIENTS = 10
EQUAL = dict.fromkeys(range(CLIENTS), 50)
SKEWED = EQUAL | {0: 100, **dict.fromkeys(range(1, CLIENTS), 1)}


class CountedRun(VectorRun):
    """Of a model with more values than messages have names, and of clients with these samples."""

    def __init__(self, samples=None, *, rounds=3, strategy=FedAvg, fractions=(1.0, 1.0), **settings):
        own = strategy(**ONE, fraction_train=fractions[0], fraction_evaluate=fractions[1])
        counted = None if samples is None else lambda context: samples[context.node_config["partition-id"]]
        super().__init__(
            clients=CLIENTS, rounds=rounds, strategy=own, samples=counted, weighting="samples", **settings
        )

    @staticmethod
    def initial():
        return ArrayRecord(
            as_arrays({"weight": np.zeros((62, 1000), np.float32), "bias": np.zeros(6, np.float32)})
        )

    def moved(self):
        """Run; return the bytes up and down that a counter at the server sees."""
        self.start() if self.mods else self.own.start(
            self.grid, self.initial(), num_rounds=self.rounds, timeout=0.3
        )
        return np.array([self.grid.bytes_up, self.grid.bytes_down])


@pytest.mark.parametrize(("samples", "most_up"), [(EQUAL, 1.06), (SKEWED, 1.12)], ids=["equal", "1:100"])
def test_a_run_whose_sums_the_server_opens_takes_about_what_the_plain_one_does(samples, most_up):
    plain, protected = CountedRun(samples, mods=[]), CountedRun(samples, opener="aggregator")
    up, down = protected.moved() / plain.moved()
    assert 0.9 < up <= most_up
    assert 0.5 < down <= 1.06


@pytest.mark.parametrize("strategy", [FedAvg, FedAdam])
@pytest.mark.parametrize("fractions", [(1.0, 0.0), (0.5, 0.5)], ids=["no evaluation", "halves"])
def test_one_model_goes_down_in_a_round(strategy, fractions):
    run = CountedRun(EQUAL, opener="aggregator", strategy=strategy, fractions=fractions, rounds=4)
    _, down = run.moved()
    models = down / (4 * 62_006)
    assert models < 1.05 * (CLIENTS + (3 * 10 if fractions[1] == 0.0 else 4 * 5 + 3 * 5))


@pytest.mark.parametrize("opener", ["aggregator", "clients", "authority"])
def test_the_log_says_what_flower_s_messages_have_taken(opener, caplog):
    run = CountedRun(EQUAL, opener=opener, rounds=2)
    up, down = run.moved()
    logged = re.findall(r"shieldfl: ([\w -]+):.* ([\d,]+) bytes up, ([\d,]+) bytes down", caplog.text)
    counted = {where: [int(one.replace(",", "")) for one in numbers] for where, *numbers in logged}
    parts = ["set-up", "round 1", "evaluation 1", "round 2", "evaluation 2", "the end of the run"]
    assert list(counted) == [*parts, "the whole run"]
    assert counted["the whole run"] == np.sum([counted[part] for part in parts], axis=0).tolist()
    # Beside contents, messages have names and numbers of Flower's own.
    messages = 7 * CLIENTS
    assert 0 < up - counted["the whole run"][0] < 250 * messages
    assert 0 < down - counted["the whole run"][1] < 250 * messages


def holding(digest_of):
    """Return what has a message stand for another model than it does."""

    def change(message):
        held = message_in(message.content)
        if held is not None and HELD in held:
            message.content[MESSAGE] = packed(RoleMessage({**held, HELD: digest_of(bytes(held[HELD]))}))

    return change


@pytest.mark.parametrize("opener", ["aggregator", "authority"])
def test_a_node_that_lacks_the_model_it_is_said_to_have_leaves_one_round(opener):
    """As one whose store was lost: the server then sends all again."""
    run = VectorRun(opener=opener)
    said = "WireFormatError: this node does not have the model that the message stands for: send it whole"
    assert run.altered(holding(lambda digest: bytes(32)), group="round 2") == [(1, said)]
    run.check({1: ALL, 2: [0, 2, 3], 3: ALL})


def test_a_server_cannot_have_a_client_train_from_an_older_model_that_it_has():
    """The first model's digest, in place of the newest one's: what the authority has signed is another."""
    run, older = VectorRun(opener="aggregator"), []
    failed = run.altered(holding(lambda digest: older.append(digest) or older[0]), "train")
    assert len(failed) >= 1
    assert all(one.startswith("KeyMismatchError") for _, one in failed)
    assert (1, 2) not in run.trained
