"""CSV files of a report, against its result and its table."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from lab.simulation.report.made_up_runs import changed, run_of, run_of_sixteen
from shieldfl.lab.report.run_summary import rounds_csv, summarise, summary_csv
from shieldfl.quantities import bytes_text, epsilon_text, metric_text, seconds_text, share_text


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
