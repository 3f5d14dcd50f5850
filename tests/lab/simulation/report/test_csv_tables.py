"""CSV files of a report, against its result and its table."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from lab.simulation.report.made_up_runs import SIXTEEN, changed, run_of, run_of_sixteen
from shieldfl.lab.report.run_summary import rounds_csv, summarise, summary_csv
from shieldfl.lab.report.run_timing import compare_timings
from shieldfl.quantities import bytes_text, epsilon_text, metric_text, share_text


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_summary_has_each_figure_of_each_method() -> None:
    result = run_of_sixteen()
    rows = [row for section in summarise(result) for row in section.rows]
    read = lines(summary_csv(result))
    assert [line["method"] for line in read] == SIXTEEN
    assert list(read[0]) == ["method", *(row.name for row in rows), "readable_parts"]
    for number, (line, method, timing) in enumerate(
        zip(read, result.methods, compare_timings(result.methods), strict=True)
    ):
        assert float(line["accuracy"]) == method.last.accuracy
        assert float(line["seconds_round"]) == timing.round_seconds
        assert float(line["bytes_up"]) == timing.bytes_up
        assert line["readable_parts"] == ", ".join(method.readable_parts)
        texts = {"accuracy": lambda value: metric_text(value, "accuracy"), "share_encrypted": share_text}
        texts |= {"bytes_up": bytes_text, "bytes_down": bytes_text, "epsilon": epsilon_text}
        for row in rows:
            if row.name in texts:
                assert texts[row.name](float(line[row.name])) == row.cells[number].partition(" (")[0]
    assert len({row.name for row in rows}) == len(rows)


def test_what_there_is_not_is_empty_and_infinity_a_number() -> None:
    (line,) = lines(summary_csv(changed(run_of("fedavg"), 0, epsilon=math.inf)))
    assert float(line["epsilon"]) == math.inf
    assert (line["delta"], line["encrypted_by"], line["privacy_unit"]) == ("", "", "")
    (line,) = lines(summary_csv(changed(run_of("fedavg"), 0, epsilon=math.nan)))
    assert line["epsilon"] == ""


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
    assert float(last["seconds"]) == record.seconds
    assert (read[0]["mse"], read[0]["personalised_mse"], last["mse"]) == ("0.5", "0.25", "")
    assert float(read[0]["epsilon"]) == math.inf


@pytest.mark.parametrize("write", [summary_csv, rounds_csv])
def test_names_that_csv_would_take_for_its_own_are_quoted(write) -> None:
    result = run_of('a,"b"\nc')
    assert lines(write(result))[0]["method"] == 'a,"b"\nc'
