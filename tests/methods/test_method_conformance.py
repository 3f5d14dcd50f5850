"""What every method must do, whatever it protects with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from methods.method_conformance import (
    BUFFERS,
    CLIENTS,
    FAINT_TOLERANCE,
    PARAMETERS,
    SteppedRun,
    Variant,
    contraction,
    float_spacing,
    variants,
)
from methods.selective_shield_twin import twin_round

from shieldfl.errors import (
    DuplicateFrameError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    RangeError,
    ShieldError,
    WireFormatError,
)
from shieldfl.methods.method import LocalUpdate
from shieldfl.methods.registry import METHOD_NAMES
from shieldfl.roles.message import Message

every_variant = pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.label)


def assert_same_model(run: SteppedRun, expected: SteppedRun, variant: Variant) -> None:
    """Equal to the last bit, but for the faint noise where there is some."""
    tolerance = FAINT_TOLERANCE if variant.noisy else 0.0
    np.testing.assert_allclose(run.parameters, expected.parameters, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(run.buffers, expected.buffers, rtol=0.0, atol=tolerance)


def masks_of(variant: Variant, round_number: int, run: SteppedRun, clients: list[int]) -> dict[int, np.ndarray]:
    """What each client chooses, by eq. 14; a method without zones chooses nothing."""
    scores = {
        client: contraction(round_number, client, run.initial.starting_point()).scores for client in clients
    }
    if variant.method == "fedavg":
        return {client: np.zeros(PARAMETERS, dtype=bool) for client in clients}
    return {client: scores[client] > np.float32(variant.settings.threshold_of(client)) for client in clients}


def test_every_registered_method_is_covered():
    assert {variant.method for variant in variants()} == set(METHOD_NAMES)


@every_variant
def test_two_runs_from_one_start_train_the_same_model(variant):
    first, second = SteppedRun(variant), SteppedRun(variant)
    for participants in ([0, 1, 2, 3], [1, 3], [0, 1, 2]):
        first.run_round(participants)
        second.run_round(participants)
    assert_same_model(first, second, variant)
    assert not np.array_equal(first.parameters, first.initial.parameters)
    for mine, other in zip(first.clients, second.clients, strict=True):
        np.testing.assert_allclose(
            mine.merged_model(first.model).parameters,
            other.merged_model(second.model).parameters,
            rtol=0.0,
            atol=FAINT_TOLERANCE if variant.noisy else 0.0,
        )


@every_variant
@pytest.mark.parametrize("fraction_bits", [12, 20])
def test_a_protection_that_loses_nothing_gives_plain_fedavg(variant, fraction_bits):
    lossless = variant.with_settings(threshold=-1.0, consensus=1.0, fraction_bits=fraction_bits)
    run, plain = SteppedRun(lossless), SteppedRun(Variant("fedavg", lossless.settings, "plain"))
    # Updates are equal in the first round. Each is rounded to the nearest multiple of 2^-f, so the mean is
    # off by half of that at most, and both models are rounded to float32 once.
    quantisation = 2.0 ** -(fraction_bits + 1)
    run.run_round()
    plain.run_round()
    spacing = float_spacing(run.parameters, plain.parameters)
    assert np.all(np.abs(run.parameters - plain.parameters.astype(np.float64)) <= quantisation + spacing)
    # From then on the training contracts what the models differ by (factor 0.9), so each round adds one
    # quantisation more and, for the training's own float32 arithmetic, a few roundings of values below 4.
    for _ in range(2):
        run.run_round()
        plain.run_round()
    roundings = 8 * np.spacing(np.float32(4.0))
    difference = np.abs(run.parameters - plain.parameters.astype(np.float64))
    assert difference.max() <= 3 * (quantisation + roundings)
    if run.buffers.size:
        shared_difference = np.abs(run.buffers - plain.buffers.astype(np.float64))
        assert shared_difference.max() <= 3 * (quantisation + roundings)
        assert not np.array_equal(run.buffers, run.initial.buffers)


@every_variant
def test_a_second_message_of_a_client_is_refused_and_changes_nothing(variant):
    refused = []

    def send_twice(phase, aggregator, messages):
        client = min(messages)
        message = messages.pop(client)
        aggregator.receive(phase, client, message)
        for again in (message, messages[max(messages)]):
            with pytest.raises(DuplicateFrameError):
                aggregator.receive(phase, client, again)
            refused.append(phase)

    run, expected = SteppedRun(variant), SteppedRun(variant)
    # The round goes on with the honest messages of the others; the first client's is in already.
    run_with_first_sent(run, send_twice)
    expected.run_round()
    assert_same_model(run, expected, variant)
    assert len(refused) == 2 * len(run.method.phases)


def run_with_first_sent(run, intrude):
    """Run a round in which ``intrude`` takes messages out that it has delivered itself."""
    original = run.aggregator.receive
    delivered: dict[str, set[int]] = {}

    def receive(phase, client, message):
        if client not in delivered.get(phase, set()):
            original(phase, client, message)

    def wrapped(phase, aggregator, messages):
        left = dict(messages)
        intrude(phase, _Receiver(original), left)
        delivered[phase] = set(messages) - set(left)

    run.aggregator.receive = receive
    run.run_round(intrude=wrapped)


class _Receiver:
    def __init__(self, receive):
        self.receive = receive


@every_variant
def test_a_ciphertext_frame_under_another_clients_name_is_not_counted_twice(variant):
    def send_for_another(phase, aggregator, messages):
        first, second = sorted(messages)[:2]
        if not {"votes", "ciphertexts"} & set(messages[first]):
            return
        aggregator.receive(phase, first, messages.pop(first))
        stolen = Message({**messages[second], **{
            name: part for name, part in run.sent[phase][first].items() if name in ("votes", "ciphertexts")
        }})
        with pytest.raises(DuplicateFrameError):
            aggregator.receive(phase, second, stolen)

    run, expected = SteppedRun(variant), SteppedRun(variant)
    run_with_first_sent(run, send_for_another)
    expected.run_round()
    assert_same_model(run, expected, variant)


@every_variant
def test_a_client_that_drops_out_between_two_phases_is_survived(variant):
    run = SteppedRun(variant)
    run.run_round(dropping=[1])
    everybody, uploaders = list(range(CLIENTS)), [0, 2, 3]
    start = run.initial.starting_point()
    updates = {client: contraction(1, client, start).parameters - start.parameters for client in everybody}
    twin = twin_round(
        start.parameters,
        updates,
        masks_of(variant, 1, run, everybody),
        uploaders=uploaders,
        consensus=variant.settings.consensus,
        divisor=variant.settings.divisor,
    )
    spacing = float_spacing(run.parameters, twin.parameters)
    comparable = np.ones(PARAMETERS, dtype=bool)
    if variant.settings.hide_personalised:
        # Who is missing is hidden, so the contributors outside the encrypted zone are an estimate.
        comparable = twin.encrypted
        assert any("dropped out" in note for note in run.method.notes)
    difference = np.abs(run.parameters - twin.parameters)
    assert np.all(difference[comparable] <= spacing[comparable])
    assert twin.encrypted.any() or variant.method == "fedavg"
    # Whoever dropped out can come back.
    run.run_round()
    assert np.isfinite(run.parameters).all()


@every_variant
def test_an_empty_encrypted_zone_works(variant):
    nothing = variant.with_settings(threshold=1.0)
    run, plain = SteppedRun(nothing), SteppedRun(Variant("fedavg", nothing.settings, "plain"))
    run.run_round()
    plain.run_round()
    # Nothing is encrypted and nothing kept: everything goes through the noise zone.
    difference = np.abs(run.parameters - plain.parameters.astype(np.float64))
    tolerance = float_spacing(run.parameters, plain.parameters) + (FAINT_TOLERANCE if variant.noisy else 0.0)
    assert np.all(difference <= tolerance)
    assert run.clients[0].zone_shares["encrypted"] == 0.0
    assert run.clients[0].zone_shares["personalised"] == 0.0


def altered(message: Message, name: str, part: bytes | None) -> Message:
    parts = {key: value for key, value in message.items() if key != name}
    return Message(parts if part is None else {**parts, name: part})


@every_variant
def test_mangled_messages_are_refused_and_the_round_ends_well(variant):
    refused = []

    def mangle(phase, aggregator, messages):
        client = min(messages)
        honest = messages[client]
        for name, part in honest.items():
            bent = bytearray(part)
            bent[len(bent) // 2] ^= 0x10
            wrong = {
                "missing": (None, WireFormatError),
                "empty": (b"", WireFormatError),
                "truncated": (part[:-1], WireFormatError),
                "grown": (part + bytes(8), WireFormatError),
            }
            if name in ("mask", "votes", "ciphertexts", "positions"):
                wrong["flipped"] = (bytes(bent), WireFormatError)
            if name in ("values", "update"):
                for label, value in (("nan", np.nan), ("infinite", np.inf)):
                    vector = np.frombuffer(part, dtype=np.float32).copy()
                    vector[-1] = value
                    wrong[label] = (vector.tobytes(), (WireFormatError, RangeError))
            if name == "weight":
                for value in (0.0, -1.0, math.nan, math.inf):
                    wrong[f"weight {value}"] = (np.float64(value).tobytes(), RangeError)
            for label, (replacement, error) in wrong.items():
                with pytest.raises(error):
                    aggregator.receive(phase, client, altered(honest, name, replacement))
                refused.append((phase, name, label))

    run, expected = SteppedRun(variant), SteppedRun(variant)
    run.run_round(intrude=mangle)
    expected.run_round()
    assert_same_model(run, expected, variant)
    assert {phase for phase, _, _ in refused} == {phase.name for phase in run.method.phases}


@every_variant
def test_messages_of_another_round_are_refused(variant):
    run, expected = SteppedRun(variant), SteppedRun(variant)
    run.run_round()
    expected.run_round()
    old = {phase: dict(messages) for phase, messages in run.sent.items()}
    refused = []

    def replay(phase, aggregator, messages):
        with pytest.raises(PolicyError):
            aggregator.receive(phase, 0, old[phase][0])
        refused.append(phase)

    run.run_round(intrude=replay)
    expected.run_round()
    assert_same_model(run, expected, variant)
    assert refused == [phase.name for phase in run.method.phases]


@every_variant
def test_messages_of_another_federation_are_refused(variant):
    """Another key's ciphertexts, in an otherwise honest message."""
    foreign, run, expected = SteppedRun(variant), SteppedRun(variant), SteppedRun(variant)
    foreign.run_round()
    refused = []

    def send_foreign(phase, aggregator, messages):
        for name in ("votes", "ciphertexts"):
            if name in messages[0]:
                with pytest.raises(KeyMismatchError):
                    aggregator.receive(phase, 0, altered(messages[0], name, foreign.sent[phase][0][name]))
                refused.append(name)

    run.run_round(intrude=send_foreign)
    expected.run_round()
    assert_same_model(run, expected, variant)
    assert ("ciphertexts" in refused) == (run.authority is not None)


@every_variant
def test_a_wrong_first_message_does_not_decide_what_the_others_must_look_like(variant):
    """A client of a larger model speaks first: its frames are intact, their numbers of values are not."""
    run, expected = SteppedRun(variant), SteppedRun(variant)

    def send_larger(phase, aggregator, messages):
        stranger = run.clients[0]
        for name in ("votes", "ciphertexts"):
            if name in messages[0]:
                encryptor = stranger._vote_encryptor if name == "votes" else stranger._encryptor
                larger = encryptor.encrypt(np.zeros(PARAMETERS + 9, dtype=np.float32), round=1).to_bytes()
                with pytest.raises(ParameterError):
                    aggregator.receive(phase, 0, altered(messages[0], name, larger))

    run.run_round(intrude=send_larger)
    expected.run_round()
    assert_same_model(run, expected, variant)


@every_variant
def test_a_message_made_for_another_step_is_refused(variant):
    def send_other(phase, aggregator, messages):
        with pytest.raises(WireFormatError, match="no part"):
            aggregator.receive(phase, 0, Message({"something": b"else"}))

    run, expected = SteppedRun(variant), SteppedRun(variant)
    run.run_round(intrude=send_other)
    expected.run_round()
    assert_same_model(run, expected, variant)


@every_variant
def test_a_phase_in_which_nobody_speaks_has_no_result(variant):
    run = SteppedRun(variant)
    first = run.method.phases[0].name
    run.aggregator.begin_phase(first, 1, None)
    with pytest.raises(ParameterError, match="at least one client"):
        run.aggregator.close(first)


@every_variant
def test_zone_shares_sum_to_one(variant):
    run = SteppedRun(variant)
    for participants in ([0, 1, 2, 3], [0, 3]):
        run.run_round(participants)
        for client in participants:
            shares = run.clients[client].zone_shares
            assert set(shares) == {"encrypted", "personalised", "noise", "clear"}
            assert all(0.0 <= share <= 1.0 for share in shares.values())
            assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12)


@every_variant
def test_asking_for_a_result_again_gives_it_again(variant):
    run, expected = SteppedRun(variant), SteppedRun(variant)
    run.run_round()
    last = run.method.phases[-1].name
    again = run.aggregator.close(last)
    assert again == run.closed[last]
    if run.authority is not None:
        assert run.authority.answer(last, again) == run.model
    run.run_round()
    expected.run_round()
    expected.run_round()
    assert_same_model(run, expected, variant)


@every_variant
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_training_that_diverged_is_refused(variant, value):
    def diverge(round_number, client, start):
        update = contraction(round_number, client, start)
        update.parameters[17] = value
        return update

    with pytest.raises(RangeError, match="learning rate"):
        SteppedRun(variant, train=diverge).run_round()


@every_variant
@pytest.mark.parametrize(
    ("parameters", "buffers", "scores"),
    [
        (PARAMETERS - 1, BUFFERS, PARAMETERS),
        (1, BUFFERS, PARAMETERS),
        (PARAMETERS, BUFFERS + 1, PARAMETERS),
        (PARAMETERS, BUFFERS, PARAMETERS + 64),
    ],
)
def test_an_update_of_another_model_is_refused(variant, parameters, buffers, scores):
    def train(round_number, client, start):
        return LocalUpdate(*(np.zeros(size, dtype=np.float32) for size in (parameters, buffers, scores)))

    with pytest.raises(ParameterError, match="333 parameters"):
        SteppedRun(variant, train=train).run_round()


@every_variant
def test_settings_are_plain_data_and_costs_are_counted(variant):
    run = SteppedRun(variant)
    assert run.method.privacy_spent().paper == 0.0
    run.method.charge_draw(CLIENTS)
    run.run_round()
    spent = run.method.privacy_spent()
    assert spent.rounds == 1
    assert spent.paper > 0.0
    assert spent.paper >= spent.added or math.isinf(spent.paper)
    assert all(isinstance(name, str) for name in run.method.settings())
