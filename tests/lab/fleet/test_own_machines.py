"""Clients with machines of their own: their profiles, idle time, and models that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.fleet.fleets import COSTS, client, fleet_of
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_model import DeviceProfile, ModelProfile, SchemeProfile
from shieldfl.lab.fleet.cost_source import CostSource
from shieldfl.lab.fleet.fleet import load_fleet, parse_fleet
from shieldfl.lab.fleet.planner import plan_round

WIDE = {"upload_bytes_per_second": 1e15, "download_bytes_per_second": 1e15}
FILE = '[model]\nparameters = 100\n{model}[[client]]\ncores = 1\nbandwidth = "1 GB/s"\nsamples = 1\n'


def free_but_for(**scheme: object):
    """Costs of nothing but one scheme's steps, of one value in a ciphertext."""
    nothing = {
        "encrypt_seconds": {1: 0.0},
        "add_seconds": 0.0,
        "open_seconds": 0.0,
        "values_per_ciphertext": 1,
    }
    return replace(
        COSTS,
        scheme=replace(COSTS.scheme, **(nothing | scheme)),
        train_seconds_per_sample=0.0,
        score_seconds_per_value=0.0,
        select_seconds_per_value=0.0,
    )


def profile_of(model: str | None) -> DeviceProfile:
    scheme = SchemeProfile("ckks", "made up", 10, 100.0, {1: 1.0}, 0.25, 0.5, False)
    trained = None if model is None else ModelProfile(model, (1, 28, 28), 100, {1: 0.1})
    return DeviceProfile({}, (scheme,), 1e-9, 1e-9, 1e-9, trained)


def source_of(profile: DeviceProfile) -> CostSource:
    return CostSource({"ckks": profile.cost_model("ckks")}, profile)


def test_filling_the_pool_counts_where_a_client_is_not_idle():
    costs = free_but_for(encrypt_seconds={1: 0.001}, pool_seconds={1: 1.0})
    busy, idle = client("busy", **WIDE), client("idle", idle_seconds=30.0, **WIDE)
    fleet = fleet_of(busy, idle)
    np.testing.assert_allclose(costs.pool_seconds(fleet, 40), [40.0, 40.0])
    np.testing.assert_allclose(costs.encrypt_seconds(fleet, 40), [40.04, 10.04])


def test_randomisers_are_not_free_in_the_ranking():
    """A pool that takes as long to fill as plain encryption takes is no better than plain encryption."""
    pooled = free_but_for(name="pooled", encrypt_seconds={1: 0.01}, pool_seconds={1: 1.0})
    plain = free_but_for(name="plain", encrypt_seconds={1: 1.0})
    costs = {"pooled": pooled, "plain": plain}
    found = plan_round(fleet_of(client("busy", **WIDE)), costs, 50.0)
    assert found.best.scheme == "plain"
    assert found.others[0].pool_seconds == pytest.approx(100 * found.others[0].mask_ratio)
    idle = plan_round(fleet_of(client("idle", idle_seconds=1000.0, **WIDE)), costs, 50.0)
    assert idle.best.scheme == "pooled"
    assert idle.best.mask_ratio == 1.0


def test_a_pooled_scheme_needs_the_time_of_its_pool():
    scheme = SchemeProfile("paillier-single-pooled", "x", 1, 1.0, {1: 1.0}, 1.0, 1.0, True)
    with pytest.raises(ParameterError, match="one thread"):
        DeviceProfile({}, (scheme,), 1.0, 1.0, 1.0)
    filled = replace(scheme, pool_seconds={1: 2.0})
    assert DeviceProfile({}, (filled,), 1.0, 1.0, 1.0).cost_model(scheme.name).scheme.pool_seconds == {1: 2.0}


def test_a_client_has_the_costs_of_its_own_profile():
    slow = free_but_for(encrypt_seconds={1: 7.0})
    costs = replace(free_but_for(encrypt_seconds={1: 1.0}), clients={"pi.json": slow})
    fleet = fleet_of(client("here"), client("pi", profile="pi.json", count=2))
    np.testing.assert_allclose(costs.encrypt_seconds(fleet, 3), [3.0, 21.0, 21.0])
    with pytest.raises(ParameterError, match=r"pi\.json"):
        free_but_for(encrypt_seconds={1: 1.0}).encrypt_seconds(fleet, 3)


def test_a_profile_is_looked_for_beside_the_fleet_file(tmp_path: Path):
    path = tmp_path / "fleet.toml"
    path.write_text(FILE.format(model="") + 'profile = "pi.json"\nidle = "2 min"\n')
    (kind,) = load_fleet(path).kinds
    assert (kind.profile, kind.idle_seconds) == (str(tmp_path / "pi.json"), 120.0)


@pytest.mark.parametrize("measured", ["mlp", None])
def test_unknown_models_are_refused(measured: str | None):
    source = source_of(profile_of(measured))
    with pytest.raises(
        ParameterError, match=r"'resnet18', only of .*mlp.*: calibrate with --model, one of linear, mlp"
    ):
        source.check([parse_fleet(FILE.format(model='name = "resnet18"\n'))])
    source.check([parse_fleet(FILE.format(model='name = "mlp"\n'))])
    source.check([parse_fleet(FILE.format(model=""))])
    stated = 'name = "resnet18"\ntrain_core_seconds_per_sample = 0.01\n'
    source.check([parse_fleet(FILE.format(model=stated))])
