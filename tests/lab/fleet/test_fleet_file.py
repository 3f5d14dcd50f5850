from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.fleet import load_fleet, parse_fleet

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
