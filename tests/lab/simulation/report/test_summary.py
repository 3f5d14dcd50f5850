"""What a report says of a run in a sentence, a table, CSV files, times, and beside the papers' figures."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from lab.simulation.report.made_up_runs import changed, run_of, run_of_sixteen
from lab.simulation.report.made_up_runs import record as made_up
from lab.simulation.small_runs import fewer_samples, run_methods
from shieldfl.errors import ParameterError
from shieldfl.lab.report.run_summary import findings, remarks, rounds_csv, summarise, summary_csv
from shieldfl.lab.simulation.compared_runs import PaperFigure, compare_figures
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import MethodResult, RoundRecord, RunResult, compare_timings
from shieldfl.methods.registry import MethodSettings
from shieldfl.quantities import bytes_text, epsilon_text, metric_text, seconds_text, share_text


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
    assert ("full-he", "time and bytes are from a single round and include the set-up") in remarks(result)


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


@pytest.mark.parametrize(
    ("accuracies", "samples", "close"),
    [
        ({"fedavg": 0.5}, 1_000, False),
        ({"fedavg": 0.5, "top-2": 0.9}, 1_000, False),
        ({"fedavg": 0.9, "top-2": 0.89}, 100_000, False),
        ({"fedavg": 0.9, "top-2": 0.89}, 1_000, True),
        ({"fedavg": 0.9, "full-he": 0.75, "top-2": 0.89}, 1_000, False),
        ({"fedavg": 0.75, "top-2": 0.75}, 1_000, False),
        ({"fedavg": math.nan, "top-2": 0.5}, 1_000, False),
    ],
)
def test_accuracies_that_samples_cannot_tell_apart(accuracies, samples, close) -> None:
    result = replace(run_of(*accuracies), dataset=f"made up (9 train / {samples:,} test)")
    for number, accuracy in enumerate(accuracies.values()):
        result = changed(result, number, accuracy=accuracy)
    assert findings(result) == ["1,000 test samples cannot tell these accuracies apart."] * close
    assert findings(replace(result, metrics=("mse",))) == findings(replace(result, dataset="mine")) == []


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_summary_has_each_figure_of_each_method() -> None:
    result = run_of_sixteen()
    rows = [row for section in summarise(result) for row in section.rows]
    read = lines(summary_csv(result))
    assert list(read[0]) == ["method", *dict.fromkeys(row.name for row in rows), "readable_parts"]
    texts = {"accuracy": lambda value: metric_text(value, "accuracy"), "share_encrypted": share_text}
    texts |= {"bytes_up": bytes_text, "epsilon": epsilon_text, "seconds_round": seconds_text}
    for number, (line, method) in enumerate(zip(read, result.methods, strict=True)):
        assert line["method"] == method.method
        assert line["readable_parts"] == ", ".join(method.readable_parts)
        for row in rows:
            if row.name in texts:
                assert texts[row.name](float(line[row.name])) == row.cells[number].partition(" (")[0]
    (plain,) = lines(summary_csv(run_of('a,"b"\nc')))
    assert (plain["method"], plain["encrypted_by"]) == ('a,"b"\nc', "")


def test_rounds_have_a_line_for_each_method_and_round() -> None:
    result = replace(run_of("fedavg", "full-he", rounds=2), metrics=("accuracy", "mse"))
    result = changed(result, 0, metrics={"mse": 0.5}, personalised_metrics={"mse": 0.25})
    read = lines(rounds_csv(result))
    assert [(line["method"], line["round"]) for line in read] == [
        (method, str(number)) for method in ("fedavg", "full-he") for number in (1, 2)
    ]
    last, record = read[-1], result.methods[1].last
    assert float(last["accuracy"]) == record.accuracy
    assert float(last["share_noise"]) == record.zone_shares["noise"]
    assert float(last["seconds_encrypt"]) == record.stage_seconds["encrypt"]
    assert (read[0]["mse"], read[0]["personalised_mse"], last["mse"]) == ("0.5", "0.25", "")
    assert read[0]["epsilon"] == "inf"


def run_result() -> RunResult:
    result = run_of("fedavg", "selective-shield", rounds=2)
    last = replace(
        result.methods[1].last, zone_shares={"encrypted": 0.2, "clear": 0.8}, dropped=1, bytes_up=2e6
    )
    result.methods[1].rounds[1] = last
    return result


@pytest.mark.parametrize(
    ("figure", "ours"),
    [
        ("accuracy", 0.75),
        ("best_accuracy", 0.75),
        ("personalised_accuracy", 0.7),
        ("encrypted_share", 0.11),
        ("encrypt_seconds", 0.25),
        ("encrypt_seconds_per_client", 0.0125),
        ("round_seconds", 2.0),
        ("bytes_up", 2e6),
        ("bytes_down", 1.2e6),
        ("total_bytes", 5.9e6),
        ("epsilon", 5.0),
    ],
)
def test_a_figure_is_read_off_the_run(figure, ours):
    (compared,) = compare_figures(run_result(), (PaperFigure("a table", "selective-shield", figure, (1.0,)),))
    assert compared.ours == pytest.approx(ours)


def test_a_figure_against_another_method_says_how_many_times_less():
    paper = PaperFigure(
        "a table", "fedavg", "bytes_up", (402.0, 748.0), "selective-shield", "on a larger model"
    )
    (compared,) = compare_figures(run_result(), (paper,))
    assert compared.cells() == (
        "fedavg",
        "up, a round and client: selective-shield / fedavg",
        "×2.00",
        "×402 to ×748",
        "a table; on a larger model",
    )
    assert compared.to_json()["ours"] == 2.0
    (missing,) = compare_figures(changed(run_result(), 0, bytes_up=0), (paper,))
    assert math.isnan(missing.ours)
    assert missing.cells()[2] == "–"
    assert missing.to_json()["ours"] is None
    (plain,) = compare_figures(run_result(), (PaperFigure("table 8", "fedavg", "accuracy", (0.981,)),))
    assert plain.cells() == ("fedavg", "accuracy", "75.00 %", "98.10 %", "table 8")


@pytest.mark.parametrize(("method", "against"), [("top-2", None), ("fedavg", "top-2")])
def test_a_method_that_did_not_run(method, against):
    with pytest.raises(ParameterError, match="no method 'top-2'"):
        compare_figures(run_result(), (PaperFigure("a table", method, "accuracy", (1.0,), against),))
