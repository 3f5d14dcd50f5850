"""SenseCrypt, the client: sensitivity, mask, selective encryption (its algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shieldfl import ckks, paillier
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.methods.client_clustering import noised_sensitivity
from shieldfl.methods.disclosure import Disclosure
from shieldfl.methods.encrypted_positions import encrypted_positions
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import StartingPoint
from shieldfl.methods.mixed_upload import MixedUpload
from shieldfl.methods.sense_crypt_settings import SenseCryptSettings
from shieldfl.methods.training_client import TrainingClient
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


class SenseCryptClient(TrainingClient):
    """One client, whose global model is its cluster's.

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
    threads : for the core; None for as many as the work is worth.
    """

    scores = "taylor"

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
        super().__init__(initial)
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
        self._introduction: bytes | None = None
        self._cluster = 0

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the cluster's model, with sensitivities (eq. 2)."""
        # What an earlier round left must not be sent in this one.
        self.selection = None
        return super().begin_round(round_number, participants, model)

    def _make(self, phase: str, answer: Message | None) -> Message:
        """Introduce itself; send its mask; send its update."""
        if phase == "cluster":
            return self._introduce()
        if answer is None:
            raise ParameterError(f"phase {phase!r} needs the answer to the phase before")
        if phase == "mask":
            return self._choose(answer)
        return self._protect(answer)

    def _introduce(self) -> Message:
        """Send the sensitivity vector, noised once, until an answer shows that it has arrived (section 3.1)."""
        parts = {"round": Message.from_number(self.round)}
        if self.introduced:
            return Message(parts)
        with self._clock.stage("negotiate"):
            reported = np.array([self._capability.bandwidth, self._capability.compute_speed])
            parts["capability"] = reported.tobytes()
            if self._settings.clustering != "none":
                if self._introduction is None:
                    self._introduction = noised_sensitivity(
                        self.trained_scores,
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
                self.trained_scores, self.update.parameters, self._settings.limits(budget), self._threads
            )
            self.selection = chosen
            if not (chosen.meets_security and chosen.meets_information):
                note = f"client {self._index}: its budget is too small for eq. 7 or eq. 8, and was kept"
                if note not in self._notes:
                    self._notes.append(note)
        with self._clock.stage("negotiate"):
            self._name("mask")
            self.exposed |= 0 < chosen.mask.count < chosen.mask.size
            return Message({"round": Message.from_number(self.round), "mask": chosen.mask.to_bytes()})

    def _name(self, *parts: str) -> None:
        """State that these parts leave in the clear."""
        self.disclosure = replace(self.disclosure, parts=self.disclosure.parts + parts)

    def _protect(self, answer: Message) -> Message:
        if self.selection is None:
            raise ParameterError("the update phase needs the mask that the phase before has chosen")
        with self._clock.stage("merge"):
            update = self._difference()
        mask = encrypted_positions(self.selection.mask, self._buffer_count)
        number = cluster_round(self.round, self._cluster, self._clients)
        with self._clock.stage("encrypt"):
            union = self._upload.read_union(answer, mask.size)
            ciphertexts, mask = self._upload.encrypt(update, mask, union, number)
        self.exposed |= mask.count < mask.size
        self.disclosure = Disclosure.of_zone(mask, self._size, parts=(*self.disclosure.parts, "weight"))
        with self._clock.stage("upload"):
            parts = self._upload.parts(update, ciphertexts, mask)
            return Message({"round": Message.from_number(self.round), **parts})
