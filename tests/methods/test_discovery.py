"""Which methods there are, other packages' among them, what their clients state, and their settings by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from typing import Annotated

import numpy as np
import pytest

import shieldfl as sf
from methods.offered_method import class_of, offer
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods import registry
from shieldfl.methods.fedavg import FedAvg, FedAvgClient
from shieldfl.methods.registry import (
    BUILT_IN,
    MethodSettings,
    checked_methods,
    method_class,
    method_names,
    named_method,
)
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.reports import Disclosure
from shieldfl.settings import Settings, Share, about
from shieldfl.testing.conformance import (
    MethodCase,
    SteppedRun,
    check_facts,
    check_messages,
    check_records,
    check_shares,
)

Offered = class_of(NamedMethod("offered", "everything", "a test", "nowhere"))


def test_a_method_of_another_package_is_found_beside_those_of_this_one(monkeypatch):
    offer(monkeypatch, "offered", Offered)
    assert method_names() == (*BUILT_IN, "offered")
    assert method_class("offered") is Offered
    assert named_method("offered").purpose == "a test"
    assert checked_methods(["full-he", "offered"]) == ("full-he", "offered")


def test_a_method_that_cannot_be_loaded_is_named_with_its_error_and_the_rest_works(monkeypatch):
    broken = EntryPoint("broken", "no.such.module:Method", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: (broken,))
    monkeypatch.setattr(registry, "_offers", registry._offers.__wrapped__)
    words = "method 'broken', no.such.module:Method of .*, cannot be loaded: ModuleNotFoundError: No module named 'no'"
    with pytest.raises(ParameterError, match=words):
        method_class("broken")
    assert "broken" in method_names()
    assert method_class("fedavg") is FedAvg


NO_METHOD = "no class that derives from Method"


@pytest.mark.parametrize(
    ("name", "made", "words"),
    [
        *(("offered", made, NO_METHOD) for made in (object(), dict, Offered.aggregator_sees)),
        ("full-he", Offered, "more than one method 'full-he', .*FullEncryption.* and test:full-he"),
        ("other", Offered, "Offered says nothing of the name 'other'"),
    ],
)
def test_what_is_no_method_of_its_name_is_refused_and_the_rest_works(monkeypatch, name, made, words):
    offer(monkeypatch, name, made)
    with pytest.raises(ParameterError, match=words):
        method_class(name)
    assert method_class("plain-he").named("plain-he").settings.encryption == "paillier-single"


@dataclass
class Changeable:
    share: float = 0.5


@dataclass(frozen=True)
class WithTable:
    shares: Mapping[str, float] = field(default_factory=dict)


@pytest.mark.parametrize("kind", [Changeable, WithTable])
def test_settings_that_cannot_be_hashed_are_refused(monkeypatch, kind):
    """Else the settings of a run, which are hashed with them, would fail where nobody knows of the method."""
    offer(monkeypatch, "offered", class_of(replace(Offered.names[0], settings=kind())))
    with pytest.raises(ParameterError, match=f"{kind.__name__} cannot be hashed: .* frozen"):
        method_class("offered")


def test_a_run_has_methods_that_are_known_and_named_once():
    for names, words in (
        ([], "name at least one method: fedavg, "),
        (["fedavg", "fedavgg"], "unknown method 'fedavgg': choose from fedavg, "),
        (["fedavg", "fedavg"], "named twice"),
    ):
        with pytest.raises(ParameterError, match=words):
            checked_methods(names)


NAMED = r"the method 'own', [\w.]*test_discovery:\w+"


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


def raising(error: Exception):
    def refuse(*arguments):
        raise error

    return refuse


def own(**members: object) -> type[Own]:
    """A method of that name of which something fails."""
    declared = {name: vars(Own)[name] for name in ("names", "privacy_reading", "aggregator_sees")}
    return type("Failing", (Own,), {"__module__": __name__, **declared, **members})


class BrokenClient(FedAvgClient):
    _make = raising(IndexError("out of my depth"))


def run(**options):
    return sf.run("digits", ["fedavg", "own"], clients=3, rounds=1, model="linear", local_epochs=1, **options)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (
            own(__init__=raising(TypeError("no plan suits me"))),
            sf.ParameterError,
            NAMED + ": TypeError: no plan suits me",
        ),
        (
            own(__init__=raising(sf.PolicyError("nobody may run me"))),
            sf.PolicyError,
            NAMED + ": nobody may run me",
        ),
        (own(adapted=raising(KeyError("layer"))), sf.ParameterError, NAMED + ": KeyError: 'layer'"),
        (own(client_kind=BrokenClient), IndexError, r"out of my depth(.|\n)*" + NAMED),
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


CLIENTS = [0, 1, 2, 3]


def run_of(method):
    run = SteppedRun(MethodCase(method))
    run.run_round()
    return run


def claims_encryption(client, **_):
    client.disclosure = Disclosure.of_zone(Mask.full(client._size + client._buffer_count), client._size)


def test_a_plaintext_method_that_says_it_encrypts_is_found_out(monkeypatch):
    monkeypatch.setattr(FedAvgClient, "_disclose", claims_encryption)
    run = run_of("fedavg")
    assert run.clients[0].disclosure.shares()["encrypted"] == 1.0
    check_shares(run, CLIENTS)  # the words agree with each other
    with pytest.raises(AssertionError, match="update of phase update shows values that are stated as hidden"):
        check_messages(run, CLIENTS)
    with pytest.raises(AssertionError):  # no sum was opened
        check_records(run, 1, CLIENTS)


def test_a_plaintext_method_that_says_it_hides_all_is_found_out(monkeypatch):
    run = run_of("fedavg")
    check_messages(run, CLIENTS)
    check_facts(run)
    monkeypatch.setattr(type(run.method), "hides_all", True)
    with pytest.raises(AssertionError):
        check_shares(run, CLIENTS)


@pytest.mark.parametrize(
    "copied",
    [
        lambda update: update[:40].tobytes(),
        lambda update: b"0" + update[7:9].tobytes(),
        lambda update: np.float64(update[100]).tobytes(),
    ],
    ids=["a row", "two neighbours, not aligned", "a single float64"],
)
def test_a_copy_in_the_clear_beside_ciphertexts_is_found(copied):
    run = run_of("full-he")
    check_messages(run, CLIENTS)
    for client, message in run.sent["update"].items():
        update = run.updates[client].parameters - run.starts[client].parameters
        run.sent["update"][client] = {**message, "weight": bytes(message["weight"]) + copied(update)}
    with pytest.raises(AssertionError, match="weight of phase update"):
        check_messages(run, CLIENTS)


def test_what_is_stated_to_be_readable_may_be_read():
    run = run_of("full-he")
    for client in CLIENTS:
        update = run.updates[client].parameters - run.starts[client].parameters
        run.sent["update"][client] = {**run.sent["update"][client], "told": update.tobytes()}
        own = run.clients[client]
        own.disclosure = replace(own.disclosure, parts=(*own.disclosure.parts, "told"))
    check_messages(run, CLIENTS)


def test_every_method_has_its_own_defaults_but_one_without_settings():
    settings = MethodSettings()
    assert [name for name in BUILT_IN if settings.of(name) is None] == ["fedavg"]
    assert settings.of("plain-he").encryption == "paillier-single"
    with pytest.raises(ParameterError, match="fedavg has no settings"):
        settings.changed("fedavg", {"x": 3})


@pytest.mark.parametrize("entries", [{"sense_crypt": SelectiveShieldSettings()}, {"fedavg": object()}])
def test_settings_of_another_method_are_refused(entries):
    with pytest.raises(ParameterError, match=r"not what the settings of (sense-crypt|fedavg) are given by"):
        MethodSettings(**entries)


def test_what_is_given_as_the_default_is_the_default():
    given = MethodSettings(selective_shield=SelectiveShieldSettings())
    assert given == MethodSettings()
    assert hash(given) == hash(MethodSettings())
    assert given != MethodSettings().changed("top-2", {"key_bits": 2048})


def test_a_change_leaves_the_others_and_the_original_alone():
    before = MethodSettings()
    after = before.changed(
        "sense-crypt", {"encryption": "ckks", "bandwidths": [3, 2.5], "information_bits": 4}
    )
    assert after.of("sense-crypt").encryption == "ckks"
    assert after.of("sense-crypt").bandwidths == (3.0, 2.5)
    assert type(after.of("sense-crypt").information_bits) is float
    assert after.of("selective-shield") == SelectiveShieldSettings()
    assert before == MethodSettings()


BAD_SHIELD = [
    ({"noise_distribution": "discrete-gaussian", "noise_multiplier": 2.0**-30}, "2\\^-29"),
    ({"target_epsilon": 1.0, "noise_multiplier": 1.0}, "not both"),
    ({"hide_personalised": True, "noise_multiplier": 1.0}, "needs encrypted negotiation"),
    ({"hide_personalised": True, "negotiation": "encrypted"}, "needs noise"),
]


@pytest.mark.parametrize(("bad", "named"), BAD_SHIELD, ids=str)
def test_settings_that_contradict_each_other(bad, named):
    with pytest.raises(ParameterError, match=named):
        SelectiveShieldSettings(**bad)
