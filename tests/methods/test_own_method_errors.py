"""What goes wrong in a method of another package names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

import shieldfl as sf
from methods.offered_method import offer
from shieldfl.methods.fedavg import FedAvg, FedAvgClient
from shieldfl.methods.settings import MethodSettings
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.settings import Settings, Share, about

NAMED = r"the method 'own', [\w.]*test_own_method_errors:\w+"


@dataclass(frozen=True)
class OwnSettings(Settings):
    share: Annotated[Share, about("Of what is sent.")] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share == 0.25:
            raise ValueError("a quarter is none")


class Own(FedAvg):
    names = (NamedMethod("own", "everything", "a test", "nowhere", OwnSettings()),)
    privacy_reading = NO_NOISE
    aggregator_sees = "every client's update"


class Unmade(Own):
    names = Own.names
    privacy_reading = NO_NOISE
    aggregator_sees = "nothing"

    def __init__(self, name, settings, plan):
        raise TypeError("no plan suits me")


class Refusing(Unmade):
    names = Own.names
    privacy_reading = NO_NOISE
    aggregator_sees = "nothing"

    def __init__(self, name, settings, plan):
        raise sf.PolicyError("nobody may run me")


class Unadapted(Own):
    names = Own.names
    privacy_reading = NO_NOISE
    aggregator_sees = "nothing"

    @classmethod
    def adapted(cls, model, settings):
        raise KeyError("layer")


class BrokenClient(FedAvgClient):
    def _make(self, phase, answer):
        raise IndexError("out of my depth")


class Broken(Own):
    names = Own.names
    privacy_reading = NO_NOISE
    aggregator_sees = "nothing"

    def _client(self, context, index, weight, initial, shared_secret):
        return BrokenClient(index, initial, weight, context)


def run(**options):
    return sf.run("digits", ["fedavg", "own"], clients=3, rounds=1, model="linear", local_epochs=1, **options)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (Unmade, sf.ParameterError, NAMED + ": TypeError: no plan suits me"),
        (Refusing, sf.PolicyError, NAMED + ": nobody may run me"),
        (Unadapted, sf.ParameterError, NAMED + ": KeyError: 'layer'"),
        (Broken, IndexError, r"out of my depth(.|\n)*" + NAMED),
    ],
)
def test_an_error_names_the_method_that_it_is_of(monkeypatch, kind, error, words):
    offer(monkeypatch, "own", kind)
    with pytest.raises(error, match=words):
        run()


def test_a_setting_that_a_method_s_own_rule_refuses_is_a_parameter_error(monkeypatch):
    offer(monkeypatch, "own", Own)
    with pytest.raises(sf.ParameterError, match=NAMED + ": ValueError: a quarter is none"):
        run(settings={"own": {"share": 0.25}})
    with pytest.raises(sf.ParameterError, match=r"own\.share must be a number, above 0 and at most 1, not 3"):
        MethodSettings().changed("own", {"share": 3})
