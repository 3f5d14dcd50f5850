"""What an account makes of roles' reports, and its bytes, which another one goes on with."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import pytest

from methods.method_conformance import SteppedRun
from methods.variants import CLIENTS, each_as_parameter, labelled
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import (
    ClearUpload,
    ClientsDrawn,
    DataRelease,
    EncryptedUpload,
    Noise,
    NoisedUpload,
    NoiseOfSum,
    NoiseShareUpload,
    OpenedSum,
    PrivacyEvent,
    ReadSum,
    SummedUploads,
)
from shieldfl.rounds.reports import Account, Note, Report, Reporter


def test_a_role_reports_everything_once():
    role = Reporter()
    role.record(OpenedSum(1))
    role.note(Note("read this"))
    role.clock.add({"open": 2.0})
    assert role.report() == Report((OpenedSum(1),), (Note("read this"),), {"open": 2.0})
    assert role.report() == Report()


def test_remarks_stand_once_and_tallies_are_added_up():
    account = Account(["known before"])
    clipped = "values were cut off"
    account.take(
        Report(notes=(Note(clipped, counts=(0, 10)), Note("2 pruned", "pruning"), Note("read this")))
    )
    assert account.notes == ["known before", "2 pruned", "read this"]
    account.take(
        Report(notes=(Note(clipped, counts=(3, 990)), Note("5 pruned", "pruning"), Note("read this")))
    )
    account.take(Report(notes=(Note(clipped, counts=(1, 1000)),)))
    account.note("by the driver")
    assert account.notes == [
        "known before",
        "5 pruned",
        "read this",
        f"4 of 2,000 {clipped}",
        "by the driver",
    ]

    account.take(Report(seconds={"open": 1.0, "upload": 0.5}))
    account.take(Report(seconds={"open": 2.0}))
    assert account.clock.take() == {"open": 3.0, "upload": 0.5}
    assert account.clock.take() == {}


def test_what_is_readable_has_no_bound_and_without_noise_there_is_no_figure():
    account = Account()
    account.charge_draw(3)
    assert math.isnan(account.spent().epsilon)
    account.take(Report((ClearUpload(1, 0),)))
    assert math.isinf(account.spent().epsilon)
    assert account.spent().rounds == 1
    assert account.settings() == {}


def test_an_epsilon_has_its_delta():
    noised = Report((NoisedUpload(1, 0, Noise(2.0, "client")),))
    account, without = Account(delta=1e-5), Account()
    for one in (account, without):
        one.take(noised)
    assert account.spent().delta == account.settings()["delta"] == 1e-5
    assert account.settings()["epsilon_of_what_was_charged"] == account.spent().of_noise > 0.0
    assert account.settings()["most_steps_charged_to_a_client"] == 1
    with pytest.raises(ParameterError, match="delta"):
        without.spent()


def test_a_draw_is_charged_as_the_method_says_and_never_beyond_the_target():
    noise = Noise(4.0, "client")
    two = epsilon_of({noise: 2}, 1e-5)
    account = Account(delta=1e-5, per_draw=noise, target_epsilon=two)
    account.charge_draw(9)
    account.charge_draw(0)
    spent = account.spent()
    assert (spent.rounds, spent.steps) == (2, 2)
    assert spent.of_noise == two
    # Nothing has left yet: there is a charge, and no claim.
    assert math.isnan(spent.epsilon)
    with pytest.raises(PolicyError, match="is spent after 2 draws"):
        account.charge_draw(9)
    with pytest.raises(ParameterError, match="participants"):
        Account(per_draw=noise).charge_draw(-1)
    assert repr(account.spent()) == repr(spent)


@pytest.mark.parametrize(
    "variant",
    each_as_parameter(list(map(labelled, ("alt-fl-pi", "dp-sgd/noised", "selective-shield/clear")))),
)
def test_reports_of_rounds_and_roles_may_come_in_any_order(variant):
    run = SteppedRun(variant)
    roles = [*run.clients, run.aggregator, *([] if run.authority is None else [run.authority])]
    reports = []
    for _ in range(3):  # the third is Alt-FL's first of the other kind
        run.run_round()
        reports.append([role.report() for role in roles])
    found, epsilons = [], []
    for order in (
        [report for of_round in reports for report in of_round],
        [report for of_round in reversed(reports) for report in of_round],
        [of_round[role] for role in range(len(roles)) for of_round in reports],
        [report for of_round in reversed(reports) for report in reversed(of_round)],
    ):
        account = run.method.account()
        for _ in reports:
            account.charge_draw(CLIENTS)
        for report in order:
            account.take(report)
        found.append((repr(account.spent()), account.settings(), sorted(account.book.readable_parts)))
        epsilons.append(account.spent().epsilon)
    assert found[0] == found[1] == found[2]
    # With the key authority's before the clients' of its round, no figure is lower.
    assert found[3] == found[0] or epsilons[3] == math.inf


NOISE = Noise(1.5, "sample", 0.1, 7)
EVENTS = (
    DataRelease(NOISE),
    ClientsDrawn(3, NOISE),
    ClientsDrawn(2),
    EncryptedUpload(1, 0, NOISE, synthetic=True),
    EncryptedUpload(1, 2),
    NoisedUpload(1, 1, NOISE, "a range"),
    SummedUploads(1, 3),
    ClearUpload(2, 1, "mask", synthetic=True),
    OpenedSum(2),
    ReadSum(2),
)
OF_CLIENTS = (NoiseShareUpload(1, 2, NoiseOfSum("skellam", 3, 400, 1200, 5, -100.0)),)
"""Of another unit, and so of another account."""


def filled() -> Account:
    one = Account(["what is known before"], 1e-5)
    notes = (
        Note("a first remark", "subject", 3),
        Note("no subject"),
        Note("values were clipped", counts=(1, 9)),
    )
    one.take(Report(EVENTS, notes, {"encrypt": 0.5}))
    return one


def test_every_kind_of_event_is_among_those_tried():
    assert {type(event) for event in (*EVENTS, *OF_CLIENTS)} == set(get_args(PrivacyEvent))
    one, other = Account((), 1e-5), Account((), 1e-5)
    one.take(Report(OF_CLIENTS, (), {}))
    other.restore(one.state())
    assert other.book.all == OF_CLIENTS


def test_an_account_goes_on_where_another_stood():
    whole, other = filled(), Account(["what is forgotten"], 1e-5)
    other.restore(whole.state())
    assert other.book.all == EVENTS
    assert other.clock.seconds() == {"encrypt": 0.5}
    for one in (whole, other):
        # Of an earlier round, of the same subject later, and of tallies that add up.
        late = (
            Note("too late", "subject", 2),
            Note("in time", "subject", 4),
            Note("values were clipped", counts=(2, 9)),
        )
        one.take(Report((OpenedSum(3),), late, {"encrypt": 0.25}))
        one.charge_draw(3)
    assert other.notes == whole.notes
    assert "in time" in other.notes
    assert "3 of 18 values were clipped" in other.notes
    assert other.spent() == whole.spent()
    assert math.isinf(other.spent().epsilon)
    assert other.clock.take() == whole.clock.take()


def test_what_is_no_account_is_refused_and_changes_nothing():
    one = filled()
    state = msgspec.msgpack.decode(one.state())
    for told in (
        [("SomethingElse", {})],
        [("OpenedSum", {"round": "first"})],
        [("Noise", {"multiplier": 1.0})],
    ):
        with pytest.raises(WireFormatError, match="an event of no known kind"):
            one.restore(msgspec.msgpack.encode(state | {"told": told}))
    with pytest.raises(WireFormatError, match="no account that this version can read"):
        one.restore(b"\x00")
    assert one.book.all == EVENTS
