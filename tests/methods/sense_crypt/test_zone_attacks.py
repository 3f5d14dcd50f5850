"""Whoever tells a client to encrypt less than was agreed on gets nothing in the clear for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction, resigned, signed_answer
from methods.variants import BUFFERS, PARAMETERS, Variant, variants
from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.rounds.reports import Disclosure

# Nothing is encrypted, or each client has a zone of its own: unions of SenseCrypt have their test beside its others.
WITHOUT_SHARED_ZONE = {"fedavg", "dp-fedavg", "dp-sgd", "alt-fl-si-dp", "selective-shield", "sense-crypt"}
SHARE = 0.5
LIES = (
    "nothing",
    "one parameter",
    "a parameter less",
    "a parameter for a buffer",
    "no buffers",
    "another model's",
)


def too_little(parameters: int) -> dict[str, Mask]:
    """Zones of a model of so many parameters, none of which protects what was agreed on."""
    size, agreed = parameters + BUFFERS, int(SHARE * parameters)
    positions = {
        "nothing": [],
        "one parameter": [0, *range(parameters, size)],
        "a parameter less": [*range(agreed - 1), *range(parameters, size)],
        "a parameter for a buffer": [*range(agreed + 1), *range(parameters, size - 1)],
        "no buffers": [*range(parameters)],
    }
    return {
        **{name: Mask.from_indices(np.array(one, dtype=np.int64), size) for name, one in positions.items()},
        "another model's": Mask.full(size - 1),
    }


def sharing_variants() -> list[Variant]:
    """All whose clients share a zone; some of those that agree on it, once more with nothing to agree on."""
    found = [one for one in variants() if one.method not in WITHOUT_SHARED_ZONE]
    settled = [
        replace(one, label=f"{one.label}/settled").with_others(ratio=1.0, encrypted_share=1.0)
        for one in found
        if one.label in ("fedml-he", "alt-fl-si-he")
    ]
    return [one.with_others(ratio=SHARE) for one in found] + settled


every_shared_zone = pytest.mark.parametrize("variant", sharing_variants(), ids=lambda variant: variant.label)
every_lie = pytest.mark.parametrize("lie", LIES)


def alter_answers(run: SteppedRun, altered: Callable[[Message | None], Message]) -> None:
    for client in run.clients:
        client.step = lambda phase, answer, step=client.step: step(phase, altered(answer))


def assert_nothing_clear_leaves(run: SteppedRun) -> None:
    with contextlib.suppress(PolicyError, WireFormatError):
        run.run_round([0, 1])
    for message in run.sent.get("update", {}).values():
        assert not {"values", "update"} & set(message)
    for client in run.clients:
        assert client.disclosure.clear.count == 0
        assert client.disclosure.buffers != "clear"


@every_shared_zone
def test_a_poor_zone_in_a_model_is_not_taken(variant):
    run, honest = SteppedRun(variant), SteppedRun(variant)
    for lie in too_little(variant.size).values():
        with pytest.raises((PolicyError, WireFormatError)):
            run.clients[0].begin_round(
                1, 2, resigned(run, {**run.begin_round(1, [0, 1]), "zone": lie.to_bytes()})
            )
        assert run.clients[0].disclosure == Disclosure.of_nothing(variant.size)
    # The true model then gets what it would have got without the lies.
    for one in (run, honest):
        one.run_round([0, 1])
    assert run.clients[0].disclosure == honest.clients[0].disclosure
    assert run.clients[0].disclosure.encrypted.count > 0
    sent, expected = (one.sent["update"][0] for one in (run, honest))
    assert set(sent) == set(expected)
    assert {**sent, "ciphertexts": b""} == {**expected, "ciphertexts": b""}


@every_shared_zone
@every_lie
def test_a_poor_zone_in_an_answer_is_not_taken(variant, lie):
    run = SteppedRun(variant)
    zone = too_little(variant.size)[lie].to_bytes()
    alter_answers(run, lambda answer: signed_answer(run, "scores", {**(answer or {}), "zone": zone}))
    assert_nothing_clear_leaves(run)


@pytest.mark.parametrize("cut", [True, False])
def test_mask_crypt_takes_a_union_only_where_that_is_the_setting(cut):
    variant = next(one for one in variants() if one.method == "mask-crypt").with_others(ratio=SHARE, cut=cut)
    run = SteppedRun(variant)
    everything = Message({"zone": Mask.full(PARAMETERS + BUFFERS).to_bytes()})
    client = run.clients[0]
    client.finish_training(contraction(1, 0, client.begin_round(1, 4, run.begin_round(1))))
    client.step("ranking", None)
    if cut:
        with pytest.raises(PolicyError, match="agreed on"):
            client.step("update", everything)
        assert client.disclosure.parts == ("ranking",)
    else:
        client.step("update", everything)
        assert client.disclosure.encrypted.count == PARAMETERS


@pytest.mark.parametrize(
    "variant",
    [one for one in variants() if one.method == "selective-shield" and not one.settings.hide_personalised],
    ids=lambda variant: variant.label,
)
def test_what_a_client_protects_itself_stays_with_it_where_nothing_is_to_be_encrypted(variant):
    run = SteppedRun(variant)
    client = run.clients[0]
    start = client.begin_round(1, 4, run.begin_round(1))
    update = contraction(1, 0, start)
    client.finish_training(update)
    client.step("negotiate", None)
    nothing = {"encrypted zone": Mask.empty(PARAMETERS).to_bytes()}
    message = client.step("update", signed_answer(run, "negotiate", nothing))
    own = update.scores > np.float32(variant.settings.threshold_of(0))
    assert own.any()
    assert client.disclosure.kept == Mask.from_bool(own)
    sent = message.vector("values", np.float32, PARAMETERS - own.sum())
    np.testing.assert_array_equal(sent, (update.parameters - start.parameters)[~own])
