"""What every method must do, whatever it protects with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.variants import (
    FAINT_TOLERANCE,
    TWINS_OF_EACH_KIND,
    Variant,
    by_turns,
    labelled,
    opened_by_aggregator,
    opened_by_clients,
    twins,
    variants,
)
from shieldfl.methods.registry import BUILT_IN
from shieldfl.testing import MethodConformance
from shieldfl.testing.conformance import float_spacing

# One of each kind of method: the suite takes a minute for all of them.
OPENED_BY_CLIENTS = (
    "full-he",
    "top-2",
    "fedml-he",
    "mask-crypt",
    "dict-pfl",
    "alt-fl-mp/noised",
    "selective-shield/clear",
    "selective-shield/encrypted",
)


OPENED_BY_AGGREGATOR = ("full-he", "fedml-he", "alt-fl-mp/noised", "selective-shield/encrypted")


def test_every_registered_method_is_covered():
    assert {variant.method for variant in variants()} == set(BUILT_IN)


TRIED = (
    *variants(),
    *opened_by_clients(map(labelled, OPENED_BY_CLIENTS)),
    *opened_by_aggregator(map(labelled, OPENED_BY_AGGREGATOR)),
    *twins(list(map(labelled, TWINS_OF_EACH_KIND))),
)
TESTS = [name for name in vars(MethodConformance) if name.startswith("test_")]


class TestMethodsOfThisPackage(MethodConformance):
    """Roles that last and roles that are restored take turns, from variant to variant and from test to test.

    So each variant meets both, and so does each test. Few and many bits behind the point take turns from variant to
    variant. The other half of all pairs is slow, and so is what :func:`by_turns` says.
    """

    takes_the_other_turn = False

    def pytest_generate_tests(self, metafunc):
        if "variant" in metafunc.fixturenames:
            metafunc.parametrize("variant", by_turns(metafunc.function.__name__, TRIED, ()))

    @pytest.fixture
    def case(self, variant):
        return variant.case

    @pytest.fixture
    def turn(self, request, variant):
        return (
            bool((TRIED.index(variant) + TESTS.index(request.function.__name__)) % 2)
            != self.takes_the_other_turn
        )

    @pytest.fixture
    def restarts(self, turn):
        return turn

    @pytest.fixture
    def lossless_case(self, variant, turn):
        bits = 20 if turn else 12
        return replace(variant.losing_nothing(bits).case, fraction_bits=bits)


@pytest.mark.slow
class TestMethodsOfThisPackageTheOtherWay(TestMethodsOfThisPackage):
    takes_the_other_turn = True
    # What takes no turns.
    test_runs_that_last_and_that_restart_train_the_same_model_and_state_what_they_did = None
    test_a_used_role_takes_a_state_whole_or_not_at_all = None
    test_the_schemes_that_the_class_names_are_those_that_it_takes = None


@pytest.mark.parametrize(
    "variant", [one for one in variants() if one.may_encrypt_nothing], ids=lambda variant: variant.label
)
def test_an_empty_encrypted_zone_works(variant):
    nothing = variant.encrypting_nothing()
    run = SteppedRun(nothing)
    plain = SteppedRun(
        Variant("fedavg", nothing.settings, "plain"), initial=run.initial, layer_offsets=nothing.layer_offsets
    )
    run.run_round()
    plain.run_round()
    # Nothing is encrypted and nothing kept: everything goes through the noise zone.
    difference = np.abs(run.parameters - plain.parameters.astype(np.float64))
    # Of the model, and of the sum that moves it.
    moved = run.parameters - run.initial.parameters
    tolerance = float_spacing(run.parameters, plain.parameters) + float_spacing(moved, moved)
    tolerance += FAINT_TOLERANCE if variant.noisy else 0.0
    assert np.all(difference <= tolerance)
    assert run.clients[0].disclosure.shares()["encrypted"] == 0.0
    assert run.clients[0].disclosure.shares()["personalised"] == 0.0
