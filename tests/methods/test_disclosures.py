"""What clients say that they disclose, against each byte that leaves them; what one can do to a mean in the clear."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.variants import BUFFERS, Variant, every_one_of, labelled, variants
from shieldfl.authority.message import Message
from shieldfl.encryption import paillier
from shieldfl.errors import RangeError
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.rounds.reports import Disclosure

CIPHERTEXTS = {"ciphertexts", "votes", "scores"}
NUMBERS = {"values", "update"}
EXACT = {"ranges", "sensitivity"}
"""Named parts that hold exact values."""
NOISE = 0.01
"""Standard deviation of one client's noise: updates have ten times as much."""


def disclosing_variants() -> list[Variant]:
    """All variants, with noise that a comparison sees, and two more with noise."""
    dp_fedavg = next(one for one in variants() if one.method == "dp-fedavg")
    selective = labelled("selective-shield/clear")
    noised = [
        replace(dp_fedavg, label="dp-fedavg/noised").with_others(
            noise_multiplier=NOISE / 1000.0, clip_norm=1000.0
        ),
        replace(selective, label="selective-shield/noised").with_settings(
            noise_multiplier=1.0, clip_norm=100.0
        ),
    ]
    return [
        one.with_settings(noise_multiplier=NOISE / one.settings.clip_norm) if one.noisy else one
        for one in variants() + noised
    ]


def deviation_of(variant: Variant, participants: int) -> float:
    """The standard deviation of what a client adds to each number that it noises."""
    return NOISE * float(np.sqrt(participants)) if variant.method == "selective-shield" else NOISE


def expected_parts(variant: Variant, phase: str, round_number: int) -> set[str]:
    """The names of all parts of a client's message."""
    settings = variant.all_settings()
    if variant.method == "selective-shield":
        encrypted = variant.settings.negotiation == "encrypted"
        if phase == "negotiate":
            return {"round", "votes"} if encrypted else {"round", "mask"}
        positions = {"positions"} if encrypted and not variant.settings.hide_personalised else set()
        return {"round", "ciphertexts", "values"} | positions
    if phase == "cluster":
        introduction = {"capability"} | (
            set() if settings.of("sense-crypt").clustering == "none" else {"sensitivity"}
        )
        return {"round"} | (introduction if round_number == 1 else set())
    if phase != "update":
        return {"round"} | ({phase} - {"count"}) | ({"weight"} if phase == "scores" else set())
    if variant.method in ("fedavg", "dp-fedavg", "dp-sgd", "alt-fl-si-dp"):
        return {"round", "weight", "update"}
    sends_rest = variant.method not in ("top-2", "dict-pfl", "batch-crypt", "ddp-fedavg")
    return {"round", "weight", "ciphertexts"} | ({"values"} if sends_rest else set())


@dataclass(frozen=True)
class Trained:
    """What a client has to protect in one round."""

    start: StartingPoint
    shared: np.ndarray
    """The global parameters."""
    update: LocalUpdate

    @property
    def difference(self) -> np.ndarray:
        """Of parameters, then of buffers."""
        return np.concatenate(
            (self.update.parameters - self.shared, self.update.buffers - self.start.buffers)
        )

    @functools.cached_property
    def secrets(self) -> set[bytes]:
        """All numbers that depend on its data, as float32 and as float64."""
        values = np.concatenate(
            (self.difference, self.update.parameters, self.update.buffers, self.update.scores)
        )
        own = values[(values != 0.0) & ~np.isin(values, self.shared)]
        return {number for each in (own, own.astype(np.float64)) for number in numbers_in(each)}


def numbers_in(values: np.ndarray) -> list[bytes]:
    data, size = values.tobytes(), values.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]


def contains(part: bytes, secrets: set[bytes]) -> bool:
    windows = {part[at : at + size] for size in (4, 8) for at in range(len(part) - size + 1)}
    return not windows.isdisjoint(secrets)


def check_part(
    variant: Variant, run: SteppedRun, name: str, part: bytes, trained: Trained, round_number: int
) -> None:
    """A part is what its name says, whole, and no more."""
    if name == "round":
        assert part == Message.from_number(round_number)
    elif name == "weight":
        assert part in (np.uint64(1).tobytes(), np.float64(1.0).tobytes())
    elif name in CIPHERTEXTS:
        batch = run.batch(part, "update" if name == "ciphertexts" else name)
        assert batch.to_bytes() == part
        assert name == "ciphertexts" or batch.count == variant.size
    elif name in ("mask", "positions"):
        assert Mask.from_bytes(part, expected_size=variant.size).to_bytes() == part
    elif name == "ranking":
        assert 0 < len(part) < 4 * variant.size
    elif name == "ranges":
        assert part == run.method.quantisation.ranges(trained.difference).tobytes()
    else:
        assert len(part) == {"capability": 2 * 8, "sensitivity": 4 * variant.size}[name]
    if name not in CIPHERTEXTS | EXACT:
        assert not contains(part, trained.secrets), name


def check_numbers(
    variant: Variant, sent: np.ndarray, stated: Disclosure, trained: Trained, participants: int
) -> None:
    """Plain numbers are those of the stated positions, exact or noised, and no others."""
    clear, noised, kept = (zone.to_bool() for zone in (stated.clear, stated.noised, stated.kept))
    hidden = kept & variant.settings.hide_personalised & (variant.method == "selective-shield")
    leaving = clear | noised | hidden
    assert sent.size == leaving.sum() + (BUFFERS if stated.buffers == "clear" else 0)
    received = np.zeros(variant.size, dtype=np.float32)
    received[leaving] = sent[: leaving.sum()]
    exact, buffers = np.split(trained.difference, [variant.size])
    np.testing.assert_array_equal(received[clear], exact[clear])
    if stated.buffers == "clear":
        np.testing.assert_array_equal(sent[leaving.sum() :], buffers)
    if trained.start.noise is not None:
        # Training has noised it.
        np.testing.assert_array_equal(received[noised], exact[noised])
        return
    exact[hidden] = 0.0
    for zone in (noised, hidden):
        if zone.any():
            noise = (received - exact)[zone]
            assert noise.size >= 30
            assert np.count_nonzero(noise == 0.0) <= 2
            assert 0.4 < np.std(noise) / deviation_of(variant, participants) < 2.0


def check_update(
    variant: Variant,
    run: SteppedRun,
    message: Message,
    stated: Disclosure,
    trained: Trained,
    participants: int,
) -> None:
    """The zones are disjoint, and what left is in them."""
    assert (
        sum(zone.count for zone in (stated.encrypted, stated.noised, stated.clear, stated.kept))
        == variant.size
    )
    assert stated.synthetic == trained.start.synthetic
    numbers = [np.frombuffer(message[name], np.float32) for name in sorted(NUMBERS & set(message))]
    sent = np.concatenate([np.empty(0, np.float32), *numbers])
    check_numbers(variant, sent, stated, trained, participants)
    buffers = BUFFERS if stated.buffers == "encrypted" else 0
    if "ciphertexts" not in message:
        assert stated.encrypted.count + buffers == 0
    elif variant.method != "sense-crypt" or not isinstance(run.encryptor(), paillier.Encryptor):
        assert run.batch(message["ciphertexts"]).count == stated.encrypted.count + buffers


@every_one_of(disclosing_variants())
def test_a_disclosure_says_what_really_left(variant):
    trained: dict[int, Trained] = {}
    before: dict[int, np.ndarray] = {}
    sent: dict[int, list[tuple[str, Message, Disclosure]]] = {}

    def train(round_number, client, start):
        update = contraction(round_number, client, start)
        trained[client] = Trained(start, before[client], update)
        return update

    def watch(phase, aggregator, messages):
        for client, message in messages.items():
            sent.setdefault(client, []).append((phase, message, run.clients[client].disclosure))

    run = SteppedRun(variant, train=train)
    # The third client comes once, and leaves before the last phase.
    for round_number, (participants, dropping) in enumerate(
        [([0, 1], []), ([0, 1], []), ([0, 1, 2], [2])], start=1
    ):
        for client in participants:
            model = run.method.message_for(client, run.model)
            # A client of no cluster has the initial model.
            known = "parameters" in model
            before[client] = (
                model.vector("parameters", np.float32, variant.size) if known else run.initial.parameters
            )
        sent.clear()
        run.run_round(participants, dropping, intrude=watch)
        for client, messages in sent.items():
            named: set[str] = set()
            for phase, message, stated in messages:
                # Sensitivities are uploaded when a client comes for the first time.
                visit = 1 if client == 2 else round_number
                assert set(message) == expected_parts(variant, phase, visit)
                named |= set(message) - {"round"} - CIPHERTEXTS - NUMBERS
                # DictPFL's clients say that the number of values, which depends on the data, is seen.
                said = (
                    {"count"} & set(stated.parts)
                    if variant.method == "dict-pfl" and phase == "update"
                    else set()
                )
                assert set(stated.parts) == named | said
                assert said or variant.method != "dict-pfl" or phase != "update"
                for name in set(message) - NUMBERS:
                    check_part(variant, run, name, message[name], trained[client], round_number)
                if phase == "update":
                    check_update(variant, run, message, stated, trained[client], len(participants))
                else:
                    assert replace(stated, parts=()) == Disclosure.of_nothing(variant.size)
            assert run.clients[client].disclosure == messages[-1][2]


METHODS = ("fedavg", "dp-fedavg", "dp-sgd", "alt-fl-si-dp")
WEIGHTS = (1, 2, 3, 1000)
every_method = pytest.mark.parametrize("method", METHODS)


def run_of(method: str, server_learning_rate: float = 1.0) -> SteppedRun:
    variant = Variant(method, SelectiveShieldSettings(), method).with_others(
        interleaving_ratio="0", delta=1e-5, noise_multiplier=0.0
    )
    return SteppedRun(variant, weights=WEIGHTS, server_learning_rate=server_learning_rate)


def altered(message: Message, name: str, part: np.ndarray) -> Message:
    return Message({**message, name: part.tobytes()})


@every_method
def test_the_clients_own_weight_is_taken_and_no_other(method):
    own = 1.0

    def claim(phase, aggregator, messages):
        # Among them those that other clients have.
        for other in (1000.0, 1.5, 1e308, 5e-324, 0.0, -1.0, math.nan, math.inf):
            with pytest.raises(RangeError, match="weight"):
                aggregator.receive(phase, 0, altered(messages[0], "weight", np.array([other])))
        messages[0] = altered(messages[0], "weight", np.array([own]))

    run, honest = run_of(method), run_of(method)
    run.run_round(intrude=claim)
    honest.run_round()
    np.testing.assert_array_equal(run.parameters, honest.parameters)


@every_method
def test_a_model_that_is_not_finite_is_refused(method):
    """All clients send the largest float32s; the server's learning rate takes the mean beyond them."""

    def push(phase, aggregator, messages):
        for client, message in messages.items():
            size = len(message["update"]) // 4
            messages[client] = altered(message, "update", np.full(size, 3.4e38, np.float32))

    run = run_of(method, server_learning_rate=2.0)
    before = run.model
    with pytest.raises(RangeError, match="not finite"):
        run.run_round(intrude=push)
    assert run.model == before
