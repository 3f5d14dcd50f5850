"""Compressed updates: levels, exact sums of few bits, the step that follows, and what encryption adds: nothing."""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

import shieldfl as sf
from methods.method_conformance import SteppedRun, assert_same_models
from methods.small_plan import small_plan
from methods.variants import CLIENTS, Variant, labelled
from reference.distributed_noise import rotated
from shieldfl.learning.local_update import contraction
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.plan import PublicSetup

BITS = (8, 4, 2, 1)
OPENERS = ("authority", "clients", "aggregator")
STEPS = {8: 0.03, 4: 0.42, 2: 1.5, 1: math.sqrt(math.pi / 2)}


def compressed(bits: int, opener: str = "authority", label: str = "full-he", **changes: object) -> Variant:
    variant = labelled(label).with_others(compressed_bits=bits, compressed_norm=6.0, **changes)
    return Variant(variant.method, variant.settings, f"{label}/{bits}", variant.others, opener)


def seed_of(round_number: int, seed: int = 0) -> bytes:
    numbers = seed.to_bytes(8, "little") + round_number.to_bytes(8, "little")
    return hashlib.sha256(b"shieldfl compression 1\0" + numbers).digest()


def gaussians(clients: int, size: int, correlation: float = 0.0) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    common = generator.normal(size=size)
    own, shared = math.sqrt(1.0 - correlation), math.sqrt(correlation) * common
    return [(shared + own * generator.normal(size=size)).astype(np.float32) for _ in range(clients)]


def error_of(bits: int, updates: list[np.ndarray], rounds: int = 3, **changes: object) -> float:
    """The squared error of the last round's mean over the true mean's squared norm."""
    compression = sf.Compression(bits=bits, clients=len(updates), **changes)
    exponent, true = 0, np.mean(updates, axis=0, dtype=np.float64)
    for number in range(1, rounds + 1):
        levels = [compression.levels(one, client, number, exponent) for client, one in enumerate(updates)]
        total = np.sum(levels, axis=0, dtype=np.float64)
        mean, exponent = compression.mean(total, range(len(updates)), number, exponent)
    return float(((mean - true) ** 2).sum() / (true**2).sum())


@pytest.mark.filterwarnings("ignore:an update is more than twice")
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [1, 333])
def test_levels_are_those_of_a_readable_twin(bits, size):
    """Round to the nearest level after the rotation; 64 more levels tell of the norm, on a logarithmic scale."""
    compression, norm = sf.Compression(bits=bits, clients=5, first_norm=3.0, seed=7), 3.0 * math.sqrt(2.0)
    for client, (update, number) in enumerate(zip(gaussians(5, size), (1, 2, 2**40, 4, 5), strict=True)):
        levels = compression.levels(update, client, number, 2**15)
        values = rotated(update.astype(np.float64), seed_of(number, 7)) * math.sqrt(size) / STEPS[bits] / norm
        least = (client % 2 - 1) if bits == 1 else 1 - 2 ** (bits - 1)
        most = least + 1 if bits == 1 else -least
        nearest = np.where(values < 0, least, most) if bits == 1 else np.clip(np.rint(values), least, most)
        sure = abs(values - (0 if bits == 1 else np.floor(values) + 0.5)) > 1e-5
        np.testing.assert_array_equal(levels[:size][sure], nearest[sure])
        assert sure.mean() > 0.9
        octaves = np.clip(math.log2(np.linalg.norm(update.astype(np.float64)) / norm), -2.0, 2.0)
        start = int.from_bytes(hashlib.sha256(seed_of(number, 7)).digest()[:4], "little") / 2**32
        places = (least + most) / 2 + (most - least) / 2 * octaves / 2
        places = places + (start + (client / 5 + np.arange(64)) / 64) % 1.0
        assert (abs(places - np.rint(places)) > 1e-9).all()
        # The client knows their order, by the norm's last digits and, of short updates, all values.
        own = float(np.linalg.norm(update.astype(np.float64)))
        near = [own + place * math.ulp(own) for place in range(-8, 9)]
        drawn = [hashlib.shake_256(one.hex().encode() + update.tobytes()).digest(512) for one in near]
        orders = [np.argsort(np.frombuffer(one, "<u8")) for one in drawn]
        assert any(np.array_equal(levels[size:], np.floor(places)[order]) for order in orders)


@pytest.mark.filterwarnings("ignore:an update is more than twice")
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("secret", [True, False])
def test_sums_of_the_norm_s_levels_do_not_show_how_far_norms_lie_apart(bits, secret, monkeypatch):
    """In the order of public phases they would: who is above a level is so at neighbouring phases."""
    if not secret:
        monkeypatch.setattr("shieldfl.methods.compression._secret_order", lambda *_: np.arange(64))
    compression, right, generator = sf.Compression(bits, 2, 18.0), 0, np.random.default_rng(2)
    for number in range(1, 101):
        scales = np.exp(generator.normal(0.0, 0.4, 2))
        updates = [
            (one * scale).astype(np.float32) for one, scale in zip(gaussians(2, 333), scales, strict=True)
        ]
        levels = [compression.levels(one, client, number)[-64:] for client, one in enumerate(updates)]
        steps = [one - one.min() for one in levels]
        total = sum(steps)
        found = [np.sum(total >= 2), np.sum(total >= 1)]
        right += bool(np.abs(np.array(found) - sorted(one.sum() for one in steps)).max() <= 2)
    assert right < 60 if secret else right == 100


def turn_of(round_number: int, one_in: int) -> tuple[int, int]:
    """The number that seeds the rotation, which stays for ``one_in`` rounds, and which of its values are sent."""
    return 1 + (round_number - 1) // one_in, (round_number - 1) % one_in


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("one_in", [2, 10])
@pytest.mark.parametrize("size", [0, 1, 15, 331, 4096])
def test_levels_of_a_round_are_one_in_several_of_those_of_the_whole(bits, one_in, size):
    """All rounds of a rotation together send what one round sends of the whole, each value once."""
    whole = sf.Compression(bits=bits, clients=3, first_norm=math.sqrt(size + 1), seed=7)
    part, update = replace(whole, one_in=one_in), gaussians(1, size)[0]
    for number in range(2 * one_in + 1, 3 * one_in + 1):
        of_rotation, turn = turn_of(number, one_in)
        levels, all_levels = part.levels(update, 1, number), whole.levels(update, 1, of_rotation)
        sent = all_levels[:size][turn::one_in]
        assert levels.size == part.count(size) == math.ceil(size / one_in) + 64
        np.testing.assert_array_equal(levels[: sent.size], sent)
        assert not levels[sent.size : -64].any()
        np.testing.assert_array_equal(levels[-64:], all_levels[-64:])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", ["normal", "few", "end"])
@pytest.mark.parametrize("size", [15, 1003])
def test_the_mean_of_all_rounds_of_a_rotation_is_that_of_whole_updates(bits, shape, size):
    """Also where few values are not zero, or only those of the end: nothing more is cut than of whole updates."""
    updates, whole = gaussians(4, size), sf.Compression(bits, 4, math.sqrt(size))
    for update in updates:
        if shape != "normal":
            update[: -size // 5 if shape == "end" else size - 3] = 0.0
    part, exponents = replace(whole, one_in=10), [0, 0]
    # The step is that of both, once it has moved to the updates' norm.
    for number in range(1, 7):
        levels = [whole.levels(one, client, number, exponents[0]) for client, one in enumerate(updates)]
        _, exponents[0] = whole.mean(np.sum(levels, axis=0), range(4), number, exponents[0])
    expected = whole.mean(
        np.sum([whole.levels(one, client, 7, exponents[0]) for client, one in enumerate(updates)], axis=0),
        range(4),
        7,
        exponents[0],
    )[0]
    means = []
    for number in range(61, 71):
        levels = [part.levels(one, client, number, exponents[0]) for client, one in enumerate(updates)]
        mean, moved = part.mean(np.sum(levels, axis=0), range(4), number, exponents[0], size=size)
        means.append(mean)
        assert part.norm.norm_at(moved) == pytest.approx(part.norm.norm_at(exponents[0]), rel=0.05)
    np.testing.assert_allclose(np.mean(means, axis=0), expected, atol=1e-6 * abs(expected).max())


@pytest.mark.parametrize("bits", BITS)
def test_what_one_client_loses_is_as_large_as_it_says(bits):
    (update,), compression = gaussians(1, 5000), sf.Compression(bits, 1, math.sqrt(5000))
    mean, _ = compression.mean(compression.levels(update, 0, 1), [0], 1)
    lost = np.sqrt(np.mean((mean - update) ** 2))
    # Fewer levels also cut: 4 bits at three deviations, 2 bits at 2.2.
    assert lost == pytest.approx(compression.lost_deviation(0, 5000), rel=0.12)


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("label", ["full-he", "top-2"])
def test_rounds_that_send_one_in_three_values_open_as_without_encryption(label, opener):
    run = SteppedRun(compressed(8, opener, label, compressed_one_in=3))
    compression, exponent = sf.Compression(8, CLIENTS, 6.0, one_in=3), 0
    first = run.method.plan.offsets[-3] if label == "top-2" else 0
    size = run.method.plan.parameters - first
    for number, participants in enumerate(([0, 1, 2, 3], [0, 2], [1, 2, 3], [0, 1]), 1):
        before = run.parameters
        run.run_round(participants)
        levels = []
        for client in participants:
            change = (run.updates[client].parameters - run.starts[client].parameters)[first:]
            levels.append(compression.levels(change, client, number, exponent))
            batch = run.batch(run.sent["update"][client]["ciphertexts"])
            assert batch.count == compression.count(size) < size
            # Each level tells of all that is compressed.
            encrypted = run.clients[client].disclosure.encrypted.to_bool()
            assert encrypted[first:].all()
            assert not encrypted[:first].any()
        total = np.sum(levels, axis=0)
        mean, exponent = compression.mean(total, participants, number, exponent, size=size)
        moved = np.append(np.zeros(first), mean)
        np.testing.assert_array_equal(run.parameters, (before + moved).astype(np.float32))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("clients", "together"), [(1, 1), (3, 3), (64, 64), (100, 7), (1000, 1000)])
def test_sums_have_room_for_whatever_clients_send_and_no_bit_more(bits, clients, together):
    compression = sf.Compression(bits=bits, clients=clients)
    for place in (0, 1):
        # Of clients with the same range as many as there can be.
        ends = sorted((compression.range_of(one)[place] for one in range(clients)), reverse=bool(place))
        farthest = abs(sum(ends[:together]))
        assert farthest < 2 ** (compression.sum_bits(together) - 1)
    most = max(abs(end) for client in range(min(2, clients)) for end in compression.range_of(client))
    assert 2 ** (compression.sum_bits(together) - 1) <= 2 * most * together or together == 1


def test_the_farthest_sums_of_signs_open_exactly():
    compression = sf.Compression(bits=1, clients=8)
    assert compression.sum_bits(8) == 4
    parameters = sf.kahe.Parameters(max_clients=8, value_bits=2, fraction_bits=0, sum_bits=4)
    authority = sf.KeyAuthority(parameters, min_clients=2)
    keys = [authority.enrol(f"client {number}") for number in range(8)]
    ends = [np.array(compression.range_of(client), np.float32) for client in range(8)]
    for number, present in enumerate((range(8), (0, 2, 4, 6), (1, 3, 5, 7)), 1):
        aggregator = sf.kahe.Aggregator(authority.public_key, round=number)
        for client in present:
            aggregator.add(sf.kahe.Encryptor(keys[client]).encrypt(ends[client], round=number).to_bytes())
        total = aggregator.total()
        opened = sf.kahe.open(total, authority.sum_key(total.request()), keys[present[0]])
        np.testing.assert_array_equal(opened, sum(ends[client] for client in present))


@pytest.mark.filterwarnings("ignore:an update is more than twice")
@pytest.mark.parametrize(
    ("bits", "correlation", "most"),
    [
        (4, 0.99, 0.002),
        (1, 0.99, 0.5),
        (8, 0.0, 2e-4),
        (4, 0.0, 0.017),
        (4, 0.5, 0.001),
        (2, 0.0, 0.23),
        (2, 0.5, 0.026),
        (1, 0.0, 0.62),
        (1, 0.5, 0.08),
    ],
)
def test_the_error_of_a_mean_of_64(bits, correlation, most):
    """Bounds are a tenth above what was measured; the first step is for a norm a thousand times too small."""
    updates = gaussians(64, 4096, correlation)
    assert error_of(bits, updates, rounds=8, first_norm=0.064) < most


@pytest.mark.filterwarnings("ignore:an update is more than twice")
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("clients", [2, 3, 10])
def test_a_few_clients_tell_their_norm_well(bits, clients):
    compression, exponent = sf.Compression(bits=bits, clients=100), 0
    for number in range(1, 30):
        present = np.random.default_rng(number).choice(100, clients, replace=False)
        update = np.random.default_rng(number).normal(size=333).astype(np.float32)
        update *= np.float32(3.0 / np.linalg.norm(update))
        levels = [compression.levels(update, client, number, exponent) for client in present]
        _, exponent = compression.mean(np.sum(levels, axis=0), present, number, exponent)
        assert compression.norm.norm_at(exponent) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(("bits", "most"), [(8, 0.003), (4, 0.03), (2, 0.3), (1, 1.5)])
@pytest.mark.parametrize("size", [2047, 2048])
def test_where_only_the_end_of_a_model_is_trained_errors_do_not_add_up(bits, most, size):
    """The rotation leaves zeros where the model has not a power of two of values: their signs are each client's own."""
    updates = gaussians(64, size)
    for update in updates:
        update[: -size // 10] = 0.0
    with warnings.catch_warnings(action="ignore"):
        assert error_of(bits, updates, rounds=4, first_norm=math.sqrt(size / 10)) < most


@pytest.mark.parametrize("bits", BITS)
def test_where_nothing_moves_neither_does_the_model_but_by_signs_that_fade(bits):
    compression, nothing, exponent, moved = sf.Compression(bits, 8), np.zeros(4096, np.float32), 0, []
    for number in range(1, 5):
        levels = [compression.levels(nothing, client, number, exponent) for client in range(8)]
        mean, exponent = compression.mean(np.sum(levels, axis=0), range(8), number, exponent)
        moved.append(float(np.linalg.norm(mean)))
    if bits > 1:
        assert moved == [0.0] * 4
    assert all(one <= 1.0 * 4.0**-number for number, one in enumerate(moved))


def test_what_moves_the_step_is_the_mean_of_all_and_no_client_alone():
    compression, updates = sf.Compression(bits=4, clients=64), gaussians(64, 256)
    updates[0] = updates[0] * np.float32(1e6)
    with pytest.warns(sf.PrecisionWarning, match="the mean loses them"):
        levels = [compression.levels(one, client, 1, 4 * 2**16) for client, one in enumerate(updates)]
    _, exponent = compression.mean(np.sum(levels, axis=0), range(64), 1, 4 * 2**16)
    assert compression.norm.norm_at(exponent) == pytest.approx(16.0, rel=0.1)


@pytest.mark.parametrize("told", [-1e9, 1e9])
def test_a_client_that_lies_of_its_norm_moves_the_step_no_further_than_an_honest_sum_could(told):
    compression = sf.Compression(bits=4, clients=4)
    _, exponent = compression.mean(np.append(np.zeros(8), np.full(64, told)), range(4), 1)
    assert compression.norm.norm_at(exponent) == (4.0 if told > 0 else 0.25)


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("bits", BITS)
def test_the_model_is_bit_for_bit_what_the_same_levels_lead_to_without_encryption(bits, opener):
    run = SteppedRun(compressed(bits, opener))
    compression, exponent = sf.Compression(bits, CLIENTS, 6.0), 0
    for number, participants in enumerate(([0, 1, 2, 3], [0, 2], [1, 2, 3]), 1):
        before = run.parameters
        run.run_round(participants)
        levels = []
        for client in participants:
            change = run.updates[client].parameters - run.starts[client].parameters
            levels.append(compression.levels(change, client, number, exponent))
        mean, exponent = compression.mean(np.sum(levels, axis=0), participants, number, exponent)
        np.testing.assert_array_equal(run.parameters, (before + mean).astype(np.float32))
    assert exponent != 0
    (note,) = [one for one in run.account.notes if "leads to" in one]
    assert note.endswith(f"round 3 leads to is {compression.norm.norm_at(exponent):.4g}")


@pytest.mark.parametrize("opener", OPENERS)
def test_a_run_whose_roles_are_restored_after_every_step_is_the_same(opener):
    runs = [SteppedRun(compressed(2, opener), restarts_roles=restarts) for restarts in (False, True)]
    for participants in ([0, 1, 2, 3], [0, 1], [1, 2, 3]):
        for run in runs:
            run.run_round(participants)
        assert_same_models(*runs)


def test_buffers_and_weights_stay_out_of_the_sum():
    run = SteppedRun(compressed(4), weights=(1, 2, 3, 4))
    run.run_round()
    assert any("weighted levels could be read" in note for note in run.method.notes)
    assert "buffers" not in run.model or not run.model["buffers"]
    # The model's values and 64 for the norm, of 4 bits for each client and 2 more for four clients.
    batch = run.batch(run.sent["update"][0]["ciphertexts"])
    assert batch.count == run.method.plan.parameters + 64
    assert run.method.aggregator_sees == "ciphertexts and their number"
    assert {"bits_of_a_value": 4, "bits_of_a_sum": 6}.items() <= run.settings().items()
    parameters = run.method.purposes["update"]
    assert (parameters.value_bits, parameters.sum_bits) == (4, 6)


@pytest.mark.parametrize("label", ["full-he", "top-2"])
@pytest.mark.parametrize("one_in", [1, 3])
@pytest.mark.parametrize("bits", BITS)
def test_what_clients_know_as_their_own_parts_is_together_the_mean(bits, one_in, label):
    run, told = SteppedRun(compressed(bits, label=label, compressed_one_in=one_in)), {}
    for client in run.clients:
        client.tell_vector = lambda vector, one=client.index: told.update({one: vector.copy()})
    before = run.parameters
    run.run_round()
    parts = [client.in_the_mean(told[client.index]) for client in run.clients]
    np.testing.assert_allclose(run.parameters - before, np.mean(parts, axis=0), atol=1e-6)


def test_the_last_layer_alone_is_compressed_where_nothing_else_is_trained():
    run = SteppedRun(compressed(8, label="top-2"))
    before = run.parameters
    run.run_round()
    moved = run.parameters - before
    first = run.method.plan.offsets[-3]
    assert not moved[:first].any()
    true = np.mean(
        [run.updates[one].parameters - run.starts[one].parameters for one in range(CLIENTS)], axis=0
    )
    np.testing.assert_allclose(moved[first:], true[first:], atol=0.05 * abs(true).max())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compressed_bits": 3}, "compressed_bits"),
        ({"compressed_bits": 4, "encryption": "ckks"}, "set encryption to kahe"),
        ({"compressed_bits": 4, "sum_noise_multiplier": 1.0}, "or their sums have noise"),
        ({"compressed_bits": 4, "compressed_norm": 0.0}, "compressed_norm"),
        ({"compressed_bits": 4, "compressed_seed": -1}, "compressed_seed"),
        ({"compressed_bits": 4, "compressed_one_in": 0}, "compressed_one_in"),
        ({"compressed_bits": 4, "compressed_one_in": 101}, "compressed_one_in"),
    ],
)
def test_settings_that_fit_nothing_are_refused(changes, words):
    with pytest.raises(sf.ParameterError, match=words):
        make_method("full-he", MethodSettings().changed("full-he", changes), small_plan())


def test_more_turns_than_rounds_are_refused():
    """Some values would never be sent."""
    settings = MethodSettings().changed("full-he", {"compressed_bits": 4, "compressed_one_in": 10})
    make_method("full-he", settings, small_plan(rounds=10))
    with pytest.raises(sf.ParameterError, match="do not send all: lower compressed_one_in"):
        make_method("full-he", settings, small_plan(rounds=9))


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": 3},
        {"bits": 4.0},
        {"bits": [4]},
        {"clients": 0},
        {"first_norm": 0.0},
        {"first_norm": "1"},
        {"seed": -1},
        {"one_in": 0},
        {"one_in": 101},
        {"one_in": 2.5},
    ],
)
def test_arguments_out_of_range_are_refused(changes):
    with pytest.raises(sf.ParameterError):
        sf.Compression(**{"bits": 4, "clients": 2, **changes})


def test_what_is_no_update_is_refused():
    compression = sf.Compression(bits=4, clients=2)
    for value, words in (
        (math.nan, "NaN"),
        (math.inf, "infinite"),
        (3e38, "no sum has room"),
        (2.0**99.01, "no sum"),
    ):
        with pytest.raises(sf.RangeError, match=words):
            compression.levels(np.full(4, value, np.float32), 0, 1)
    with pytest.raises(sf.ArrayTypeError):
        compression.levels(np.zeros(4), 0, 1)
    for total, clients in (
        (np.zeros(65), []),
        (np.zeros(65), [0, 0]),
        (np.zeros(65), [2]),
        (np.zeros(63), [0]),
        (np.full(65, math.nan), [0]),
    ):
        with pytest.raises(sf.ParameterError):
            compression.mean(total, clients, 1)
    part = sf.Compression(bits=4, clients=2, one_in=3)
    with pytest.raises(sf.ParameterError, match="give size"):
        part.mean(np.zeros(66), [0], 1)
    for size in (3, 7, -1):
        with pytest.raises(sf.ParameterError):
            part.mean(np.zeros(66), [0], 1, size=size)
    assert part.mean(np.zeros(66), [0], 1, size=6)[0].size == 6
    with pytest.raises(sf.ParameterError, match="round"):
        compression.levels(np.zeros(4, np.float32), 0, 0)
    for exponent in (-(2**20) - 1, 2**20 + 1):
        with pytest.raises(sf.ParameterError, match="exponent"):
            compression.levels(np.zeros(4, np.float32), 0, 1, exponent)
    with pytest.raises(sf.ParameterError, match="clients 0 to 1"):
        compression.levels(np.zeros(4, np.float32), 2, 1)
    assert compression.levels(np.zeros(0, np.float32), 0, 1).size == 64


def test_who_compresses_otherwise_than_was_agreed_takes_no_part():
    run, settings = SteppedRun(compressed(4)), compressed(4).all_settings()
    for changes in (
        {"compressed_bits": 2},
        {"compressed_seed": 1},
        {"compressed_norm": 1.0},
        {"compressed_one_in": 2},
    ):
        other = make_method("full-he", settings.changed("full-he", changes), run.method.plan)
        setup = PublicSetup.from_bytes(run.setup.to_bytes(), run.setup.digest)
        with pytest.raises(sf.ShieldError):
            other.client_steps(setup, 0, 1, run.initial, shared_secret=run.shared_secret)


def test_an_update_that_diverged_is_refused():
    def train(number, client, start):
        update = contraction(number, client, start)
        return replace(update, parameters=np.full_like(update.parameters, 3e38)) if client == 1 else update

    run = SteppedRun(compressed(4), train=train)
    with pytest.raises(sf.RangeError, match="no sum has room for it"):
        run.run_round()
