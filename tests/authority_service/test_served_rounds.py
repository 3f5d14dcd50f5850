"""Rounds with an authority that is served give the models that rounds with an embedded one give, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from authority_service.served import ANY, check_equals_embedded, made_folder, served, served_run
from methods.method_conformance import SteppedRun
from methods.variants import labelled, opened_by_aggregator, opened_by_clients


def variant_of(label, opener):
    opened_by = {"aggregator": opened_by_aggregator, "clients": opened_by_clients}.get(opener)
    return labelled(label) if opened_by is None else opened_by([labelled(label)])[0]


VARIANTS = [
    ("full-he", "clients"),
    ("full-he", "aggregator"),
    ("fedml-he", "aggregator"),
    ("selective-shield/clear", "clients"),
    ("selective-shield/encrypted", "clients"),
    ("alt-fl-pi", "clients"),
    ("dict-pfl", "clients"),
    ("mask-crypt", "the authority"),
    ("full-he/ckks", "the authority"),
    ("sense-crypt/ckks", "the authority"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made_folder(tmp_path_factory.mktemp("served") / "authority", **ANY)


@pytest.mark.every_run(
    "selective-shield/encrypted-clients", "full-he-aggregator", "sense-crypt/ckks-the authority"
)
@pytest.mark.parametrize(("label", "opener"), VARIANTS)
def test_models_and_events_are_those_of_an_embedded_authority(folder, label, opener):
    with served(folder) as one, one.client() as client:
        check_equals_embedded(client, variant_of(label, opener))


def test_a_session_goes_on_in_another_process_with_the_answers_that_it_gave(tmp_path):
    folder = made_folder(tmp_path / "authority", **ANY)
    with served(folder) as one, one.client() as client:
        run = served_run(client, variant_of("full-he", "clients"), min_clients=3)
        run.run_round()
        session, asked = run.authority.session_id, run.aggregator.request("update")
        answer = run.authority.answer("update", asked)
    with served(folder) as again, again.client() as client:
        run.authority = client.session(session)
        assert run.authority.answer("update", asked) == answer
        for _ in range(2):
            run.run_round()
    embedded = SteppedRun(variant_of("full-he", "clients"), min_clients=3)
    for _ in range(3):
        embedded.run_round()
    np.testing.assert_array_equal(run.merged(0).parameters, embedded.merged(0).parameters)
