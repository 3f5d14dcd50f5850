"""In which order pieces are done: every cell once, then the fewest tries, then more; equal shares of the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from shieldfl.lab.audit.attack import usable_attacks
from shieldfl.lab.audit.piece import OWN_FEDERATIONS, Attacked, Piece
from shieldfl.lab.audit.session import Schedule

METHODS = ("fedavg", "one", "two")
ATTACKS = ("ilrg", "dlg", "curious-abandon-honesty", "membership")


def schedule(
    trials: int = 6,
    seconds: float = 1e6,
    attacks: tuple[str, ...] = ATTACKS,
    methods: tuple[str, ...] = METHODS,
) -> Schedule:
    usable = usable_attacks(attacks)
    return Schedule(methods, usable.on_updates, [one.name for one in usable.on_methods], trials, seconds)


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


def test_time_that_is_over_is_over():
    made = schedule()
    assert made.next(0.0) is None
    assert len(played(made, {"dlg": 10.0}, 5.0)) == 1


def test_a_planted_layer_has_fewer_rows_where_each_parameter_takes_long():
    """A round of 100 parameters takes 2 s under one method: of 10,000, where 10 s are a tenth of the time, 200 s."""
    pieces = played(schedule(1, 100.0), {}, 100.0, {"two": 2.0, "one": 0.01})
    planted = {one.method: one for one in pieces if one.attacks == ("curious-abandon-honesty",)}
    assert planted["fedavg"].rows is planted["one"].rows is None
    assert planted["two"].rows == 32  # of 1,000, 50 would take 10 s


def test_a_federation_that_takes_longer_than_what_is_left_is_not_begun():
    made = schedule(1, 100.0)
    pieces = played(made, {"membership": 0.0}, 100.0, {"two": 100.0})
    assert ("two", "curious-abandon-honesty") not in tried(pieces)
    assert made.too_long == {("two", "curious-abandon-honesty")}


def test_what_a_method_refuses_is_not_asked_again():
    made = schedule()
    made.take_in(Attacked("one", "dlg", 0, left_out="no"))
    counted = tried(played(made, {}, 1e6))
    assert counted["one", "dlg"] == counted["one", "ilrg"] == 0  # of one federation
    assert counted["one", "curious-abandon-honesty"] == counted["two", "dlg"] == 6


def test_nothing_is_planted_before_it_is_known_how_long_a_method_takes():
    made = schedule(attacks=("ilrg", "robbing-the-fed"))
    first = [begun(made) for _ in METHODS]
    assert {one.attacks for one in (*first, begun(made))} == {("ilrg",)}
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


def test_an_attack_with_federations_of_its_own_tells_nothing_of_how_long_a_round_takes():
    made = schedule(trials=1, attacks=("ilrg", "robbing-the-fed", "membership"))
    for _ in METHODS:
        begun(made)
    alone = [begun(made) for _ in METHODS]
    assert {one.trial for one in alone} == {OWN_FEDERATIONS}
    for one in alone:
        made.take_in(ended(one))
    assert made.next(1e6) is None  # nothing is planted yet
