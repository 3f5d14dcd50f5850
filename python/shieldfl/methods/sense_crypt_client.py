"""SenseCrypt, the client: sensitivity, mask, selective encryption (its algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shieldfl import ckks, paillier
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.methods.client_clustering import noised_sensitivity
from shieldfl.methods.disclosure import Disclosure
from shieldfl.methods.encrypted_positions import encrypted_positions
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import ClientSteps, LocalUpdate, StartingPoint
from shieldfl.methods.mixed_upload import MixedUpload
from shieldfl.methods.replies import Replies
from shieldfl.methods.sense_crypt_settings import SenseCryptSettings
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message
from shieldfl.selection import Selection, select

__all__ = ["Capability", "SenseCryptClient", "cluster_round"]


@dataclass(frozen=True)
class Capability:
    """What a client reports of itself, so that its budget follows (section 3.2), and how much it counts."""

    bandwidth: float
    compute_speed: float
    weight: int


def cluster_round(round_number: int, cluster: int, clients: int) -> int:
    """Return the number under which a cluster's ciphertexts of a round travel: no two clusters share one.

    The key authority opens one total for each. There are at most as many clusters as clients.
    """
    return round_number * clients + cluster


class SenseCryptClient(ClientSteps):
    """One client.

    Parameters
    ----------
    index : its number.
    initial : the global model before the first round, with all buffers, which are encrypted in full.
    settings : the method's settings.
    noise_multiplier : of the sensitivity that it uploads once; 0 for no noise.
    capability : what it reports of itself.
    key : the public key.
    clients : how many clients there are, and of those the largest weight.
    clock : where the stages' time goes.
    notes : where a reader of the results is told what fell short.
    threads : for the core; None for all cores.
    """

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        settings: SenseCryptSettings,
        noise_multiplier: float,
        capability: Capability,
        key: ckks.PublicKey | paillier.PublicKey,
        clients: int,
        most_weight: int,
        clock: StageClock,
        notes: list[str],
        threads: int | None,
    ) -> None:
        self.disclosure = Disclosure.of_nothing(initial.parameters.size)
        self.introduced = False
        """Whether its sensitivity, or without clustering what it reports of itself, has arrived."""
        self.sent_sensitivity = False
        """Whether a sensitivity has left this client."""
        self.exposed = False
        """Whether a value, or a mask that tells scores apart, has left this client without encryption."""
        self.selection: Selection | None = None
        """What it chose in the last round."""
        self._index = index
        self._settings = settings
        self._noise_multiplier = noise_multiplier
        self._capability = capability
        self._upload = MixedUpload(key, capability.weight, most_weight, threads)
        self._clients = clients
        self._clock = clock
        self._notes = notes
        self._threads = threads
        self._size, self._buffer_count = initial.parameters.size, initial.buffers.size
        self._start = initial
        self._trained = initial
        self._scores: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._introduction: bytes | None = None
        self._cluster = 0
        self._round = 0
        self._replies = Replies()

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the cluster's model."""
        # A round that is begun again has disclosed what it had: its messages are repeated.
        if round_number != self._round:
            self.disclosure = Disclosure.of_nothing(self._size)
        self._round = round_number
        # What an earlier round left must not be sent in this one.
        self.selection = None
        self._scores = np.empty(0, dtype=np.float32)
        self._start = GlobalModel.from_message(model, self._size, self._buffer_count)
        return replace(self._start.starting_point(), scores="taylor")

    def finish_training(self, update: LocalUpdate) -> None:
        """Keep the trained model and its sensitivities (eq. 2)."""
        update.check(self._size, self._buffer_count)
        self._scores = update.checked_scores()
        self._trained = GlobalModel(update.parameters, update.buffers)

    def step(self, phase: str, answer: Message | None) -> Message:
        """Introduce itself; send its mask; send its update. The same bytes when asked again."""
        return self._replies.reply(phase, self._round, answer, lambda: self._make(phase, answer))

    def _make(self, phase: str, answer: Message | None) -> Message:
        if not self._scores.size:
            raise ParameterError("there is nothing to send before training has finished")
        if phase == "cluster":
            return self._introduce()
        if answer is None:
            raise ParameterError(f"phase {phase!r} needs the answer to the phase before")
        if phase == "mask":
            return self._choose(answer)
        return self._protect(answer)

    def _introduce(self) -> Message:
        """Send the sensitivity vector, noised once, until an answer shows that it has arrived (section 3.1)."""
        parts = {"round": Message.from_number(self._round)}
        if self.introduced:
            return Message(parts)
        with self._clock.stage("negotiate"):
            reported = np.array([self._capability.bandwidth, self._capability.compute_speed])
            parts["capability"] = reported.tobytes()
            if self._settings.clustering != "none":
                if self._introduction is None:
                    self._introduction = noised_sensitivity(
                        self._scores,
                        self._settings.clustering_clip_norm,
                        self._noise_multiplier,
                        self._threads,
                    ).tobytes()
                parts["sensitivity"] = self._introduction
                self.sent_sensitivity = True
            self._name("capability", *({"sensitivity"} & set(parts)))
            return Message(parts)

    def _choose(self, answer: Message) -> Message:
        with self._clock.stage("score"):
            self._cluster = answer.number("cluster")
            self.introduced = True
            if self._cluster >= self._clients:
                raise WireFormatError("there is no cluster of this number")
            # A budget follows from what others report, so it does not decide alone how little is protected.
            budget = max(float(answer.vector("budget", np.float64, 1)[0]), self._settings.least_budget)
            chosen = select(
                self._scores, self._trained.parameters, self._settings.limits(budget), self._threads
            )
            self.selection = chosen
            if not (chosen.meets_security and chosen.meets_information):
                note = f"client {self._index}: its budget is too small for eq. 7 or eq. 8, and was kept"
                if note not in self._notes:
                    self._notes.append(note)
        with self._clock.stage("negotiate"):
            self._name("mask")
            self.exposed |= 0 < chosen.mask.count < chosen.mask.size
            return Message({"round": Message.from_number(self._round), "mask": chosen.mask.to_bytes()})

    def _name(self, *parts: str) -> None:
        """State that these parts leave in the clear."""
        self.disclosure = replace(self.disclosure, parts=self.disclosure.parts + parts)

    def _protect(self, answer: Message) -> Message:
        if self.selection is None:
            raise ParameterError("the update phase needs the mask that the phase before has chosen")
        with self._clock.stage("merge"):
            update = np.concatenate(
                (
                    self._trained.parameters - self._start.parameters,
                    self._trained.buffers - self._start.buffers,
                )
            )
        mask = encrypted_positions(self.selection.mask, self._buffer_count)
        number = cluster_round(self._round, self._cluster, self._clients)
        with self._clock.stage("encrypt"):
            union = self._upload.read_union(answer, mask.size)
            ciphertexts, mask = self._upload.encrypt(update, mask, union, number)
        self.exposed |= mask.count < mask.size
        self.disclosure = Disclosure.of_zone(mask, self._size, parts=(*self.disclosure.parts, "weight"))
        with self._clock.stage("upload"):
            parts = self._upload.parts(update, ciphertexts, mask)
            return Message({"round": Message.from_number(self._round), **parts})

    def end_round(self, answer: Message) -> None:
        """Nothing is kept but the sensitivity that was sent."""

    def merged_model(self, model: Message) -> StartingPoint:
        """The cluster's model is everybody's in it."""
        return GlobalModel.from_message(model, self._size, self._buffer_count).starting_point()
