"""What docs/how-to/fleet.md says of fleet files and costs, against the code."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from documentation_pages import doc, prose_of, table_rows
from shieldfl.encryption.registry import calibrations
from shieldfl.lab.fleet.cost_source import (
    PAPER_PARAMETERS,
    MaskSettings,
    SensitivityCurve,
    paper_cost_model,
    plan_encryption,
)
from shieldfl.lab.fleet.fleet import Aggregator, ClientKind, Model, Training, parse_fleet
from shieldfl.lab.fleet.fleet_simulation import SimulationSettings
from shieldfl.lab.fleet.round_simulation import simulate

PAGE = doc("docs/how-to/fleet.md")
EXAMPLE = re.search(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL).group(1)


def test_the_example_is_a_fleet():
    fleet = parse_fleet(EXAMPLE)
    assert fleet.size == 41
    assert fleet.client_names[:2] == ("server", "phone 1")
    assert fleet.client_names[-1] == "phone 40"
    assert fleet.cluster_names == ("", "pupils")
    assert fleet.training == Training(local_epochs=5, min_clients=3)
    assert simulate("full-he", fleet, paper_cost_model()).total_seconds > 0.0


def test_every_key_is_in_the_table_with_its_default():
    rows = {name: row[1] for row in table_rows(PAGE, "key") for name in re.findall(r"`([a-z_.]+)`", row[0])}
    fields = {"upload_bytes_per_second": "upload", "download_bytes_per_second": "download"}
    fields |= {"latency_seconds": "latency", "dropout_probability": "dropout", "idle_seconds": "idle"}
    told = {"model.name", "model.train_core_seconds_per_sample", "client.name", "client.cluster"}
    told |= {"client.profile"}  # a text, like the ones above
    known = set()
    for section, kind in (
        ("model", Model),
        ("training", Training),
        ("aggregator", Aggregator),
        ("client", ClientKind),
    ):
        for field in dataclasses.fields(kind):
            name = f"{section}.{fields.get(field.name, field.name)}"
            known.add(name)
            if name in told:
                continue
            needed = field.default is dataclasses.MISSING
            assert rows[name] == ("needed" if needed else f"{field.default:g}"), name
    assert known ^ rows.keys() == {"model.name", "client.name", "client.bandwidth"}


def test_every_method_is_in_the_table():
    rows = table_rows(PAGE, "method")
    assert tuple(row[0].strip("`") for row in rows) == SimulationSettings().methods
    fleet, scheme = parse_fleet(EXAMPLE), paper_cost_model().scheme
    for name, _, selects in rows:
        assert plan_encryption(name.strip("`"), fleet, scheme).selects == (selects == "yes")


def test_every_scheme_is_named():
    for name in calibrations():
        assert f"`{name.removesuffix('-pooled')}`" in PAGE
    assert "`-pooled`" in PAGE


def test_shares_that_the_constraints_ask_for():
    page = prose_of("docs/how-to/fleet.md")
    best, most = SensitivityCurve.log_normal().best_ratio(), np.ones(1)
    assert f"security asks for less than the {best:.1%}".replace("%", " %") in page
    assert MaskSettings(cost_weight=np.inf).mask_ratios(most)[0][0] < best
    largest = MaskSettings(exposed_share=0.5, exposure_decay=2.0).mask_ratios(most)[0][0]
    assert f"encrypt more, up to {largest:.0%}".replace("%", " %") in page


def test_figures_of_the_papers_costs():
    page = prose_of("docs/how-to/fleet.md")
    costs = paper_cost_model()
    assert f"AlexNet with table 4's {PAPER_PARAMETERS:,} parameters" in page
    assert f"a value then takes {costs.scheme.encrypt_seconds[1]:.3f} core seconds" in page
    assert f"suggests {3925.9769 / 10_000 * (2048 / 3072) ** 3:.3f}" in page
    assert f"A ciphertext has {costs.scheme.ciphertext_bytes} bytes" in page
    solved = costs.select_seconds_per_value * PAPER_PARAMETERS
    assert solved == pytest.approx(float(re.search(r"its selection \(([\d.]+) s", page).group(1)))
