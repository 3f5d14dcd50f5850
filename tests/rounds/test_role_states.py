"""A role goes on in a new object from the state of the one before; what is no such state is refused."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction, run_of
from methods.variants import CLIENTS, every_variant_and_twin
from shieldfl.authority.message import Message
from shieldfl.authority.role_state import unpack_state
from shieldfl.authority.round_keys import RoundSigner, SessionKeys
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, ShieldError, WireFormatError
from shieldfl.methods.masked_average.method import MaskedAverageAggregator, MaskedAverageClient
from shieldfl.methods.selective_shield.method import SelectiveShieldAggregator
from shieldfl.methods.sense_crypt.method import SenseCryptAggregator, SenseCryptClient
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.reports import Reporter
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.stateful import changed, changes_of, encode_record, is_stateful

KEY = bytes(range(32))
# By class: what holds a lock, what the factory gives, and what the next phase makes anew.
NOT_KEPT = {
    Reporter: {"_events", "_notes", "_lock", "clock"},
    TrainingClient: {"context"},
    CollectingAggregator: {"context"},
    AuthoritySteps: {"context"},
    MaskedAverageClient: {"_upload"},
    SenseCryptClient: {"_upload"},
    MaskedAverageAggregator: {"_scores"},
    SelectiveShieldAggregator: {"_ciphertexts", "_votes"},
    SenseCryptAggregator: {"_united"},
}


def key_of(role: Reporter) -> bytes | None:
    return KEY if role.needs_sealing else None


def state_of(role: Reporter) -> bytes:
    return role.state(key_of(role))


def opened(role: Reporter) -> bytes:
    """What a state of it holds, without what seals it: sealed twice, it is not the same bytes."""
    return unpack_state(role._bound(), state_of(role), key_of(role))


def plain(value: object) -> bytes:
    return bytes(encode_record({"": changed(value) if is_stateful(value) else value}, {}))


@every_variant_and_twin
def test_everything_that_steps_change_is_declared(variant):
    """An attribute that was forgotten would be as it was made after a restart; what cannot be encoded fails."""
    run = SteppedRun(variant)
    run.run_round()
    run.begin_round(2)
    pairs = [(run.clients[0], run.new_client(0)), (run.aggregator, run.new_aggregator())]
    if run.authority is not None:
        pairs.append((run.authority, run.new_authority()))
    for used, fresh in pairs:
        declared = changes_of(type(used)).keys() | set().union(
            *(names for kind, names in NOT_KEPT.items() if isinstance(used, kind))
        )
        for name in vars(used).keys() - declared:
            before, after = vars(fresh)[name], vars(used)[name]
            if before is not after:
                assert plain(before) == plain(after), f"{type(used).__name__}.{name}"


@every_variant_and_twin
def test_damaged_and_foreign_states_change_nothing(variant):
    run, other = SteppedRun(variant), SteppedRun(variant)
    for one in (run, other):
        one.run_round()
    state, key = state_of(run.clients[0]), key_of(run.clients[0])
    fresh = run.new_client(0)
    before = opened(fresh)
    damage = WireFormatError if key is None else (WireFormatError, KeyMismatchError)
    for damaged in (b"", state[:-1], state[: len(state) // 2], state + b"\0", b"x" + state[1:]):
        with pytest.raises(damage):
            fresh.restore(damaged, key)
    for position in range(0, len(state), max(1, len(state) // 40)):
        altered = bytearray(state)
        altered[position] ^= 1
        with pytest.raises((WireFormatError, KeyMismatchError)):
            fresh.restore(bytes(altered), key)
    foreign = [state_of(other.clients[0]), state_of(run.clients[1]), state_of(run.aggregator)]
    for one in foreign:
        with pytest.raises(KeyMismatchError, match="another"):
            fresh.restore(one, key)
    assert opened(fresh) == before
    fresh.restore(state, key)
    assert opened(fresh) == opened(run.clients[0])


@every_variant_and_twin
def test_a_state_of_other_weights_is_refused(variant):
    run = SteppedRun(variant, weights=(3, 2, 1, 4))
    run.run_round()
    if run.method.weighs_all_alike:
        return
    for weights in ((1, 2, 3, 4), (4, 2, 1, 4)):
        other = run.method.client_steps(
            run.setup, 0, weights[0], run.initial, shared_secret=run.shared_secret
        )
        before = opened(other)
        with pytest.raises(KeyMismatchError, match="another"):
            other.restore(state_of(run.clients[0]), key_of(other))
        assert opened(other) == before
        initial = run.initial if run.authority is None else None
        other = run.method.aggregator_steps(run.setup, weights, initial=initial)
        before = other.state()
        with pytest.raises(KeyMismatchError, match="another"):
            other.restore(run.aggregator.state())
        assert other.state() == before


def test_a_state_of_another_shared_secret_is_refused():
    run = run_of("dict-pfl")
    run.run_round()
    arguments = run.setup, run.initial
    other = run.method.client_steps(run.setup, 0, 1, run.initial, shared_secret=bytes(32))
    with pytest.raises(KeyMismatchError, match="another"):
        other.restore(state_of(run.clients[0]), KEY)
    authority = run.method.authority_steps(*arguments, shared_secret=bytes(32))
    with pytest.raises(KeyMismatchError, match="another"):
        authority.restore(run.authority.state(KEY), KEY)


def secrets_of(keys: RoundSigner) -> list[bytes]:
    """What an authority signs with, and what it opens totals by."""
    if isinstance(keys, SessionKeys):
        held = keys._owner
        signing = held.signing_key.private_bytes_raw()
        assert held.enrolment_key is None  # erased when the last client had enrolled
        return [signing, held._opening_root, held.store_key]
    contents = keys._held["update"].contents()  # overwritten as soon as nobody holds it
    return [keys._secret_signing_key, bytes(contents.secret)]


@pytest.mark.parametrize("label", ["full-he", "full-he/ckks"])
def test_an_authority_gives_its_secrets_under_a_key_alone(label):
    run = run_of(label)
    first = run.begin_round(1)
    with pytest.raises(PolicyError, match="secret"):
        run.authority.state()
    for wrong in (b"", bytes(16), "k" * 32):
        with pytest.raises(ParameterError, match="32"):
            run.authority.state(wrong)
    sealed = run.authority.state(KEY)
    within = opened(run.authority)
    for secret in secrets_of(run.authority.keys):
        assert secret not in sealed
        assert secret in within
    assert sealed != run.authority.state(KEY)
    fresh = run.new_authority()
    with pytest.raises(PolicyError, match="no keys"):
        fresh.begin_round(1)
    with pytest.raises(PolicyError, match="no keys"):
        fresh.state(KEY)
    for bad, key, error in (
        (sealed, bytes(32), KeyMismatchError),
        (sealed[:-1], KEY, KeyMismatchError),
        (sealed[:60], KEY, ShieldError),
        (sealed, None, ParameterError),
        (state_of(run.clients[0]), KEY, KeyMismatchError),
        (run_of(label).authority.state(KEY), KEY, KeyMismatchError),
    ):
        with pytest.raises(error):
            fresh.restore(bad, key)
    with pytest.raises(PolicyError, match="no keys"):
        fresh.begin_round(1)
    fresh.restore(sealed, KEY)
    assert fresh.begin_round(1) == first


def test_a_client_that_enrols_gives_its_secrets_under_a_key_alone():
    """Whoever reads one opens what the client sends, this round and later."""
    run = run_of("selective-shield/encrypted")
    run.run_round()
    client = run.clients[0]
    with pytest.raises(PolicyError, match="secret"):
        client.state()
    with pytest.raises(ParameterError, match="32"):
        client.state(b"")
    sealed, within = client.state(KEY), opened(client)
    held = [secret for _, secret in client._own_keys._held.values()]
    assert len(held) == len(client.context.keys.parameters) > 1
    for secret in (*held, client._own_keys.enrolment._grant_key):
        assert secret not in sealed
        assert secret in within
    fresh = run.new_client(0)
    for key, error in ((bytes(32), KeyMismatchError), (None, ParameterError)):
        with pytest.raises(error):
            fresh.restore(sealed, key)
    # Another client of this number has drawn other secrets: what it had sent, the authority would not know.
    assert client._own_keys._held != fresh._own_keys._held
    fresh.restore(sealed, KEY)
    assert client._own_keys._held == fresh._own_keys._held


def test_a_client_can_be_sealed_too():
    run = run_of("fedavg")
    run.run_round()
    sealed = run.clients[0].state(KEY)
    assert run.clients[0].update.parameters.tobytes() not in sealed
    assert run.clients[0].update.parameters.tobytes() in run.clients[0].state()
    fresh = run.new_client(0)
    fresh.restore(sealed, KEY)
    assert fresh.state() == run.clients[0].state()
    with pytest.raises(ParameterError, match="not sealed"):
        fresh.restore(run.clients[0].state(), KEY)


def _again(role: Reporter, fresh: Reporter) -> Reporter:
    fresh.restore(role.state(key_of(role)), key_of(role))
    return fresh


@every_variant_and_twin
def test_a_client_that_was_restored_answers_a_round_once(variant):
    """The same bytes again, no other update, no other model, and no round before."""
    run = SteppedRun(variant)
    run.run_round()
    client = _again(run.clients[0], run.new_client(0))
    for phase, messages in run.sent.items():
        before = [None, *run.answers.values()][list(run.sent).index(phase)]
        answer = None if before is None else run.method.message_for(0, before)
        assert client.step(phase, answer) == messages[0]
        with pytest.raises(PolicyError, match="answered"):
            client.step(phase, Message({"another": b""}))
    with pytest.raises(PolicyError, match="told of"):
        client.finish_training(contraction(7, 0, client._begun))
    first = client._begun_with[1]
    with pytest.raises(PolicyError, match="later"):
        client.begin_round(1, CLIENTS - 1, first)
    client.begin_round(2, CLIENTS, run.method.message_for(0, run.begin_round(2)))
    client = _again(client, run.new_client(0))
    with pytest.raises(PolicyError, match="round 1 is over"):
        client.begin_round(1, CLIENTS, first)


def test_an_update_of_a_beginning_before_is_refused_after_a_restart():
    run = run_of("fedavg")
    client, model = run.clients[0], run.begin_round(1)
    update = contraction(1, 0, client.begin_round(1, CLIENTS, model))
    moved = np.frombuffer(model["parameters"], dtype=np.float32) + np.float32(1.0)
    client.begin_round(1, CLIENTS, Message({**model, "parameters": moved.tobytes()}))
    client = _again(client, run.new_client(0))
    with pytest.raises(PolicyError, match="begun again"):
        client.finish_training(update)


@pytest.mark.parametrize("label", ["full-he", "full-he/ckks", "selective-shield/encrypted"])
def test_a_restarted_authority_refuses_what_it_did(label):
    run = run_of(label)
    run.run_round()
    authority = _again(run.authority, run.new_authority())
    assert authority.answer("update", run.closed["update"]) == run.answers["update"]
    with pytest.raises(PolicyError):
        authority.answer("update", Message({**run.closed["update"], "more": b""}))
    authority.begin_round(2)
    with pytest.raises(PolicyError, match="round 1 has been answered"):
        _again(authority, run.new_authority()).begin_round(1)


def test_a_role_of_no_set_up_has_no_state():
    from shieldfl.methods.fedavg import FedAvgAggregator

    run = run_of("fedavg")
    aggregator = FedAvgAggregator(run.aggregator.context, run.weights, run.initial)
    with pytest.raises(PolicyError, match="set-up"):
        aggregator.state()


def test_methods_without_keys_have_no_authority():
    run = run_of("fedavg")
    with pytest.raises(ParameterError, match="no key authority"):
        run.new_authority()
