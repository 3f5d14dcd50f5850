"""Drives any method's steps by hand: a training that needs no torch, and messages that a test can alter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pytest

from methods.small_federation import small_federation
from shieldfl import ckks, paillier
from shieldfl.methods.account import Account
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import AggregatorSteps, LocalUpdate, PrivateSteps, StartingPoint
from shieldfl.methods.registry import METHOD_NAMES, make_method
from shieldfl.methods.reports import Report
from shieldfl.methods.selective_shield_settings import SelectiveShieldSettings
from shieldfl.methods.sense_crypt_settings import SenseCryptSettings
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import RoundKeyReader, round_key_parts

PARAMETERS = 333  # no multiple of 64
BUFFERS = 5
LAYER_OFFSETS = (0, 200, 320, PARAMETERS)
# Where each value gets a ciphertext of its own: no multiple of 64 either, and more than a word of a mask.
FEW_PARAMETERS = 70
FEW_LAYER_OFFSETS = (0, 42, 67, FEW_PARAMETERS)
CLIENTS = 4

Train = Callable[[int, int, StartingPoint], LocalUpdate]
Messages = dict[int, Message]
Intrude = Callable[[str, AggregatorSteps, Messages], None]


@dataclass(frozen=True)
class Variant:
    """A method under one setting."""

    method: str
    settings: SelectiveShieldSettings
    label: str
    others: MethodSettings = field(default_factory=MethodSettings)
    """The settings of all methods but SelectiveShield."""

    @property
    def averages_all(self) -> bool:
        """Whether the mean of all updates is what it gives, up to the fixed point of what is encrypted."""
        return self.method != "selective-shield"

    @property
    def layer_offsets(self) -> tuple[int, ...]:
        """The layers of the model that it is tried with: a small one where each value gets its own ciphertext."""
        own = getattr(self.others, self.method.replace("-", "_"), None)
        single = self.method == "plain-he" or getattr(own, "encryption", None) == "paillier-single"
        return FEW_LAYER_OFFSETS if single else LAYER_OFFSETS

    @property
    def size(self) -> int:
        """The number of that model's parameters."""
        return self.layer_offsets[-1]

    @property
    def first_trained(self) -> int:
        """The first of the parameters that are trained; those before it stay as they are."""
        return self.layer_offsets[-3] if self.method == "top-2" else 0

    @property
    def may_encrypt_nothing(self) -> bool:
        """Whether there are settings under which every parameter is sent in the clear."""
        return self.method not in ("full-he", "plain-he", "top-2", "dict-pfl", "batch-crypt")

    @property
    def shows(self) -> bool:
        """Whether anything of a client but ciphertexts can be read."""
        return self.method not in ("full-he", "plain-he", "top-2")

    def all_settings(self) -> MethodSettings:
        return replace(self.others, selective_shield=self.settings)

    def with_others(self, **changes: object) -> Variant:
        """Change the settings of its method, other than SelectiveShield; fields that it does not have are ignored."""
        if self.method.replace("-", "_") not in {one.name for one in fields(MethodSettings)}:
            return self
        known = {one.name for one in fields(getattr(self.others, self.method.replace("-", "_")))}
        fitting = {name: value for name, value in changes.items() if name in known}
        return replace(self, others=self.others.changed(self.method, fitting))

    @property
    def noisy(self) -> bool:
        return self.settings.noise_multiplier > 0.0

    def with_settings(self, **changes: object) -> Variant:
        return replace(self, settings=replace(self.settings, **changes))

    def losing_nothing(self, fraction_bits: int) -> Variant:
        """Every position is encrypted or sent in the clear, with so many bits behind the point."""
        changed = self.with_settings(threshold=-1.0, consensus=1.0, fraction_bits=fraction_bits)
        return changed.with_others(fraction_bits=fraction_bits, small_percent=0.0)

    def encrypting_nothing(self) -> Variant:
        """Where the method has a zone that may be empty, it is."""
        return self.with_settings(threshold=1.0).with_others(
            exposed_share=1.0,
            exposure_decay=1e-300,
            information_bits=9.0,
            cost_weight=1e12,
            ratio=1e-9,
            encrypted_share=0.0,
        )


# Noise far below a float32 rounding of the weights, of which it may turn one or two a round; nothing is clipped.
FAINT = {"noise_multiplier": 1e-12, "clip_norm": 100.0}
# The least multiplier that discrete noise takes; the norm clips no update of these.
FAINT_DISCRETE = {"noise_distribution": "discrete-gaussian", "noise_multiplier": 2.0**-29, "clip_norm": 8.0}
FAINT_TOLERANCE = 6 * float(np.spacing(np.float32(1.0)))

_SELECTIVE = {
    "clear": {},
    "encrypted": {"negotiation": "encrypted"},
    "hidden": {"negotiation": "encrypted", "hide_personalised": True, **FAINT},
    "hidden-discrete": {"negotiation": "encrypted", "hide_personalised": True, **FAINT_DISCRETE},
    "participants": {"divisor": "participants"},
    "buffers": {"buffers": "encrypted"},
    "encrypted-buffers": {"negotiation": "encrypted", "buffers": "encrypted"},
    "batch": {"sensitivity": "batch"},
    "per-sample": {"sensitivity": "per-sample"},
    "thresholds": {"threshold": (0.2, 0.4, 0.6, 1.0)},
}


_SENSE_CRYPT = {
    "single": {"encryption": "paillier-single", "clustering": "none"},
    "dense": {"clustering": "none", "bandwidths": (4.0, 3.0, 2.0, 1.0)},
    "ckks": {"encryption": "ckks", "clustering": "none", "compute_speeds": (1.0, 0.3)},
    "clusters": {"encryption": "ckks"},
}


# Methods that noise, without it; nothing is clipped.
_WITHOUT_NOISE = {"noise_multiplier": 0.0, "clip_norm": 1000.0}
# Alt-FL: two rounds of its first kind, one of the second. No data set says what delta is.
_ENCRYPTED_FIRST = {"interleaving_ratio": "1/4", "encrypted_share": 0.5, "delta": 1e-5}


def variants() -> list[Variant]:
    """Every registered method, those with options under each of them."""
    settings = SelectiveShieldSettings(threshold=0.5)
    with_options = ("selective-shield", "sense-crypt")
    found = [
        Variant(name, settings, name).with_others(
            key_bits=2048, width=32, patience_rounds=1, **_WITHOUT_NOISE, **_ENCRYPTED_FIRST
        )
        for name in METHOD_NAMES
        if name not in with_options
    ]
    found += [
        Variant(name, settings, f"{name}/{encryption}").with_others(encryption=encryption, key_bits=2048)
        for name, encryption in (("full-he", "paillier-dense"), ("fedml-he", "paillier-dense"))
    ]
    found += [
        Variant(name, settings, f"{name}/{label}").with_others(**_ENCRYPTED_FIRST | changes, key_bits=2048)
        for name, label, changes in (
            ("alt-fl-pi", "dense", {"encryption": "paillier-dense"}),
            ("alt-fl-mp", "noised", {}),
            ("alt-fl-si-dp", "noised", {}),
            ("dp-sgd", "noised", {}),
        )
    ]
    # Normal weights have more than 2 bits in 256 bins; a limit of 5 leaves something in the clear.
    found += [
        Variant(
            "sense-crypt",
            settings,
            f"sense-crypt/{label}",
            MethodSettings(sense_crypt=SenseCryptSettings(key_bits=2048, information_bits=5.0, **changes)),
        )
        for label, changes in _SENSE_CRYPT.items()
    ]
    found += [
        Variant("selective-shield", replace(settings, **changes), f"selective-shield/{label}")
        for label, changes in _SELECTIVE.items()
    ]
    return found


def initial_model(size: int = PARAMETERS) -> GlobalModel:
    generator = np.random.default_rng(0)
    return GlobalModel(
        generator.normal(0.0, 0.3, size).astype(np.float32),
        generator.normal(0.0, 0.3, BUFFERS).astype(np.float32),
    )


def contraction(round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
    """Go a tenth of the way to a target that is the client's own in this round; random scores up to 1."""
    generator = np.random.default_rng([round_number, client])
    vectors = (start.parameters, start.buffers)
    targets = [generator.normal(0.0, 1.0, one.size).astype(np.float32) for one in vectors]
    scores = generator.random(start.parameters.size, dtype=np.float32)
    step = np.float32(0.1)
    return start.trained(
        start.parameters + step * (targets[0] - start.parameters),
        start.buffers + step * (targets[1] - start.buffers),
        scores,
        None if start.noise is None else PrivateSteps(steps=2, sample_rate=0.5),
    )


every_variant = pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.label)


class SteppedRun:
    """One method, its roles and their messages; nothing happens but what a test asks for.

    ``changes`` are those of ``small_federation``.
    """

    def __init__(
        self,
        variant: Variant,
        *,
        clients: int = CLIENTS,
        initial: GlobalModel | None = None,
        train: Train = contraction,
        **changes: Any,
    ) -> None:
        self.initial = initial or initial_model(variant.size)
        federation = small_federation(
            clients=clients, layer_offsets=variant.layer_offsets, shared_secret=bytes(range(32)), **changes
        )
        self.method = make_method(variant.method, self.initial, federation, variant.all_settings())
        self.clients = [self.method.client(index) for index in range(clients)]
        self.aggregator = self.method.aggregator()
        self.authority = self.method.authority()
        self.model = self.method.initial_model()
        self._account = self.method.account()
        self.sent: dict[str, Messages] = {}
        """By phase and client: the messages of the last round."""
        self.closed: dict[str, Message] = {}
        """By phase: what the aggregator made of them."""
        self.answers: dict[str, Message] = {}
        """By phase: what the clients got."""
        self._train = train
        self._first_trained = variant.first_trained
        self._round = 0

    @property
    def account(self) -> Account:
        """What the roles have reported so far."""
        for role in (*self.clients, self.aggregator, self.authority):
            self._account.take(Report() if role is None else role.report())
        return self._account

    def settings(self) -> dict[str, object]:
        """The settings, with what was charged."""
        return self.method.settings() | self.account.settings()

    @property
    def parameters(self) -> np.ndarray:
        """The first client's global model's parameters, float32 (P,)."""
        model = self.method.message_for(0, self.model)
        return model.vector("parameters", np.float32, self.initial.parameters.size)

    @property
    def buffers(self) -> np.ndarray:
        """Its buffers; empty where they stay local."""
        return np.frombuffer(self.method.message_for(0, self.model)["buffers"], dtype=np.float32)

    @property
    def reader(self) -> RoundKeyReader:
        """The first client's keys."""
        return self.clients[0]._round_keys

    def encryptor(self, purpose: str = "update") -> ckks.Encryptor | paillier.Encryptor:
        """What encrypts under the key of the round that the first client is in."""
        key = self.reader._keys[purpose]
        return paillier.Encryptor(key) if isinstance(key, paillier.PublicKey) else ckks.Encryptor(key)

    def batch(self, frame: bytes) -> ckks.CiphertextBatch | paillier.CiphertextBatch:
        """Read a batch of the scheme that the first client encrypts with."""
        scheme = paillier if isinstance(self.reader.check.parameters["update"], paillier.Parameters) else ckks
        return scheme.CiphertextBatch.from_bytes(frame)

    def run_round(
        self,
        participants: Iterable[int] | None = None,
        dropping: Iterable[int] = (),
        intrude: Intrude | None = None,
    ) -> None:
        """Run a round. Clients that are ``dropping`` send nothing in the last phase.

        ``intrude(phase, aggregator, messages)`` may do as it likes before the honest messages arrive, or take some out.
        """
        chosen = list(range(len(self.clients))) if participants is None else list(participants)
        leaving = set(dropping)
        self._round += 1
        first = self.begin_round(self._round)
        for index in chosen:
            model = self.method.message_for(index, first)
            start = self.clients[index].begin_round(self._round, len(chosen), model)
            update = self._train(self._round, index, start)
            frozen = min(self._first_trained, update.parameters.size)
            update.parameters[:frozen] = start.parameters[:frozen]
            self.clients[index].finish_training(update)
        answer = None
        self.sent = {}
        phases = self.method.phases_of(self.model, self._round)
        for phase in phases:
            last = phase is phases[-1]
            senders = [index for index in chosen if not (last and index in leaving)]
            self.aggregator.begin_phase(phase.name, self._round, answer)
            messages = {
                index: self.clients[index].step(phase.name, self._answer_for(index, answer))
                for index in senders
            }
            self.sent[phase.name] = messages
            if intrude is not None:
                intrude(phase.name, self.aggregator, messages)
            for index, message in messages.items():
                self.aggregator.receive(phase.name, index, Message.from_bytes(message.to_bytes()))
            chosen = list(messages)
            answer = self.aggregator.close(phase.name)
            self.closed[phase.name] = answer
            if phase.answered_by_authority:
                answer = self.authority.answer(phase.name, Message.from_bytes(answer.to_bytes()))
            self.answers[phase.name] = answer
        assert answer is not None
        self.model = answer
        for index in chosen:
            self.clients[index].end_round(self.method.message_for(index, answer))

    def begin_round(self, round_number: int, model: Message | None = None) -> Message:
        """Let authority and aggregator begin a round, from the newest model or another: its first message."""
        first = self.model if model is None else model
        if self.authority is not None:
            first = self.authority.begin_round(round_number, first)
        first = Message.from_bytes(first.to_bytes())
        self.aggregator.begin_round(round_number, Message(round_key_parts(first)))
        return first

    def merged(self, client: int) -> StartingPoint:
        """What a client would use for inference."""
        return self.clients[client].merged_model(self.method.message_for(client, self.model))

    def _answer_for(self, client: int, answer: Message | None) -> Message | None:
        return None if answer is None else self.method.message_for(client, answer)
