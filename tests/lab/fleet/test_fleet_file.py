"""Fleet files, and clients with machines of their own: profiles, idle time, models that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.fleet.fleets import WIDE, client, fleet_of, free_but_for
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import CostSource, DeviceProfile, ModelProfile, SchemeProfile
from shieldfl.lab.fleet.fleet import load_fleet, parse_fleet
from shieldfl.lab.fleet.round_simulation import plan_round

EXPERIMENTS = Path(__file__).parents[3] / "bench" / "experiments"

MODEL = "[model]\nparameters = 1000\n"
CLIENT = '[[client]]\ncores = 4\nbandwidth = "10 MB/s"\nsamples = 100\n'


def test_everything_that_a_file_can_state():
    fleet = parse_fleet(
        """
        name = "two kinds"
        [model]
        name = "mlp"
        parameters = 5000
        train_core_seconds_per_sample = 0.002
        [training]
        local_epochs = 5
        min_clients = 3
        [aggregator]
        cores = 16
        [[client]]
        name = "phone"
        count = 3
        cluster = "north"
        cores = 2
        cpu_share = 0.5
        core_speed = 0.8
        upload = "8 Mbit/s"
        download = "4 MB/s"
        latency = "30 ms"
        samples = 200
        dropout = 0.1
        [[client]]
        name = "server"
        cluster = "south"
        cores = 32
        bandwidth = "50 MB/s"
        samples = 900
        """
    )
    assert (fleet.name, fleet.size) == ("two kinds", 4)
    assert fleet.client_names == ("phone 1", "phone 2", "phone 3", "server")
    assert fleet.cluster_names == ("north", "south")
    np.testing.assert_array_equal(fleet.clusters, [0, 0, 0, 1])
    np.testing.assert_allclose(fleet.core_rate, [0.4, 0.4, 0.4, 1.0])
    np.testing.assert_allclose(fleet.cores, [2, 2, 2, 32])
    np.testing.assert_allclose(fleet.upload_bytes_per_second, [1e6, 1e6, 1e6, 50e6])
    np.testing.assert_allclose(fleet.download_bytes_per_second, [4e6, 4e6, 4e6, 50e6])
    np.testing.assert_allclose(fleet.latency_seconds, [0.03, 0.03, 0.03, 0.0])
    np.testing.assert_allclose(fleet.dropout_probability, [0.1, 0.1, 0.1, 0.0])
    np.testing.assert_allclose(fleet.samples, [200, 200, 200, 900])
    assert (fleet.training.local_epochs, fleet.training.min_clients, fleet.aggregator.cores) == (5, 3, 16)
    assert fleet.model.train_core_seconds_per_sample == 0.002


def test_what_a_file_need_not_state():
    fleet = parse_fleet(MODEL + CLIENT, "small")
    assert (fleet.name, fleet.client_names, fleet.cluster_names) == ("small", ("client 1",), ("",))
    assert fleet.model.train_core_seconds_per_sample is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[model", "not valid TOML"),
        (MODEL, "has no clients"),
        ("client = []\n" + MODEL, "has no clients"),
        (MODEL + CLIENT.replace("[[client]]", "[client]"), r"write \[\[client\]\], with two brackets"),
        (CLIENT, r"\[model\] lacks parameters"),
        (
            MODEL + CLIENT + "cpus = 3\n",
            r"\[\[client\]\] 'client 1' has the unknown key 'cpus': use name, cores",
        ),
        (
            MODEL + CLIENT + 'name = "phone"\ncpu_share = 1.5\n',
            "'phone' cpu_share must be a number, above 0 and at most 1, not 1.5",
        ),
        (MODEL + CLIENT + 'upload = "1 MB/s"\n', "states bandwidth and upload"),
        (
            MODEL + CLIENT.replace("10 MB/s", "0 MB/s"),
            "bandwidth: upload must be a number, above 0, .* not '0 MB/s'",
        ),
        (MODEL + CLIENT.replace('bandwidth = "10 MB/s"', 'upload = "1 MB/s"'), "lacks download"),
        (MODEL + CLIENT + 'name = ""\n', "name must be a text that is not empty"),
        (MODEL + CLIENT + "[[client]]\ncores = 1\n", "'client 2' lacks samples"),
    ],
)
def test_refused(text, said):
    with pytest.raises(ParameterError, match=said):
        parse_fleet(text)


@pytest.mark.parametrize(
    ("name", "clients", "clusters", "cores"),
    [
        ("statistical", 20, 4, {32}),
        ("system", 20, 1, {24, 16, 12, 10, 8}),
        ("statistical-system", 20, 4, {24, 16, 12, 10, 8}),
        ("degree-1", 5, 1, {32, 30, 28, 26, 24}),
        ("degree-2", 5, 1, {32, 28, 24, 20, 16}),
        ("degree-3", 5, 1, {32, 24, 18, 16, 12}),
        ("degree-4", 5, 1, {32, 16, 12, 10, 8}),
    ],
)
def test_the_papers_fleets(name, clients, clusters, cores):
    fleet = load_fleet(EXPERIMENTS / f"fleet-{name}.toml")
    assert (fleet.name, fleet.size, len(fleet.cluster_names)) == (f"fleet-{name}", clients, clusters)
    assert set(fleet.cores.tolist()) == cores
    assert fleet.model.parameters == 124_534
    assert fleet.samples.sum() == 50_000
    assert np.bincount(fleet.clusters).tolist() == [clients // clusters] * clusters


FILE = '[model]\nparameters = 100\n{model}[[client]]\ncores = 1\nbandwidth = "1 GB/s"\nsamples = 1\n'


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
