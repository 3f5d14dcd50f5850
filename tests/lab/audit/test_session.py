"""An audit from beginning to end and in pieces: known cases, shares of the time, refusals, interruptions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from shieldfl.errors import ParameterError
from shieldfl.lab.audit import piece, session
from shieldfl.lab.audit.attack import AuditResult, Cell, Recovered, UpdateAttack, usable_attacks
from shieldfl.lab.audit.attacks.labels import Ilrg
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.piece import OWN_FEDERATIONS, Attacked, AttackedTrial, Piece, PieceWorker
from shieldfl.lab.audit.session import Schedule, run_audit
from shieldfl.lab.audit.views import view as views
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.audit.views.view import Trial, party_named
from shieldfl.lab.simulation.data import Dataset
from shieldfl.methods.registry import MethodSettings, method_names
from shieldfl.privacy.synthetic_data import fit_synthetic_data

PARTIES = ("aggregator", "client", "other-clients", "authority", "network", "outsider")


@pytest.fixture(scope="module")
def counted(small: AuditConfig) -> AuditResult:
    """Labels counted, for every party."""
    methods = ["full-he", "mask-crypt", "selective-shield", "dp-fedavg"]
    return run_audit(replace(small, trials=3), methods, ["ilrg"], PARTIES)


def cell(result: AuditResult, method: str, party: str, attack: str = "ilrg") -> Cell:
    (found,) = [one for one in result.cells if (one.method, one.party, one.attack) == (method, party, attack)]
    return found


def test_plain_averaging_goes_along_and_shows_all(counted):
    undefended = cell(counted, "fedavg", "aggregator")
    assert undefended.status == "attacked"
    assert undefended.tries == 12  # four clients in three federations
    assert undefended.low > undefended.chance
    assert counted.verdict(undefended) == "all"
    assert undefended.others["LeAcc"] >= undefended.figure


def test_an_aggregator_without_values_has_received_nothing(counted):
    assert cell(counted, "fedavg", "outsider").status == "nothing received"  # the last model alone
    for party in ("aggregator", "authority", "network"):
        found = cell(counted, "full-he", party)
        assert found.status == "nothing received"
        assert counted.verdict(found) == "chance"
        assert found.tries == 0


def test_all_clients_but_one_get_as_much_as_from_plain_averaging_and_a_part_in_the_clear_more_than_noise(
    counted,
):
    assert counted.verdict(cell(counted, "full-he", "other-clients")) == "all"
    assert cell(counted, "full-he", "other-clients").form.startswith("sum of 1")
    masked, noised = (cell(counted, name, "aggregator") for name in ("mask-crypt", "dp-fedavg"))
    assert masked.figure > noised.figure
    assert "hidden" not in masked.form


def test_figures_are_plain_json(counted):
    facts = json.loads(json.dumps(counted.to_json(), allow_nan=False))
    assert len(facts["cells"]) == 5 * len(PARTIES)
    assert {one["verdict"] for one in facts["cells"]} <= {"chance", "some", "all", "too few trials"}
    assert facts["cells"][0]["figure"] == cell(counted, "fedavg", "aggregator").figure


@pytest.mark.slow
def test_every_method_is_attacked_for_every_party(small):
    names = method_names()
    config = replace(small, trials=1, budget_minutes=1000.0)  # however busy the machine is
    result = run_audit(config, names, ["ilrg", "robbing-the-fed"], PARTIES)
    assert not result.notes
    assert len(result.cells) == 2 * len(names) * len(PARTIES)
    assert [one for one in result.cells if one.status == "not attacked"] == []


def test_who_opens_sums_is_who_has_them(small):
    """The aggregator of full-he has nothing where clients or the authority open, and all sums where it opens them."""
    for opener, sees in (("clients", ()), ("authority", ("authority",)), ("aggregator", ("aggregator",))):
        config = replace(small, trials=1, rounds=1, opener=opener)
        result = run_audit(config, ["full-he"], ["ilrg"], ["aggregator", "authority"])
        assert (
            cell(result, "fedavg", "aggregator").status == "attacked"
        )  # nobody opens, and so nobody is refused
        for party in ("aggregator", "authority"):
            found = cell(result, "full-he", party)
            assert found.status == ("attacked" if party in sees else "nothing received")
            assert found.form.startswith("sum of 4" if party in sees else "")
    config = replace(small, trials=1, opener="aggregator")
    left_out = cell(run_audit(config, ["dict-pfl"], ["ilrg"], ["aggregator"]), "dict-pfl", "aggregator")
    assert "cannot open sums" in left_out.reason


def test_a_federation_that_several_attacks_are_on_is_told_of_once(small):
    told: list[tuple[str, int]] = []
    run_audit(
        replace(small, rounds=1, samples=1),
        ["full-he"],
        ["ilrg", "idlg", "robbing-the-fed"],
        ["aggregator"],
        on_trial=lambda method, trial: told.append((method, trial)),
    )
    # One that nobody has altered, and one whose first model is the attacker's.
    assert sorted(told) == sorted([("fedavg", 0), ("full-he", 0), ("fedavg", 1), ("full-he", 1)] * 2)


@pytest.mark.filterwarnings("ignore:an update is more than twice")
@pytest.mark.parametrize("attack", ["ilrg", "inverting", "lone-total"])
def test_sums_of_one_in_several_rotated_values_count_as_not_attacked(small, attack):
    """No attack here searches among rotated values, so that none may say that nothing is found."""
    changes = {"compressed_bits": 8, "compressed_one_in": 2, "compressed_norm": 0.3}
    settings = MethodSettings().changed("full-he", changes)
    parties = ("other-clients", "aggregator-and-client")
    result = run_audit(replace(small, samples=1, trials=1), ["full-he"], [attack], parties, settings)
    found = [one for one in result.cells if one.method == "full-he"]
    assert [result.verdict(one) for one in found] == ["not attacked"] * 2
    assert any("attacks here do not search" in one.reason for one in found)


def test_one_try_and_what_was_not_attacked_are_never_called_chance():
    one = Cell("m", "ilrg", "aggregator", "attacked", figure=1.0, chance=0.1, tries=1)
    assert one.verdict(None) == "too few trials"
    for status in ("does not apply", "not attacked"):
        assert Cell("m", "ilrg", "aggregator", status, "why").verdict(None) == "not attacked"


def test_a_server_that_plants_a_layer_is_tried_in_federations_of_its_own(small):
    result = run_audit(
        replace(small, trials=1, samples=2),
        ["full-he"],
        ["robbing-the-fed"],
        ["aggregator", "client", "other-clients"],
    )
    undefended = cell(result, "fedavg", "aggregator", "robbing-the-fed")
    assert undefended.figure > 0.9
    assert undefended.others["PSNR"] > 30
    assert undefended.example is not None
    assert cell(result, "full-he", "aggregator", "robbing-the-fed").status == "nothing received"
    others = cell(result, "full-he", "client", "robbing-the-fed")
    assert others.form == "sum of 3, round 1"
    assert others.figure > 3 * others.chance
    # What encryption rounds is told from what a sample has put into a row.
    assert cell(result, "full-he", "other-clients", "robbing-the-fed").figure > 0.9


@pytest.mark.parametrize("method", ["alt-fl-si-he", pytest.param("alt-fl-si-dp", marks=pytest.mark.slow)])
def test_a_planted_layer_is_tried_in_the_first_round_on_clients_own_data(small, method, monkeypatch):
    settings = MethodSettings().changed(method, {"noise_multiplier": 0.0})
    monkeypatch.setattr(views, "fit_synthetic_data", partial(fit_synthetic_data, steps=40))
    config = replace(small, trials=1, samples=2)
    result = run_audit(config, [method], ["robbing-the-fed"], ["other-clients"], settings)
    found = cell(result, method, "other-clients", "robbing-the-fed")
    assert found.form.startswith("sum of 1, round 2")
    assert found.figure > 5 * found.chance
    assert found.others["PSNR"] > 40  # of images that are paired with the client's
    assert cell(result, "fedavg", "other-clients", "robbing-the-fed").form.startswith("sum of 1, round 1")


def test_a_planted_layer_under_noise_gives_no_image_that_the_noise_has_drawn(small):
    result = run_audit(
        replace(small, trials=1, samples=2),
        ["dp-fedavg", "dp-sgd"],
        ["robbing-the-fed"],
        ["aggregator-and-client"],
    )
    for method in ("dp-fedavg", "dp-sgd"):
        noised = cell(result, method, "aggregator-and-client", "robbing-the-fed")
        assert (noised.status, noised.figure, noised.others["images"]) == ("attacked", 0.0, 0.0)
        assert noised.form.endswith("nothing stands clear of the noise, in 1 of 1 tries")
    undefended = cell(result, "fedavg", "aggregator-and-client", "robbing-the-fed")
    assert undefended.figure > 0.9
    assert "noise" not in undefended.form


def test_time_that_is_over_leaves_what_was_not_attacked_marked(small):
    result = run_audit(replace(small, budget_minutes=1e-9), ["full-he"], ["ilrg", "membership"], PARTIES)
    assert {one.status for one in result.cells if one.method == "full-he"} == {"not attacked"}
    assert "attacked" not in {one.status for one in result.cells}
    assert len(result.cells) == 2 * 2 * len(PARTIES)


def test_a_federation_that_several_attacks_share_is_charged_to_all_of_them(small, monkeypatch):
    """A second for each, and a minute for what runs them: the first of two attacks is not over before the second."""
    clock, real = [0.0], piece.Trial
    monkeypatch.setattr(session.time, "monotonic", lambda: clock[0])

    def slow(name, *others):
        clock[0] += 60.0
        return real(name, *others)

    monkeypatch.setattr(piece, "Trial", slow)
    config = replace(small, trials=1, rounds=1, budget_minutes=3.5)
    result = run_audit(config, ["full-he", "top-2"], ["ilrg", "idlg"], ["other-clients"])
    assert [one.status for one in result.cells] == ["attacked"] * 3 + ["does not apply"] * 3


@pytest.mark.parametrize(("module", "fails"), [(piece, "Trial"), (views, "_placed")])
def test_a_method_that_fails_or_has_no_view_is_left_out_with_its_reason(small, monkeypatch, module, fails):
    real = getattr(module, fails)

    def failing(*given):
        if "mask-crypt" in [getattr(one, "name", str(one)) for one in given]:
            raise ParameterError("no such thing")
        return real(*given)

    monkeypatch.setattr(module, fails, failing)
    result = run_audit(replace(small, trials=1), ["mask-crypt"], ["ilrg"], ["client"])
    assert cell(result, "fedavg", "client").status == "attacked"
    assert cell(result, "mask-crypt", "client").status == "not attacked"
    assert cell(result, "mask-crypt", "client").reason == "no such thing"
    assert "mask-crypt: left out from trial 1 on: no such thing" in result.notes
    assert any("no cell is marked all" in note for note in result.notes)


@pytest.mark.parametrize(
    ("attacks", "parties", "message"),
    [
        (["ilrg", "ilrg"], ["aggregator"], "name one attack or several, each once"),
        (["ilrg"], [], "name one party"),
        ([], ["aggregator"], "name one attack"),
        (["ilrg"], ["aggregator", "aggregator"], "name one party or several, each once"),
    ],
)
def test_names_that_are_none_or_come_twice_are_refused_before_anything_runs(small, attacks, parties, message):
    with pytest.raises(ParameterError, match=message):
        run_audit(small, ["full-he"], attacks, parties)


METHODS = ("fedavg", "one", "two")
ATTACKS = ("ilrg", "dlg", "curious-abandon-honesty", "membership")


def schedule(
    trials: int = 6,
    seconds: float = 1e6,
    attacks: tuple[str, ...] = ATTACKS,
    methods: tuple[str, ...] = METHODS,
) -> Schedule:
    return Schedule(methods, usable_attacks(attacks)[0], trials, seconds)


def played(
    made: Schedule, takes: Mapping[str, float], seconds: float, rounds: Mapping[str, float] | None = None
) -> list[Piece]:
    """Do pieces one after another, each attack taking so long, until nothing is left or the time is over."""
    pieces = []
    while (piece := made.next(seconds)) is not None:
        pieces.append(piece)
        is_honest = piece.attacks[0] in made.honest
        for attack in piece.attacks:
            one = Attacked(piece.method, attack, piece.trial, takes.get(attack, 0.0))
            one.round_seconds = (rounds or {}).get(piece.method, 1.0) if is_honest else None
            one.parameters = None if piece.rows is not None else 100 if is_honest else 10_000
            seconds -= one.seconds
            made.take_in(one)
    return pieces


def tried(pieces: list[Piece]) -> Counter[tuple[str, str]]:
    return Counter((piece.method, attack) for piece in pieces for attack in piece.attacks)


def test_all_is_done_once_where_there_is_time():
    pieces = played(schedule(), {}, 1e6)
    assert len(pieces) == len({(one.method, one.trial, one.attacks) for one in pieces}) == 3 * (6 + 6 + 1)
    assert all(count == (1 if name == "membership" else 6) for (_, name), count in tried(pieces).items())
    first = [one.trial for one in pieces[:9]]
    assert first == [0] * 6 + [OWN_FEDERATIONS] * 3  # every cell once, before any has a second try
    assert [one.trial for one in pieces[9:]] == sorted(one.trial for one in pieces[9:])


def test_an_attack_that_takes_long_does_not_keep_others_from_their_tries():
    takes = {"dlg": 40.0, "ilrg": 0.1, "curious-abandon-honesty": 1.0, "membership": 10.0}
    counted = tried(played(schedule(), takes, 300.0))
    assert all(counted[name, attack] >= 1 for name in METHODS for attack in ATTACKS)
    # What the others left is its own: a fourth of the time is 75 s.
    assert sum(counted[name, "dlg"] for name in METHODS) >= 5
    assert all(counted[name, "ilrg"] == 5 for name in METHODS)  # more than those while dlg has not as many


def test_time_that_is_over_is_over_and_what_a_method_refuses_is_not_asked_again():
    assert schedule().next(0.0) is None
    assert len(played(schedule(), {"dlg": 10.0}, 5.0)) == 1
    made = schedule()
    made.take_in(Attacked("one", "dlg", 0, left_out="no"))
    counted = tried(played(made, {}, 1e6))
    assert counted["one", "dlg"] == counted["one", "ilrg"] == 0  # of one federation
    assert counted["one", "curious-abandon-honesty"] == counted["two", "dlg"] == 6


def test_a_planted_layer_has_fewer_rows_where_each_parameter_takes_long_and_is_not_begun_where_that_is_too_long():
    """A round of 100 parameters takes 2 s under one method: of 10,000, where 10 s are a tenth of the time, 200 s."""
    pieces = played(schedule(1, 100.0), {}, 100.0, {"two": 2.0, "one": 0.01})
    planted = {one.method: one for one in pieces if one.attacks == ("curious-abandon-honesty",)}
    assert planted["fedavg"].rows is planted["one"].rows is None
    assert planted["two"].rows == 32  # of 1,000, 50 would take 10 s
    made = schedule(1, 100.0)
    pieces = played(made, {"membership": 0.0}, 100.0, {"two": 100.0})
    assert ("two", "curious-abandon-honesty") not in tried(pieces)
    assert made.too_long == {("two", "curious-abandon-honesty")}


def test_nothing_is_planted_before_it_is_known_how_long_a_method_takes():
    """Of which attacks with federations of their own tell nothing."""
    made = schedule(trials=1, attacks=("ilrg", "robbing-the-fed", "membership"))
    first, alone = ([begun(made) for _ in METHODS] for _ in range(2))
    assert {one.attacks for one in first} == {("ilrg",)}
    assert {one.trial for one in alone} == {OWN_FEDERATIONS}
    for one in alone:
        made.take_in(ended(one))
    assert made.next(1e6) is None
    for one in first:
        made.take_in(ended(one, 1.0))
    assert begun(made).attacks == ("robbing-the-fed",)


def ended(piece: Piece, round_seconds: float | None = None) -> Attacked:
    (attack,) = piece.attacks
    return Attacked(piece.method, attack, piece.trial, round_seconds=round_seconds, parameters=100)


def begun(made: Schedule) -> Piece:
    piece = made.next(1e6)
    assert piece is not None
    return piece


def test_others_go_on_while_the_first_federation_of_a_slow_method_runs():
    made = schedule(attacks=("ilrg", "robbing-the-fed"))
    first = {one.method: one for one in (begun(made) for _ in METHODS)}
    for name in ("fedavg", "one"):
        made.take_in(ended(first[name], 1.0))
    assert [(one.method, one.trial) for one in (begun(made), begun(made))] == [("fedavg", 0), ("one", 0)]
    assert begun(made).trial == 1  # of later stages, while what waits for the slow one waits
    made.take_in(ended(first["two"], 100.0))
    after = begun(made)
    assert (after.method, after.trial, after.attacks) == ("two", 0, ("robbing-the-fed",))


def test_slow_methods_come_last_and_the_others_by_turns():
    made = schedule(trials=3, attacks=("ilrg",), methods=("fedavg", "slow", "one", "two"))
    told = [one.method for one in played(made, {}, 1e6, {"slow": 100.0})]
    assert told[:4] == ["fedavg", "slow", "one", "two"]
    assert told[4:10] == ["fedavg", "one", "two", "fedavg", "two", "one"]
    assert told[10:] == ["slow", "slow"]  # once all others have theirs


def test_where_nothing_waits_for_it_a_method_whose_time_is_not_known_has_its_further_tries_last():
    made = schedule(trials=2, attacks=("ilrg",))
    first = [begun(made) for _ in METHODS]
    made.take_in(ended(first[0], 1.0))
    made.take_in(ended(first[2], 1.0))
    assert [(one.method, one.trial) for one in (begun(made) for _ in METHODS)] == [
        ("fedavg", 1),
        ("two", 1),
        ("one", 1),
    ]


@pytest.fixture
def worker_of(small: AuditConfig, digits: Dataset) -> Callable[[str], PieceWorker]:
    """A worker for one attack, for what the aggregator gets."""

    def made(attack: str) -> PieceWorker:
        asked = replace(small, samples=2, rounds=1), (attack,), ("aggregator",), MethodSettings()
        return PieceWorker(asked, digits)

    return made


def test_a_planted_layer_has_the_rows_that_a_piece_says_and_its_form_tells_of_them(worker_of):
    name = "robbing-the-fed"
    ((whole,), (few,)) = (worker_of(name).do(Piece("fedavg", 0, (name,), rows=rows)) for rows in (None, 16))
    assert whole.parameters > 1000
    assert few.parameters is None  # it says nothing of how large a whole one is
    forms, fewer = ({form for form, _ in done.found["aggregator"].outcomes} for done in (whole, few))
    assert forms == {"update, round 1", "sum of 4, round 1"}
    assert fewer == {f"{form}, with 16 rows, since more would have taken too long" for form in forms}
    assert few.round_seconds is None  # of another model than others train


def test_plain_averaging_that_is_refused_is_asked_for_once_for_all_methods_of_a_number(
    worker_of, monkeypatch
):
    real, refused = piece.Trial, []

    def trial(name: str, *others: Any) -> Any:
        if name == "fedavg":
            refused.append(others[-1])
            raise ParameterError("not this one")
        return real(name, *others)

    monkeypatch.setattr(piece, "Trial", trial)
    worker = worker_of("idlg")
    for number in (0, 1):
        for method in ("mask-crypt", "dp-fedavg"):
            (done,) = worker.do(
                Piece(method, number, ("idlg",), {"idlg": 0.0})
            )  # over before its first search
            assert done.left_out is None
            assert done.found["aggregator"].received
    assert refused == [0, 1]


@pytest.fixture
def first_on_synthetic(digits, small) -> Trial:
    """Plain averaging whose clients say that their first round was on synthetic data alone."""
    trial = Trial("fedavg", MethodSettings(), small, digits, 0)
    stated = trial.record.disclosures
    stated |= {key: replace(one, synthetic=key[1] == 1) for key, one in stated.items()}
    return trial


@pytest.mark.parametrize("party", ["aggregator", "other-clients"])
def test_rounds_on_synthetic_data_are_not_held_against_the_clients_own(first_on_synthetic, party):
    attacked = AttackedTrial(first_on_synthetic, seed=0)
    found = attacked.found(party_named(party), Ilrg())
    assert found.outcomes
    assert all("round 2" in form for form, _ in found.outcomes)
    assert "synthetic data alone" in found.reason


def test_images_are_searched_for_in_the_first_round_on_the_client_s_own_data(first_on_synthetic):
    (search,), _ = usable_attacks(["inverting"])
    search = replace(search, iterations=1)
    attacked = AttackedTrial(first_on_synthetic, seed=0)
    found = attacked.found(party_named("aggregator"), search)
    assert [form for form, _ in found.outcomes] == ["update, round 2"]


def test_sums_that_share_clients_are_one_try(trial_of):
    attacked = AttackedTrial(trial_of("full-he"), seed=0)

    def tries(party: str) -> int:
        return len(
            [1 for form, _ in attacked.found(party_named(party), Ilrg()).outcomes if "round 1" in form]
        )

    assert tries("client") == 1  # of clients 0, 2 and 3, and of 1, 2 and 3
    assert tries("other-clients") == 4
    plain = AttackedTrial(trial_of("fedavg"), 0).found(party_named("aggregator"), Ilrg())
    assert len(plain.outcomes) == 2 * (4 + 1)


class _Searches(UpdateAttack):
    """Finds nothing, and counts how often it is asked to."""

    name, recovers, source = "counting", "images", ""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        return None

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        self.seen.append(observed.change)
        return Recovered(images=torch.zeros(1, *observed.sample_shape))


def test_an_update_that_is_plain_averaging_s_up_to_rounding_is_searched_once_for_all_methods(trial_of):
    search, known, plain = _Searches(), {}, trial_of("fedavg")
    everybody = [party_named(name) for name in ("aggregator", "other-clients", "aggregator-and-client")]

    def remarks(method: str) -> set[str]:
        attacked = AttackedTrial(trial_of(method), 0, plain, known)
        return {outcome.remark for one in everybody for _, outcome in attacked.found(one, search).outcomes}

    assert remarks("fedavg") == {""}
    assert len(search.seen) == 1  # its message, and what the others work out of the sum
    assert remarks("full-he") == {"attacked as fedavg's update, which it is up to rounding"}
    assert len(search.seen) == 1
    assert "" in remarks("mask-crypt")  # a part of it, with the model and without
    assert len(search.seen) == 3
    assert remarks("dp-fedavg") == {""}  # of its own, with noise: the message, and the sum that tells it
    assert len(search.seen) == 4
