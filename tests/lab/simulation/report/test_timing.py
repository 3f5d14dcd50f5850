"""What is compared of the time and bytes of methods."""

from __future__ import annotations

from dataclasses import replace

from lab.simulation.report.made_up_runs import record as made_up
from lab.simulation.small_runs import fewer_samples, run_methods
from shieldfl.lab.report.run_summary import remarks
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import MethodResult, RoundRecord, RunResult, compare_timings
from shieldfl.methods.registry import MethodSettings


def record(number: int, train: float, other: float, up: float) -> RoundRecord:
    return replace(
        made_up(number, False),
        stage_seconds={"train": train, "upload": other},
        bytes_up=up,
        bytes_down=10.0,
        seconds=train + other + 0.125,
    )


def method(name: str, rounds: list[RoundRecord], training: str = "alike", **more) -> MethodResult:
    return MethodResult(
        name, {}, 10, 1e-5, rounds, sum(one.seconds for one in rounds), training=training, **more
    )


PLAIN = method("fedavg", [record(1, 9.0, 0.5, 100.0), record(2, 2.0, 0.5, 100.0), record(3, 4.0, 0.5, 100.0)])
HIDDEN = method(
    "full-he", [record(1, 9.0, 3.0, 150.0), record(2, 20.0, 1.0, 110.0), record(3, 22.0, 1.0, 130.0)]
)


def test_training_is_timed_once_for_methods_that_train_alike() -> None:
    third = method("mask-crypt", [record(number, 5.0, 0.5, 1.0) for number in (1, 2)])
    other = method("dp-sgd", [record(number, 50.0, 0.5, 1.0) for number in (1, 2)], training="with noise")
    plain, hidden, masked, noised = compare_timings([PLAIN, HIDDEN, third, other])
    for timing in (plain, hidden, masked):
        assert timing.trained_alike == ("fedavg", "full-he", "mask-crypt")
        assert timing.train_seconds == 5.0  # the median of 3, 21 and 5
    assert (noised.trained_alike, noised.train_seconds) == (("dp-sgd",), 50.0)
    assert (
        hidden.round_seconds - plain.round_seconds
        == hidden.protection_seconds - plain.protection_seconds
        == 0.5
    )


def test_what_the_first_round_does_once_stands_alone() -> None:
    plain, hidden = compare_timings([PLAIN, HIDDEN])
    assert hidden.stage_seconds == {"upload": 1.0}
    assert (hidden.protection_seconds, hidden.other_seconds, hidden.setup_seconds) == (1.125, 0.125, 2.0)
    assert (hidden.bytes_up, hidden.setup_bytes_up, hidden.setup_bytes_down) == (120.0, 30.0, 0.0)
    assert (plain.setup_seconds, plain.setup_bytes_up) == (0.0, 0.0)
    (made,) = compare_timings([method("full-he", HIDDEN.rounds, setup_seconds=0.25)])
    assert made.setup_seconds == 2.25


def test_a_first_round_among_alternating_ones_counts_like_the_others() -> None:
    alternating = method("alt-fl-mp", HIDDEN.rounds, alternates=True)
    (timing,) = compare_timings([alternating])
    assert alternating.repeated_rounds == HIDDEN.rounds
    assert (timing.bytes_up, timing.setup_bytes_up, timing.setup_seconds) == (130.0, 0.0, 0.0)


def test_one_round_alone_says_that_it_is_one() -> None:
    single = method("full-he", HIDDEN.rounds[:1])
    (timing,) = compare_timings([single])
    assert not timing.first_round_apart
    assert (timing.protection_seconds, timing.setup_seconds) == (3.125, 0.0)
    result = RunResult("data", "mlp", {}, {}, 10, [single])
    assert ("full-he", "time and bytes are of one round alone, with what a first round does once") in remarks(
        result
    )


def test_runs_know_who_trains_alike() -> None:
    config = RunConfig(
        clients=2, min_clients=2, rounds=2, local_epochs=1, model="mlp", threads=1, alpha=100.0
    )
    # Under round keys, where what is encrypted takes more bytes than what is not.
    settings = MethodSettings()
    for name in ("full-he", "fedml-he"):
        settings = settings.changed(name, {"encryption": "ckks"})
    with fewer_samples(coarse=True):
        result = run_methods(config, ("full-he", "dp-sgd", "fedml-he"), settings)
    full, private, sparse = compare_timings(result.methods)
    assert full.trained_alike == sparse.trained_alike == ("full-he", "fedml-he")
    assert private.trained_alike == ("dp-sgd",)
    # FedML-HE agrees on its mask in the first round, encrypts a tenth, and must not look slower than encrypting all.
    assert sparse.setup_bytes_up > sparse.bytes_up < full.bytes_up
