"""What noise has cost a run over Flower: counted once, whatever is lost, cut off or told falsely, and never too low."""

from __future__ import annotations

import logging
import math

import msgspec
import numpy as np
import pytest
from flwr.app import Error, Message

from flower.vector_app import ALL, VectorRun, config_of, cut_off, loses, moves
from shieldfl.errors import PolicyError, ShieldError, WireFormatError
from shieldfl.flower.clients import ToldEvents
from shieldfl.flower.mod import ShieldMod, Telling
from shieldfl.flower.records import ASK
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import (
    ClearUpload,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    OpenedSum,
    SummedUploads,
)
from shieldfl.rounds.reports import Account, named

SIGMA, DELTA = 3.0, 1e-5
NOISE = Noise(SIGMA, "client")


def noised_run(method="dp-fedavg", settings=(("noise_multiplier", SIGMA),), **more):
    run = VectorRun(method=method, **more)
    run.config |= {f"shieldfl.settings.{name}": value for name, value in settings}
    return run


def epsilon(rounds):
    return epsilon_of({NOISE: rounds}, DELTA)


def test_a_run_with_noise_says_what_it_has_cost_and_for_whom(caplog):
    run = noised_run()
    with caplog.at_level(logging.INFO):
        run.start()
    spent = run.strategy.privacy_spent
    assert spent.epsilon == spent.of_noise == pytest.approx(epsilon(3))
    assert (spent.delta, spent.steps, spent.reason) == (DELTA, 3, None)
    # Together the four clients added twice the noise of one.
    assert spent.if_participants_true == pytest.approx(epsilon_of({Noise(2 * SIGMA, "client"): 3}, DELTA))
    (said,) = [text for text in caplog.messages if "ε" in text]
    assert f"ε = {epsilon(3):.3g} at δ = 1e-05, for a client" in said
    assert "against everybody else" in said


@pytest.mark.every_run("dict-pfl", "ddp-fedavg-settings0")
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ddp-fedavg", {"noise_multiplier": SIGMA}),
        ("ddp-fedavg", {"noise_multiplier": SIGMA, "clipping": "adaptive", "clip_norm": 0.3}),
        ("full-he", {"sum_noise_multiplier": SIGMA}),
        ("top-2", {"sum_noise_multiplier": SIGMA}),
        ("dict-pfl", {"sum_noise_multiplier": SIGMA}),
    ],
)
def test_a_run_whose_sums_have_noise_says_what_they_cost(method, settings):
    run = noised_run(method, settings.items())
    run.start()
    session = run.strategy.session
    assert session.method.opener == "clients"
    charge = session.method.noise.charge
    assert run.strategy.privacy_spent.epsilon == pytest.approx(epsilon_of({charge: 3}, DELTA))
    assert session._told.taken == dict.fromkeys(ALL, 3)
    models = list(run.evaluated.values())
    assert len(models) == len(ALL)
    for name, one in models[0].items():
        assert np.isfinite(one).all()
        assert all(np.array_equal(other[name], one) for other in models)


def test_what_a_lost_reply_told_is_told_by_the_next_one():
    run = noised_run()
    run.grid.after = loses(2, "train", 2)
    run.start()
    # It has sent its update of the second round, too, whoever has got it.
    assert run.strategy.session._told.taken == dict.fromkeys(ALL, 3)
    assert run.strategy.privacy_spent.of_noise == pytest.approx(epsilon(3))


def test_an_encrypted_sum_that_was_opened_leaves_later_noise_without_a_bound():
    run = noised_run("selective-shield")
    run.start()
    spent = run.strategy.privacy_spent
    assert spent.epsilon == math.inf
    assert spent.reason.startswith("ε is ∞")
    assert spent.of_noise == pytest.approx(epsilon(3))


def test_methods_without_noise_have_no_figure_and_their_clients_tell_nothing():
    run = VectorRun()
    told = []
    run.grid.after = lambda node, reply: told.append(reply.content[ASK].get("events"))
    run.start()
    assert run.strategy.privacy_spent is None
    assert {one for one in told if one is not None} == {msgspec.msgpack.encode([])}


def test_a_run_that_was_cut_off_goes_on_with_what_it_had_spent(tmp_path):
    """It began to count anew: a budget was there twice."""
    stores = config_of(tmp_path, methods="dp-fedavg")
    run = noised_run(checkpoint=str(tmp_path / "run"), node_config=stores)
    cut_off(run, "evaluation 2", "model")
    run.start()
    assert run.strategy.privacy_spent.of_noise == pytest.approx(epsilon(3))
    assert run.strategy.session._told.taken == dict.fromkeys(ALL, 3)


def packed(*events):
    return msgspec.msgpack.encode(named(events))


MANY = [NoisedUpload(2, 1, Noise(SIGMA + number, "client")) for number in range(5)]
LIES = {
    "another client's": {"events": packed(NoisedUpload(2, 0, NOISE))},
    "of a role that it has not": {"events": packed(SummedUploads(2, 1000))},
    "of another unit": {"events": packed(NoisedUpload(2, 1, Noise(SIGMA, "sample")))},
    "of noise that is none": {"events": packed(NoisedUpload(2, 1, Noise(1e-300, "client")))},
    "of many noises": {"events": packed(*MANY)},
    "of a later round than there is": {"events": packed(NoisedUpload(4, 1, NOISE))},
    "far more often than it was asked": {"events": packed(*[NoisedUpload(2, 1, NOISE)] * 17)},
    "far more than fits": {"events": packed(*[NoisedUpload(2, 1, NOISE)] * 300)},
    "by a name for the log": {"events": packed(ClearUpload(2, 1, "x\n\x1b[2JINFO: ε = 0.1"))},
    "no event": {"events": msgspec.msgpack.encode([("Nothing", {})])},
    "no list": {"events": b"\xff"},
    "lists in lists": {"events": b"\x91" * 60_000 + b"\xc0"},
    "too many bytes": {"events": b"\x91" * 100_000},
    "no bytes": {"events": "text"},
    "from nowhere": {"events-from": -1},
    "from beyond": {"events-from": 2**64 - 1},
    "from a text": {"events-from": "0"},
    "nothing": {"events": None},
}


def test_whoever_answers_first_does_not_say_what_all_others_may_tell(caplog):
    """One client that told of samples' noise had every other one refused for good, and no figure was left."""
    run, lie = noised_run(), packed(NoisedUpload(1, 0, Noise(1e5, "sample")))
    run.altered(lambda reply: reply.content[ASK].update(events=lie), "train", clients=[0], replies=True)
    assert "client 0 left round 1: its reply cannot be read" in caplog.text
    # It has told after all, with other replies, what it had sent.
    assert run.strategy.session._told.taken == dict.fromkeys(ALL, 3)
    assert run.strategy.session.done == 3
    assert run.strategy.privacy_spent.of_noise == pytest.approx(epsilon(3))


def test_a_client_that_never_tells_again_is_taken_to_have_sent_what_others_have():
    """Its reply may lie where somebody reads it: the figure left it out, and was too low."""
    run = noised_run()

    def after(node, reply):
        late = reply.metadata.group_id in ("round 3", "evaluation 3", "the end of the run")
        return False if late else None

    run.grid.after = after
    run.start()
    assert run.strategy.session._told.taken == dict.fromkeys(ALL, 2)
    assert run.strategy.privacy_spent.of_noise == pytest.approx(epsilon(3))


def told_by(telling):
    return {name.replace("_", "-"): value for name, value in telling.values().items()}


def telling_of(*events, known=0):
    telling = Telling(events=named(events))
    telling.forget(known)
    return telling


def test_a_server_that_says_it_knows_more_than_was_sent_is_refused():
    telling = telling_of(ClearUpload(1, 1), ClearUpload(2, 1), known=1)
    telling.forget(0)
    assert (telling.first, telling.events) == (1, named([ClearUpload(2, 1)]))
    with pytest.raises(WireFormatError, match="knows of more"):
        telling.forget(3)
    telling.forget(2)
    assert (telling.first, telling.events) == (2, [])


@pytest.mark.parametrize("lie", LIES)
def test_what_none_has_to_tell_is_refused_and_nothing_of_it_is_counted(lie):
    account = Account(delta=DELTA)
    told, reply = ToldEvents(account, "client", 3), told_by(telling_of(NoisedUpload(1, 1, NOISE)))
    reply = {name: one for name, one in (reply | LIES[lie]).items() if one is not None}
    for _ in range(2):
        with pytest.raises(WireFormatError):
            told.take(1, reply)
    assert account.book.all == ()
    assert told.taken == {}


def test_events_are_taken_once_and_those_that_are_missing_leave_no_bound():
    account = Account(delta=DELTA)
    told = ToldEvents(account, "client", 3)
    events = [NoisedUpload(1, 1, NOISE), EncryptedUpload(1, 1, NOISE)]
    for _ in range(2):
        told.take(1, told_by(telling_of(*events)))
    assert len(account.book.all) == 2
    assert (told.kept, told.taken) == ({}, {1: 2})
    told.keep()
    assert told.kept == {1: 2}
    told.take(1, told_by(telling_of(*events, NoisedUpload(2, 1, NOISE), known=1)))
    assert len(account.book.all) == 3
    assert account.spent().epsilon == pytest.approx(epsilon(2))
    # What a newer checkpoint had, this server is not told any more.
    told.take(1, told_by(Telling(5)))
    assert account.spent().epsilon == math.inf
    assert told.taken == {1: 5}


def test_a_long_silence_is_told_of_in_several_replies():
    account = Account(delta=DELTA)
    told = ToldEvents(account, "client", 600)
    told.silent[1] = 600
    telling = telling_of(*[NoisedUpload(number, 1, NOISE) for number in range(1, 601)])
    for count in (256, 512, 600):
        told.take(1, told_by(telling))
        told.keep()
        assert told.taken == {1: count}
        telling.forget(told.kept[1])
    assert account.spent().steps == told.spent().steps == 600


def test_a_budget_is_part_of_what_a_run_is_gone_on_with(tmp_path):
    """The noise that a budget made, given without it, was taken for the same settings, and the budget was gone."""
    budget = (("noise_multiplier", 0.0), ("target_epsilon", 2.0))
    run = noised_run("selective-shield", budget, checkpoint=str(tmp_path / "run"))
    cut_off(run, "round 2", "train")
    sigma = run.strategy.session.method.own_settings["noise_multiplier"]
    run.config |= {
        "shieldfl.resume": True,
        "shieldfl.settings.noise_multiplier": sigma,
    }
    del run.config["shieldfl.settings.target_epsilon"]
    with pytest.raises(PolicyError, match="differs in the method's own settings"):
        run.start()


def test_a_sum_that_may_have_been_opened_before_the_cut_counts_as_opened(tmp_path):
    run = noised_run("selective-shield", checkpoint=str(tmp_path / "run"))
    cut_off(run, "evaluation 2", "model")
    run.grid.before = lambda node, message: False if message.metadata.group_id == "round 3" else None
    run.start()
    assert OpenedSum(3) in run.strategy.session._account.book.all


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
    assert run.strategy.session._told.taken == dict.fromkeys(ALL, 6)


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
        reasons = run.altered()
        assert reasons
        assert all(("0.731" in one) != stays for _, one in reasons)
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
    run, asks = noised_run(), {"weighted-by": "loss"}
    assert run.altered(lambda message: message.content[ASK].update(asks), "train", clients=ALL) == []
    assert math.isfinite(run.strategy.privacy_spent.epsilon)


def test_the_text_of_what_training_gave_stays_where_an_epsilon_holds():
    run = noised_run()
    run.train = lambda client, number, shape: (
        moves(client, number, shape) * (math.nan if client == 1 else 1.0)
    )
    assert set(run.altered()) == {(1, "RangeError: the client failed: the node's log says why")}
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
