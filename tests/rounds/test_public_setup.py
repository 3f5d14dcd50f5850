"""The public set-up: everybody gets the same, as bytes, and takes no other."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from methods.golden_rounds import golden_variants
from methods.method_conformance import SteppedRun, initial_model, run_of
from methods.small_plan import small_plan
from methods.variants import every_variant, variants
from shieldfl.errors import KeyMismatchError, ParameterError, RangeError, WireFormatError
from shieldfl.methods.registry import MethodSettings, make_method, method_of
from shieldfl.rounds.plan import GlobalModel, PublicSetup


@every_variant
def test_a_set_up_comes_back_from_its_bytes_and_makes_the_method(variant):
    run = SteppedRun(variant, weights=(1, 2, 3, 4))
    read = PublicSetup.from_bytes(run.setup.to_bytes(), run.setup.digest)
    assert read == run.setup
    assert read.digest == run.setup.digest
    made = method_of(read)
    assert type(made) is type(run.method)
    assert (made.name, made.plan, dict(made.purposes)) == (
        run.method.name,
        run.method.plan,
        dict(run.method.purposes),
    )
    made.client_steps(read, 3, 4, run.initial, shared_secret=run.shared_secret)


def test_no_set_up_but_the_pinned_one_is_read():
    runs = [SteppedRun(variants()[0]) for _ in range(2)]
    first, second = (run.setup for run in runs)
    assert first.digest != second.digest
    for pinned in (second.digest, b"", bytes(32), first.digest[:31]):
        with pytest.raises(KeyMismatchError, match="pinned"):
            PublicSetup.from_bytes(first.to_bytes(), pinned)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", 2**20])
@pytest.mark.parametrize("label", ["fedavg", "dp-sgd", "selective-shield/clear", "sense-crypt/ckks"])
def test_a_role_takes_no_number_of_threads_that_the_core_refuses(label, threads):
    """Also of roles that ask for them only once a round has begun."""
    run = run_of(label)
    method, setup = run.method, run.setup
    initial = None if method.purposes else run.initial
    with pytest.raises(ParameterError, match="threads"):
        method.client_steps(setup, 0, 1, run.initial, threads=threads)
    with pytest.raises(ParameterError, match="threads"):
        method.aggregator_steps(setup, run.weights, initial=initial, threads=threads)
    if method.purposes:
        with pytest.raises(ParameterError, match="threads"):
            method.authority_setup(run.initial, threads=threads)


def test_another_model_is_refused():
    run = run_of("fedavg")
    other = replace(run.initial, parameters=np.nextafter(run.initial.parameters, np.float32(9.0)))
    with pytest.raises(KeyMismatchError, match="another model"):
        run.method.client_steps(run.setup, 0, 1, other)
    with pytest.raises(KeyMismatchError, match="another model"):
        run.method.aggregator_steps(run.setup, run.weights, initial=other)
    with pytest.raises(ParameterError, match="holds the model"):
        run.method.aggregator_steps(run.setup, run.weights)
    with pytest.raises(ParameterError, match="other sizes"):
        run.method.authority_setup(initial_model(7))
    vectors = [np.zeros(size, np.float32) for size in range(4)]
    assert GlobalModel(vectors[3], vectors[1]).digest != GlobalModel(vectors[1], vectors[3]).digest
    # Same bytes, same digest: another dtype or shape is another model none the less.
    parameters = run.initial.parameters
    for vector in (parameters.astype(np.float64), parameters.reshape(1, -1)):
        with pytest.raises(ParameterError, match="not float32"):
            run.method.client_steps(run.setup, 0, 1, replace(run.initial, parameters=vector))
    with pytest.raises(RangeError, match="NaN"):
        run.method.authority_setup(replace(run.initial, parameters=np.full_like(parameters, np.nan)))


@pytest.mark.parametrize(("label", "key"), [("full-he", b""), ("fedavg", bytes(32))])
def test_a_set_up_with_keys_for_a_method_without_them_or_the_reverse_is_refused(label, key):
    run = run_of(label)
    with pytest.raises(ParameterError, match="a public set-up has"):
        run.method.client_steps(replace(run.setup, verifying_key=key), 0, 1, run.initial)


def test_the_set_up_of_another_method_plan_or_settings_is_refused():
    run = run_of("fedml-he")
    settings = MethodSettings()
    for method in (
        make_method("fedml-he", settings.changed("fedml-he", {"ratio": 0.25}), run.method.plan),
        make_method("mask-crypt", settings, run.method.plan),
        make_method("fedml-he", settings, replace(run.method.plan, rounds=4)),
    ):
        with pytest.raises(ParameterError, match="another method, plan or settings"):
            method.client_steps(run.setup, 0, 1, run.initial)
        with pytest.raises(ParameterError, match="another method, plan or settings"):
            method.aggregator_steps(run.setup, run.weights)


@pytest.mark.parametrize(("index", "weight"), [(-1, 1), (4, 1), (0.0, 1), (0, 0), (0, 6), (0, 1.0)])
def test_a_client_that_the_plan_does_not_have_is_refused(index, weight):
    run = run_of("full-he", weights=(1, 2, 3, 5))
    with pytest.raises(ParameterError):
        run.method.client_steps(run.setup, index, weight, run.initial)


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 1, 1, 6), (1, 1, 1, 0)])
def test_weights_that_the_plan_does_not_have_are_refused(weights):
    run = run_of("full-he", weights=(1, 2, 3, 5))
    with pytest.raises(ParameterError, match="weight"):
        run.method.aggregator_steps(run.setup, weights)


NOISED = {"ddp-fedavg", "full-he/noised-sums", "dict-pfl/noised-sums", "top-2/noised-sums"}


@pytest.mark.parametrize("label", ["full-he", *sorted(NOISED), "mask-crypt", "plain-he", "fedavg"])
def test_a_set_up_that_comes_to_something_else_is_refused_by_every_role(label):
    """As by another version, which would train, encrypt and send before anybody found out."""
    run = SteppedRun(next(one for one in golden_variants() if one.label == label))
    derived = dict(run.setup.derived)
    assert bool(derived) == bool(run.method.purposes)
    assert ("noise" in derived) == (label in NOISED)
    others = [{**derived, "\x1b[2J" * 9: 1}, *({**derived, fact: "other"} for fact in derived)]
    others += [{one: derived[one] for one in derived if one != fact} for fact in derived]
    for other in others:
        setup = replace(run.setup, derived=other)
        with pytest.raises(ParameterError, match="one version of shieldfl everywhere") as refused:
            run.method.client_steps(setup, 0, 1, run.initial, shared_secret=run.shared_secret)
        assert "\x1b" not in str(refused.value), "what the other side chose is not repeated"
        with pytest.raises(ParameterError, match="one version of shieldfl everywhere"):
            run.method.aggregator_steps(setup, run.weights, initial=run.initial)


def test_noise_on_another_grid_is_another_set_up():
    """Under ckks parameters are the same, and would tell nobody."""
    run = run_of("ddp-fedavg/ckks")
    noise = run.method.noise
    for changed in (
        {"steps_per_unit": 2 * noise.steps_per_unit},
        {"share_variance": noise.share_variance + 1},
        {"honest_clients": noise.honest_clients + 1},
    ):
        other = method_of(run.setup)
        assert other.derived == run.setup.derived
        other.noise = replace(noise, **changed)
        with pytest.raises(ParameterError, match="comes to other noise than this build"):
            other.client_steps(run.setup, 0, 1, run.initial)


GOOD = PublicSetup("fedavg", {}, small_plan(), bytes(32), bytes(range(240, 256)))
PLAN = json.loads(GOOD.to_bytes())["plan"]


def spelled(entry: dict[str, object]) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()


def altered(**changes: object) -> bytes:
    return spelled({**json.loads(GOOD.to_bytes()), **changes})


def planned(**changes: object) -> bytes:
    return altered(plan={**PLAN, **changes})


def test_tables_of_any_depth_are_read_or_refused_by_name():
    """Reading goes as deep as its stack lets it, and writing must not go one deeper."""
    for depth in range(700, 1100):
        frame = b'{"a":' * depth + b"{}" + b"}" * depth
        data = altered().replace(b'"derived":{}', b'"derived":' + frame)
        with contextlib.suppress(WireFormatError):
            PublicSetup.trusted(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        altered(format="shieldfl public set-up 3"),
        altered(more=1),
        altered(method=1),
        altered(derived=None),
        altered(settings={"ratio": float("nan")}),
        altered(session="AAAA"),
        altered(initial_digest=""),
        altered(verifying_key="AAAA"),
        altered(plan={}),
        planned(clients=0),
        planned(server_learning_rate=1),
        planned(server_learning_rate=float("inf")),
        planned(extra=3),
        planned(layer_offsets=[[0], [1]]),
    ],
)
def test_damaged_bytes_are_refused_even_if_they_were_pinned(data):
    assert altered() == planned() == GOOD.to_bytes()
    with pytest.raises(WireFormatError):
        PublicSetup.from_bytes(data, hashlib.sha256(data).digest())


def test_a_set_up_has_one_spelling():
    good = GOOD.to_bytes()
    session = json.loads(good)["session"]
    for data in (
        good.replace(b'"clients":', b'"clients":9,"clients":'),
        good.replace(session.encode(), session[:-3].encode() + bytes([ord(session[-3]) + 1]) + b"=="),
        good.replace(session.encode(), f"{session[:2]} {session[2:]}".encode()),
        good + b"\n",
        good.decode().encode("utf-16"),
        good.replace(b'"settings":{}', b'"settings":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ):
        assert data != good
        with pytest.raises(WireFormatError):
            PublicSetup.from_bytes(data, hashlib.sha256(data).digest())


def test_an_unknown_method_or_setting_is_refused():
    with pytest.raises(ParameterError, match="unknown method"):
        method_of(replace(GOOD, method="fedprox"))
    with pytest.raises(ParameterError):
        method_of(replace(GOOD, settings={"ratio": 0.5}))
