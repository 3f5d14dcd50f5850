"""bench/papers: files with their rules, what measures a row, what is kept of a run, pages of what is stored."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

pytest.importorskip("torch")

import shieldfl as sf
from documentation_pages import ROOT, doc
from papers import claims, pages, rules, run, stored, table_file, verdicts
from papers.kinds import KINDS, kind_named, label_distributions
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise

TABLE = """
paper = "sense-crypt"
table = "Figure 10"
title = "distances"
kind = "label-distributions"
seconds = 1
rows = [
  { name = "five", with = { classes_per_client = 5 }, paper = { EMD = 2.78 } },
  { name = "two", with = { classes_per_client = 2 }, paper = { EMD = 9.9 } },
]

[settings]
clients = 10
classes = 10
samples_per_class = 20

[[columns]]
name = "EMD"
figure = "mean_label_distance"
rule = "within"
bound = 0.005
"""


@pytest.fixture
def bench(tmp_path):
    """A folder of tables and one of results, and the command on them."""
    tables, results = tmp_path / "tables", tmp_path / "results"
    tables.mkdir()
    (tables / "good.toml").write_text(TABLE)

    def command(*arguments):
        return run.main(list(arguments), tables, results)

    command.tables, command.results = tables, results
    return command


@pytest.fixture(scope="module")
def published():
    """All tables of the papers."""
    tables, wrong = run.load_all(table_file.TABLES)
    assert not wrong
    return tables


def judged(rule, cells, **settings):
    column = rules.Column("figure", "any", rule, **settings)
    return list(rules.judge(column, [(str(n), *cell) for n, cell in enumerate(cells)]).values())


def test_values_agree_within_a_distance_a_factor_or_a_range():
    cells = [("", 0.5, 0.59), ("", 0.5, 0.61), ("", 0.5, None), ("", 0.5, math.nan)]
    assert judged("within", cells, bound=0.1) == [True, False, None, False]
    cells = [("", 10.0, 20.0), ("", 10.0, 5.0), ("", 10.0, 21.0), ("", 10.0, 0.0), ("", 0.0, 0.0)]
    assert judged("factor", cells, bound=2.0) == [True, True, False, False, True]
    printed = [("", 0.0001, 0.00029), ("", 0.0001, 0.00031), ("", 0.0, 0.00009), ("", 0.0, 0.00011)]
    assert judged("factor", printed, bound=2.0, resolution=0.0001) == [True, False, True, False]
    assert judged("between", [("", (1.0, 2.0), 1.0), ("", (1.0, 2.0), 2.1)]) == [True, False]


def test_an_order_holds_for_a_whole_group_and_a_sign_beside_one_row():
    cells = [("a", 1.0, 7.0), ("a", 2.0, 8.0), ("b", 1.0, 7.0), ("b", 2.0, 7.0), ("c", 1.0, 7.0)]
    assert judged("order", cells) == [True, True, False, False, None]
    cells = [("", 1.0, 5.0), ("", 2.0, 5.1), ("", 0.5, 5.1), ("", 1.0, 5.1)]
    assert judged("sign", cells, against="0", bound=0.2) == [None, True, False, True]
    assert judged("sign", [("", 1.0, None), ("", 2.0, 5.1)], against="0") == [None, None]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"label-distributions"', '"dreams"', "unknown kind 'dreams'"),
        ('"mean_label_distance"', '"speed"', "unknown figure 'speed'"),
        ('"sense-crypt"', '"another"', "unknown paper"),
        ('"within"', '"like"', "unknown rule 'like'"),
        ("bound = 0.005", "", "needs a bound"),
        ("EMD = 9.9", "EMD = [1, 2]", "must be a range"),
        ("EMD = 9.9", "XYZ = 9.9", "unknown key 'XYZ'"),
        ("seconds = 1", "seconds = 3601", "an hour at most"),
        ('"two"', '"five"', "two rows have one name"),
        ("classes_per_client = 5", "classes_per_client = 0", "row 'five'"),
        ('paper = "sense-crypt"', 'paper = "sense-crypt"\nnot_run = "no time"', "not_run begins with"),
    ],
)
def test_a_file_that_asks_for_something_unknown_is_refused(old, new, said):
    assert TABLE.count(old) == 1
    with pytest.raises(ParameterError, match=said):
        table_file.parse_table(TABLE.replace(old, new), "bad")


def test_an_unknown_method_is_named_and_other_tables_run(bench, capsys):
    bad = TABLE.replace("label-distributions", "federation").replace("mean_label_distance", "accuracy")
    bad = re.sub(r"classes_per_client = \d", 'method = "full-magic"', bad)
    (bench.tables / "bad.toml").write_text(re.sub(r"\[settings\].*?\n\n", "", bad, flags=re.S))
    assert bench() == 2
    assert re.search(r"bad\.toml: row 'five': .*full-magic", capsys.readouterr().err)
    stored = json.loads((bench.results / "good.json").read_text())
    assert stored["rows"]["five"]["figures"]["mean_label_distance"] == pytest.approx(125 / 45)
    assert bench("--only", "no-such-table") == 2


def test_what_is_kept_is_not_measured_again_until_file_or_code_change(bench, monkeypatch):
    measured = []

    def counting(table, row, measure=run.measured):
        measured.append(row.name)
        return measure(table, row)

    monkeypatch.setattr(run, "measured", counting)
    monkeypatch.setattr(stored, "code_digest", lambda *sources: "one code")
    assert bench() == bench("--only", "good") == 0
    assert measured == ["five", "two"]
    monkeypatch.setattr(stored, "code_digest", lambda *sources: "another code")
    assert bench("--small") == 0
    assert len(measured) == 4
    (bench.tables / "good.toml").write_text(TABLE.replace("0.005", "0.006"))
    table = table_file.load_table(bench.tables / "good.toml")
    assert stored.Stored.load(table, bench.results) is None
    assert bench() == 0
    assert len(measured) == 6
    monkeypatch.setattr(stored, "code_digest", lambda *sources: None)
    assert bench() == 0
    assert len(measured) == 8


def test_a_run_that_is_cut_off_goes_on_where_it_was(bench, monkeypatch):
    monkeypatch.setattr(stored, "code_digest", lambda *sources: "one code")

    def stopping(table, row, measure=run.measured):
        if row.name == "two":
            raise KeyboardInterrupt
        return measure(table, row)

    with monkeypatch.context() as cut:
        cut.setattr(run, "measured", stopping)
        assert bench() == 130
    first = json.loads((bench.results / "good.json").read_text())["rows"]
    assert list(first) == ["five"]
    assert bench() == 0
    rows = json.loads((bench.results / "good.json").read_text())["rows"]
    assert list(rows) == ["five", "two"]
    assert rows["five"] == first["five"]


def test_a_row_without_its_whole_data_set_is_no_failure_and_no_cell(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SHIELDFL_DATA", str(tmp_path))
    run.absent.cache_clear()
    (bench.tables / "good.toml").write_text(
        TABLE.replace("seconds = 1", 'seconds = 1\ndata = ["mnist", "svhn"]')
    )
    assert bench() == 0
    run.absent.cache_clear()
    assert "data absent: mnist" in capsys.readouterr().out
    table = table_file.load_table(bench.tables / "good.toml")
    counts = verdicts.Counts()
    counts.add(table, verdicts.cells_of(table, stored.Stored.load(table, bench.results)))
    assert (counts.run, counts.reasons) == (0, {"data absent": 2})
    assert run.absent("svhn") == "data absent: svhn"


def test_a_measurement_that_fails_is_said_and_tried_again(bench, monkeypatch, capsys):
    monkeypatch.setattr(label_distributions, "check", lambda settings: None)
    (bench.tables / "good.toml").write_text(
        TABLE.replace("classes_per_client = 2", "classes_per_client = -2")
    )
    assert bench() == 1
    assert "failed: " in capsys.readouterr().out
    assert bench() == 1
    assert "failed: " in capsys.readouterr().out


def test_cells_are_counted_once_and_pages_say_so(bench):
    assert bench() == 0
    table = table_file.load_table(bench.tables / "good.toml")
    written = pages.pages([(table, stored.Stored.load(table, bench.results))])
    page = written["sense-crypt.md"]
    assert "2 cells of 1 tables: 1 agree, 1 disagree (**bold**), 0 unjudged (*italic*), 0 not" in page
    assert "- **EMD** (1 of 2): agree within 0.005.\n" in page
    assert "| five | 2.78 | 2.778 |\n| two | 9.9 | **3.556** |" in page
    assert "| all | 1 | 1 | 0 | 2 | 1 | 1 | 0 | 0 |" in written["README.md"]


def test_all_tables_fit_a_working_day(published):
    assert len(published) >= 40
    assert sum(table.seconds for table in published if table.kind is not None) <= 8 * 3600
    assert {table.paper for table in published} == {"selective-shield", "sense-crypt", "dict-pfl", "alt-fl"}


def test_pages_are_those_of_what_is_stored(published):
    written = pages.pages(run.with_results(published))
    assert {name: doc(f"docs/explanation/papers/{name}") for name in written} == written
    assert {path.name for path in (ROOT / "docs" / "explanation" / "papers").iterdir()} == set(written)


def test_pages_speak_of_the_results_that_are_stored(published):
    for table, kept in run.with_results(published):
        if any(cell.ours is not None for cell in verdicts.cells_of(table, kept)):
            said = pages.words_of(table.paper)
            assert table.name in said, f"texts/{table.paper}.md says nothing of {table.name}"
            assert kept.commit in said[""], f"{table.name} is newer: read texts/{table.paper}.md again"


def test_nothing_is_stored_of_another_file_or_by_a_row_that_is_not_there(published):
    known = {table.name: table for table in published}
    for path in stored.RESULTS.glob("*.json"):
        kept = stored.Stored.load(known[path.stem])
        assert kept is not None, f"{path.stem} was measured under another file: measure it again"
        assert set(kept.rows) <= {row.name for row in known[path.stem].rows}


RUN = {"dataset": "digits", "model": "linear", "clients": 3, "rounds": 2, "local_epochs": 1}

SELECTION = {"dataset": "digits", "samples": 9, "epochs": 1, "bins": 8}


def test_every_kind_has_figures_and_refuses_unknown_settings():
    for name in KINDS:
        assert kind_named(name).figures
        with pytest.raises(ParameterError, match="unknown key"):
            kind_named(name).check({"nonsense": 1})
        with pytest.raises(ParameterError):
            kind_named(name).check({})


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("accounting", {"noise_multiplier": 1.0, "sample_rate": 0.1}, "accounting lacks steps, delta"),
        (
            "ciphertexts",
            {"scheme": "ckks", "values": 3, "parameters": {"depth": 2}},
            "no such parameters of ckks: .*depth",
        ),
        ("label-attack", {"method": "top-2"}, "unknown method 'top-2'"),
        ("label-attack", {"method": "sense-crypt", "trials": 1}, "label-attack of sense-crypt lacks client"),
        ("label-distributions", {"clients": 3}, "lacks classes, samples_per_class, classes_per_client"),
        ("selection", SELECTION | {"order": "high"}, "selection in an order lacks share"),
        ("selection", SELECTION | {"limits": {"budget": 0.1}}, "limits lacks exposed_share, exposure_decay"),
    ],
)
def test_settings_that_a_row_cannot_be_measured_with_are_named(name, settings, said):
    with pytest.raises(ParameterError, match=said):
        kind_named(name).check(settings)


def test_accounting_is_what_one_sample_is_charged():
    settings = {"noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 50, "delta": 1e-5}
    kind_named("accounting").check(settings)
    found = kind_named("accounting").measure(settings)["epsilon"]
    assert found == epsilon_of({Noise(1.0, "sample", 0.1): 50}, 1e-5)
    assert 1 < found < epsilon_of({Noise(1.0, "sample"): 50}, 1e-5)


def test_a_federation_s_figures_are_those_of_the_run():
    settings = {"method": "full-he", "run": RUN, "seeds": [0, 1, 2]}
    kind_named("federation").check(settings)
    runs = sf.run("digits", "full-he", seeds=(0, 1, 2), **{k: v for k, v in RUN.items() if k != "dataset"})
    accuracies = runs.figure("full-he", "accuracy").values
    mean, middle = (
        kind_named("federation").measure(settings | {"without_extremes": drops}) for drops in (False, True)
    )
    assert mean["accuracy"] == pytest.approx(accuracies.mean())
    assert mean["accuracy deviation"] == pytest.approx(accuracies.std(ddof=1))
    assert middle["accuracy"] == np.median(accuracies)
    assert math.isnan(mean["converged_round"])


def test_a_federation_against_another_says_how_many_times_less():
    settings = {"method": "fedavg", "run": RUN, "against": ["full-he"]}
    found = kind_named("federation").measure(settings)
    runs = sf.run("digits", ["fedavg", "full-he"], **{k: v for k, v in RUN.items() if k != "dataset"})
    more, less = (
        sum(one.bytes_up + one.bytes_down for one in run.rounds) for run in reversed(runs.runs[0].methods)
    )
    assert found["total_bytes"] == more / less > 1


def test_selection_leaves_more_to_read_where_less_is_encrypted():
    common = {"dataset": "digits", "model": "linear", "samples": 200, "epochs": 1, "bins": 64}
    few, many = (
        kind_named("selection").measure(common | {"order": "random", "share": share}) for share in (0.1, 0.9)
    )
    assert (few["encrypted_share"], many["encrypted_share"]) == (0.1, 0.9)
    assert 1 > few["information_share"] > many["information_share"] > 0
    high, low = (
        kind_named("selection").measure(common | {"order": order, "share": 0.3}) for order in ("high", "low")
    )
    assert high["encrypted_share"] == pytest.approx(low["encrypted_share"], abs=0.01)
    limits = {"budget": 0.05, "exposed_share": 0.01, "exposure_decay": 0.1}
    assert kind_named("selection").measure(common | {"limits": limits})["feasible"] == 0.0
    assert (
        kind_named("selection").measure(common | {"limits": limits | {"exposed_share": 1.0}})["feasible"]
        == 1.0
    )


def test_bytes_of_ciphertexts_are_those_of_the_frame_less_its_head():
    settings = {"scheme": "ckks", "values": 3, "parameters": {"packing": "slots"}}
    kind_named("ciphertexts").check(settings)
    found = kind_named("ciphertexts").measure(settings)
    assert 0 < found["frame_bytes"] - found["ciphertext_bytes"] < 1000
    assert (
        kind_named("ciphertexts").measure(settings | {"values": 1})["ciphertext_bytes"]
        == found["ciphertext_bytes"]
    )
    with pytest.raises(ParameterError, match="unknown scheme"):
        kind_named("ciphertexts").check(settings | {"scheme": "magic"})


CLAIM = """
[[claims]]
paper = "sense-crypt"
claim = "Labels are far apart"
where = "figure 10"
rule = "Three quarters of the cells agree."
command = "python bench/papers/run.py"
"""


@pytest.fixture
def claimed(tmp_path):
    """Reads a file of claims with these lines more."""

    def read(more):
        (tmp_path / "claims.toml").write_text(CLAIM + more)
        return claims.load_claims(tmp_path / "claims.toml")

    return read


def test_every_paper_has_three_claims_with_a_verdict_of_cells_that_there_are(published):
    found = claims.load_claims()
    assert [claim.paper for claim in found] == [name for name in table_file.PAPERS for _ in range(3)]
    by_name = {table.name: verdicts.cells_of(table, kept) for table, kept in run.with_results(published)}
    for claim in found:
        for table, columns in (claim.cells or {}).items():
            assert set(columns) <= {cell.column.name for cell in by_name[table]}
        ours, verdict = claim.judged(by_name.__getitem__)
        assert ours
        assert verdict.partition(":")[0] in claims.VERDICTS
        assert verdict == "reproduced" or ":" in verdict or claim.cells


@pytest.mark.parametrize(
    ("agreeing", "said"),
    [
        ([True, True, True, False], "reproduced"),
        ([True, False], "not reproduced"),
        ([True, None], "not measured"),
        ([], "not measured"),
    ],
)
def test_a_claim_holds_if_three_quarters_of_its_cells_agree(claimed, bench, agreeing, said):
    (claim,) = claimed('cells = { good = ["EMD"] }')
    table = table_file.load_table(bench.tables / "good.toml")
    cells = [verdicts.Cell(table.rows[0], table.columns[0], 1.0, 1.0, one, "") for one in agreeing]
    other = verdicts.Cell(table.rows[0], rules.Column("other", "f", "within", 1.0), 1.0, 1.0, False, "")
    assert claim.judged(lambda _: [*cells, other])[1] == said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "claim 1 lacks ours"),
        ('ours = "2"', "claim 1 lacks verdict"),
        ('ours = "2"\nverdict = "perhaps"', "a verdict begins with one of reproduced, not reproduced"),
        ('ours = "2"\nverdict = "reproduced"\nnumber = 3', "number"),
    ],
)
def test_a_claim_without_a_verdict_is_refused(claimed, more, said):
    with pytest.raises(ParameterError, match=said):
        claimed(more)
    with pytest.raises(ParameterError, match="unknown paper"):
        claimed(
            'ours = "2"\nverdict = "reproduced"\n'
            + CLAIM.replace("sense-crypt", "other")
            + 'ours = "2"\nverdict = "reproduced"'
        )
