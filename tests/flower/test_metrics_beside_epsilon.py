"""What an app returns beside the model does not leave a client beside a finite epsilon."""

from __future__ import annotations

import math

import pytest
from flwr.app import Error, Message

from flower.test_messages_that_fail import ALL, loses
from flower.test_told_privacy import SIGMA, epsilon, noised_run
from flower.vector_app import moves
from shieldfl.errors import ShieldError
from shieldfl.flower.mod import ShieldMod
from shieldfl.flower.wire import ASK
from shieldfl.privacy.events import ClearUpload


@pytest.mark.parametrize("method", ["dp-fedavg", "ddp-fedavg"])
def test_no_metric_leaves_a_client_of_a_run_with_an_epsilon(method, caplog):
    """An app's loss was readable, without noise, beside a finite figure."""
    run = noised_run(method)
    told = metrics_of_replies(run)
    run.start()
    assert told == []
    assert len(run.evaluated) == len(ALL)
    assert math.isfinite(run.strategy.privacy_spent.epsilon)
    assert "not those of the others" not in caplog.text


def test_metrics_that_leave_on_request_leave_no_epsilon():
    run = noised_run(mods=[ShieldMod(clear_metrics=True)])
    told = metrics_of_replies(run)
    run.start()
    assert {name for record in told for name in record} == {"num-examples", "loss", "mean"}
    spent = run.strategy.privacy_spent
    assert (spent.epsilon, spent.of_noise) == (math.inf, pytest.approx(epsilon(3)))
    assert "(metrics)" in spent.reason
    # Of each round once, whether by training or by evaluation, beside the three updates.
    assert run.strategy.session._told.taken() == dict.fromkeys(ALL, 6)


def test_metrics_of_an_evaluation_alone_leave_no_epsilon():
    run = noised_run(mods=[ShieldMod(clear_metrics=True)])
    run.grid.before = loses(2, "train", 1)
    run.start()
    # It did not train in the first round, and has evaluated what came of it.
    assert {ClearUpload(number, 2, "metrics") for number in (1, 2, 3)} <= set(
        run.strategy.session._account.book.all
    )


def test_the_text_of_an_apps_error_stays_where_an_epsilon_holds(caplog):
    def fails(message, context, call_next):
        if context.node_config["partition-id"] == 1:
            return Message(Error(2, "the loss was 0.731"), reply_to=message)
        if context.node_config["partition-id"] == 2:
            raise ValueError("the loss was 0.731")
        return call_next(message, context)

    for method, stays in (("dp-fedavg", True), ("full-he", False)):
        caplog.clear()
        run = noised_run(method, (("noise_multiplier", SIGMA),) if stays else (), mods=[ShieldMod(), fails])
        reasons = []
        run.grid.after = lambda node, reply, into=reasons: (
            into.append(reply.error.reason) if reply.has_error() else None
        )
        run.start()
        assert reasons
        assert all(("0.731" in one) != stays for one in reasons)
        assert "0.731" in caplog.text


def metrics_of_replies(run):
    """Return the list that the metrics of all replies come into."""
    told = []

    def note(node, reply):
        if not reply.has_error():
            told.extend(dict(one) for one in reply.content.metric_records.values())

    run.grid.after = note
    return told


def test_a_server_that_names_a_metric_as_the_number_of_samples_learns_nothing_of_it():
    """Its value came back in the error of a client that counts by another number."""
    run = noised_run()

    def asks(node, message):
        if message.has_content() and message.content.get(ASK, {}).get("kind") == "train":
            message.content[ASK]["weighted-by"] = "loss"

    reasons = []
    run.grid.before = asks
    run.grid.after = lambda node, reply: reasons.append(reply.error.reason) if reply.has_error() else None
    run.start()
    assert reasons == []
    assert math.isfinite(run.strategy.privacy_spent.epsilon)


def test_the_text_of_what_training_gave_stays_where_an_epsilon_holds():
    run = noised_run()
    run.train = lambda client, number, shape: (
        moves(client, number, shape) * (math.nan if client == 1 else 1.0)
    )
    reasons = []
    run.grid.after = lambda node, reply: reasons.append(reply.error.reason) if reply.has_error() else None
    run.start()
    assert set(reasons) == {"RangeError: the client failed: the node's log says why"}
    # That it was refused tells of the data.
    assert run.strategy.privacy_spent.epsilon == math.inf


def test_the_text_of_an_app_that_cannot_say_its_number_of_samples_stays():
    def samples(context):
        raise ValueError("patient 17 has no label")

    run = noised_run(samples=samples)
    reasons = []
    run.grid.after = lambda node, reply: reasons.append(reply.error.reason) if reply.has_error() else None
    with pytest.raises(ShieldError):
        run.start()
    assert reasons
    assert not [one for one in reasons if "patient" in one]
