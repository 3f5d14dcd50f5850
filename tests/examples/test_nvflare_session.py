"""The session and the key authority of examples/nvflare, which need no NVFlare."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

import shieldfl as sf
from nvflare_example import (
    FOLDER,
    MODEL,
    MOST_STEPS,
    PASSPHRASE,
    SITES,
    Federation,
    model_of,
    module,
    weighted_mean,
)
from shieldfl.models import ModelLayout


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Federation(tmp_path_factory.mktemp("federation"), port)


def summed(federation, round_number, steps, sites=SITES):
    session = federation.session_module.Session.read(federation.aggregator)
    aggregator = sf.kahe.Aggregator(
        session.public_key, round=round_number, positions=sf.Mask.full(session.values), weighted=False
    )
    for number, site in enumerate(sites):
        own = federation.session_module.ClientSite(federation.sites[site])
        values = session.weighted(model_of(100 * round_number + number), steps[number])
        with own.store() as store:
            aggregator.add(store.encrypt(session.public_key, values, round=round_number))
    return session, aggregator.total()


def test_a_served_authority_answers_and_sites_open_the_weighted_mean(federation):
    steps = (8, 3, 1)
    session, total = summed(federation, 0, steps)
    ask = federation.authority_module.answer_from
    with federation.served():
        answer = ask(federation.address, federation.aggregator, total.request())
        assert ask(federation.address, federation.aggregator, total.request()) == answer
        _, small = summed(federation, 1, steps, SITES[:2])
        with pytest.raises(sf.PolicyError, match="2"):
            ask(federation.address, federation.aggregator, small.request())
        with pytest.raises(sf.WireFormatError):
            ask(federation.address, federation.aggregator, b"no request")
    wanted = weighted_mean([model_of(number) for number in range(3)], steps)
    for site in SITES:
        own = federation.session_module.ClientSite(federation.sites[site])
        with own.store() as store:
            mean = session.mean(store.open(session.public_key, total, answer), total.clients)
        assert list(mean) == list(MODEL)
        for name, array in wanted.items():
            np.testing.assert_allclose(mean[name], array, atol=2**-19)


@pytest.mark.slow
def test_who_has_no_certificate_of_the_authority_gets_no_answer(federation, tmp_path):
    other = tmp_path / "other"
    module("key_authority").make(
        other,
        ModelLayout.of(MODEL),
        max_clients=3,
        min_clients=3,
        most_steps=1,
        address=federation.address,
        passphrase=PASSPHRASE,
    )
    forged = shutil.copytree(other / "aggregator", tmp_path / "forged")
    shutil.copy(federation.aggregator / "ca.crt", forged)
    _, total = summed(federation, 5, (1, 1, 1))
    with federation.served(), pytest.raises(sf.errors.UnreachableError, match="does not answer"):
        federation.authority_module.answer_from(federation.address, forged, total.request())


def test_an_authority_that_is_not_served_is_said(federation):
    with pytest.raises(sf.errors.UnreachableError, match="does not answer"):
        federation.authority_module.answer_from(federation.address, federation.aggregator, b"anything")


def test_what_a_client_cannot_weigh_by_is_refused(federation):
    session = federation.session_module.Session.read(federation.aggregator)
    for steps in (0, MOST_STEPS + 1):
        with pytest.raises(ValueError, match="the session is for 1 to 8"):
            session.weighted(MODEL, steps)
    with pytest.raises(sf.ParameterError, match=r"layer\.bias"):
        session.weighted({"layer.weight": MODEL["layer.weight"]}, 1)
    for forged in (-0.25, 3.5):
        with pytest.raises(ValueError, match="forged"):
            session.mean(np.append(np.zeros(session.layout.size), forged), 3)


def test_a_sites_secret_is_drawn_once(federation):
    before = {path.name: path.read_bytes() for path in federation.sites["site-1"].iterdir()}
    with pytest.raises(sf.PolicyError, match="has this site's secret already"):
        federation.session_module.ClientSite.request(federation.sites["site-1"], "site-1")
    assert before == {path.name: path.read_bytes() for path in federation.sites["site-1"].iterdir()}


@pytest.mark.slow
def test_the_commands_of_operator_and_site(tmp_path):
    def run(program, *arguments):
        subprocess.run(
            [sys.executable, FOLDER / program, *map(str, arguments)],
            env=os.environ | {"SHIELDFL_AUTHORITY_PASSPHRASE": PASSPHRASE},
            check=True,
        )

    layout, authority, site = tmp_path / "layout.json", tmp_path / "authority", tmp_path / "site"
    layout.write_text(ModelLayout.of(MODEL).to_json())
    sizes = ("--layout", layout, "--max-clients", 4, "--most-steps", 9, "--address", "127.0.0.1:7445")
    run("key_authority.py", "init", authority, *sizes)
    site.mkdir()
    shutil.copy(authority / "aggregator" / "session.json", site)
    request, grant = tmp_path / "request", tmp_path / "grant"
    run("kahe_session.py", "request", site, "site-7", request)
    run("key_authority.py", "accept", authority, request, grant)
    run("kahe_session.py", "take-grant", site, grant)
    own = module("kahe_session").ClientSite(site)
    assert own.session.most_steps == 9
    with own.store() as store:
        assert store.opening_keys(own.session.public_key)
