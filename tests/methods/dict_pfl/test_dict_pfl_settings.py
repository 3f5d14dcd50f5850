"""What DictPFL is set up with: settings and the secret."""

from __future__ import annotations

import numpy as np
import pytest

from methods.dict_pfl.dict_pfl_run import run_of
from methods.method_conformance import initial_model
from methods.small_plan import small_plan
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.dict_pfl.settings import FactorisationSettings
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.rounds.embedded_roles import EmbeddedRoles


def test_a_rank_comes_back_as_an_int():
    assert type(FactorisationSettings(np.uint8(4)).rank) is int


def test_the_secret_is_never_reported():
    run = run_of()
    settings = run.settings()
    assert "secret" not in repr(settings)
    assert run.shared_secret.hex() not in run.setup.to_bytes().decode()
    assert settings["rank"] == 4


def test_each_federation_in_one_process_draws_its_own_secret():
    method = make_method("dict-pfl", MethodSettings(), small_plan())
    roles = [EmbeddedRoles(method, initial_model()) for _ in range(2)]
    assert roles[0].shared_secret != roles[1].shared_secret
    # Set-ups go to everybody: they tell of the secret neither as it is nor as text.
    for one in roles:
        data = one.setup.to_bytes()
        assert one.shared_secret not in data
        assert one.shared_secret.hex() not in data.decode()


NO_SECRETS = [b"", b"too short", "x" * 32, bytearray(32)]
REFUSED = r"at least 16 random bytes|share a secret"


@pytest.mark.parametrize("secret", [None, *NO_SECRETS])
def test_an_authority_that_opens_refuses_a_secret_that_is_none(secret):
    method = make_method("dict-pfl", MethodSettings(), small_plan(opener="authority"))
    with pytest.raises(ParameterError, match=REFUSED):
        method.authority_setup(initial_model(), shared_secret=secret)


@pytest.mark.parametrize("secret", NO_SECRETS)
def test_clients_that_open_refuse_a_secret_that_is_none(secret):
    method = make_method("dict-pfl", MethodSettings(), small_plan(opener="clients"))
    _, setup = method.authority_setup(initial_model(), shared_secret=secret)  # which needs none
    with pytest.raises(ParameterError, match=REFUSED):
        method.client_steps(setup, 0, 1, initial_model(), shared_secret=secret)


def test_a_client_without_the_secret_enrols_and_no_more_until_it_is_granted():
    method = make_method("dict-pfl", MethodSettings(), small_plan(opener="clients"))
    initial = initial_model()
    authority, setup = method.authority_setup(initial)
    found = []
    for index in range(method.plan.clients):
        enrolling = method.client_steps(setup, index, 1, initial)
        with pytest.raises(PolicyError, match="granted no answers"):
            method.granted_client_steps(setup, index, 1, initial, enrolling)
        with pytest.raises(PolicyError, match="only enrols"):
            enrolling.begin_round(1, method.plan.clients, authority.newest_model())
        enrolling.enrolled(authority.enrol(index, enrolling.enrolment()))
        client, secret = method.granted_client_steps(setup, index, 1, initial, enrolling)
        assert not client.awaits_secret
        assert client.enrolment() == enrolling.enrolment()
        found.append(secret)
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert found[0] not in setup.to_bytes()
