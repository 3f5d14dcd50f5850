"""SenseCrypt's client, which encrypts its own share, and the aggregator, which clusters and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.learning.local_update import StartingPoint
from shieldfl.masks import Mask, Selection, select, sense_crypt_budgets
from shieldfl.methods.encrypted_update import MixedSum, MixedUpload, encrypted_positions, in_buffer_range
from shieldfl.methods.sense_crypt.clustering import ClusterRegistry, noised_sensitivity
from shieldfl.methods.sense_crypt.settings import SenseCryptSettings
from shieldfl.privacy.events import ClearUpload, Noise, NoisedUpload
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Disclosure, Note
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.stateful import refuse_unless


def cluster_round(context: RoleContext, round_number: int, cluster: int) -> int:
    """Return the number under which a cluster's ciphertexts of a round travel.

    Of each number the key authority opens one total, so no two clusters share one; there are at most as many clusters
    as clients. Where clients enrol it is the round's own, by which their keys go on: whoever is in one cluster's total
    is answered for in no other.
    """
    if context.keys.enrols:
        return round_number
    return round_number * context.plan.clients + cluster


def cluster_model(message: Message, cluster: int) -> Message:
    """Return a cluster's part of the models of all: no model for what is no cluster, -1."""
    suffix = f" {cluster}"
    own = {name.removesuffix(suffix): part for name, part in message.items() if name.endswith(suffix)}
    return Message(own if cluster >= 0 else {})


class SenseCryptClient(TrainingClient):
    """One client, whose global model is its cluster's.

    That comes with all buffers, which are encrypted in full. ``noise_multiplier`` is of the sensitivity that
    it uploads once; 0 for no noise.
    """

    changes: ClassVar = {
        "introduced": bool,
        "selection": Selection | None,
        "_introduction": bytes | None,
        "_sensitivity_recorded": bool,
        "_introduced_in": int | None,
        "_cluster": int,
    }

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        settings: SenseCryptSettings,
        noise_multiplier: float,
        weight: int,
        context: RoleContext,
    ) -> None:
        super().__init__(index, initial, context)
        self.introduced = False
        """Whether its sensitivity, or without clustering what it reports of itself, has arrived."""
        self.selection: Selection | None = None
        """What it chose in the last round."""
        self._settings = settings
        self._noise_multiplier = noise_multiplier
        self._weight = weight
        self._upload: MixedUpload | None = None
        self._clients = context.plan.clients
        self._introduction: bytes | None = None
        self._sensitivity_recorded = False
        self._introduced_in: int | None = None
        """The last round in which it introduced itself, or said that it is there."""
        self._cluster = 0

    def check_changed(self) -> None:
        refuse_unless(self.selection is None or self.selection.mask.size == self._size)
        refuse_unless(self._introduction is None or len(self._introduction) == 4 * self._size)
        refuse_unless(0 <= self._cluster < self._clients and 0 <= (self._introduced_in or 0) <= self.round)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the cluster's model, with sensitivities (eq. 2)."""
        start = super()._begin_round(round_number, participants, model)
        # What an earlier round left must not be sent in this one.
        self.selection = None
        return start

    def _read_model(self, model: Message) -> GlobalModel:
        """Read the cluster's model; a client that is in none, which is signed too, begins with the initial one."""
        return super()._read_model(model) if "parameters" in model else self._initial

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
        self._introduced_in = self.round
        if self.introduced:
            return Message(parts)
        with self.clock.stage("negotiate"):
            # So that its budget follows (section 3.2).
            kinds = self._settings.bandwidths, self._settings.compute_speeds
            parts["capability"] = np.array([of[self.index % len(of)] for of in kinds]).tobytes()
            if self._settings.clustering != "none":
                if self._introduction is None:
                    self._introduction = noised_sensitivity(
                        self.trained_scores,
                        self._settings.clustering_clip_norm,
                        self._noise_multiplier,
                        self.context.threads,
                    ).tobytes()
                parts["sensitivity"] = self._introduction
            self._name("capability", *({"sensitivity"} & set(parts)))
            return Message(parts)

    def _record(self, before: Disclosure, now: Disclosure) -> None:
        super()._record(before, now)
        # Once: sent again in a later round, it is the same.
        if "sensitivity" in now.parts and not self._sensitivity_recorded:
            self._sensitivity_recorded = True
            if self._noise_multiplier > 0.0:
                noise = Noise(self._noise_multiplier, "client")
                self.record(NoisedUpload(self.round, self.index, noise, "sensitivity"))
            else:
                self.record(ClearUpload(self.round, self.index, "sensitivity"))

    def _tells(self, part: str) -> bool:
        # Its noise is recorded with it. A mask tells even where it chooses all: whether it does follows from scores.
        return part != "sensitivity" and super()._tells(part)

    def _choose(self, answer: Message) -> Message:
        if self._introduced_in != self.round:
            raise ParameterError("the mask phase follows the one in which the client introduces itself")
        with self.clock.stage("score"):
            cluster = answer.number("cluster")
            if cluster >= self._clients:
                raise WireFormatError("there is no cluster of this number")
            # A budget follows from what others report, so it does not decide alone how little is protected.
            budget = max(float(answer.vector("budget", np.float64, 1)[0]), self._settings.least_budget)
            chosen = select(
                self.trained_scores,
                self.update.parameters,
                self._settings.limits(budget),
                self.context.threads,
            )
            self.selection, self._cluster, self.introduced = chosen, cluster, True
            if not (chosen.meets_security and chosen.meets_information):
                text = f"client {self.index}: its budget is too small for eq. 7 or eq. 8, and was kept"
                self.note(Note(text))
        with self.clock.stage("negotiate"):
            self._name("mask")
            return Message({"round": Message.from_number(self.round), "mask": chosen.mask.to_bytes()})

    def _name(self, *parts: str) -> None:
        """State that these parts leave in the clear."""
        self.disclosure = replace(self.disclosure, parts=self.disclosure.parts + parts)

    def _protect(self, answer: Message) -> Message:
        if self.selection is None:
            raise ParameterError("the update phase needs the mask that the phase before has chosen")
        with self.clock.stage("merge"):
            update = self._difference()
        mask = encrypted_positions(self.selection.mask, self._buffer_count)
        number = cluster_round(self.context, self.round, self._cluster)
        with self.clock.stage("encrypt"):
            key = self._round_key("update")
            if self._upload is None or self._upload.key != key:
                self._upload = MixedUpload(key, self._weight, self.context.most_weight, self.context.threads)
            upload = self._upload
            union = upload.read_union(answer, mask.size)
            buffers, factor = self._buffer_count, self.context.buffer_factor
            with in_buffer_range(update, buffers, factor) as scaled:
                ciphertexts, mask = upload.encrypt(scaled, mask, union, number)
        self.disclosure = Disclosure.of_zone(mask, self._size, parts=(*self.disclosure.parts, "weight"))
        with self.clock.stage("upload"):
            parts = upload.parts(update, ciphertexts, mask)
            return Message({"round": Message.from_number(self.round), **parts})


class SenseCryptAggregator(CollectingAggregator):
    """Holds the round's public key; sees sensitivities (noised, if so set), masks, what is not encrypted."""

    changes: ClassVar = {
        "_registry": ClusterRegistry,
        "_masks": dict[int, Mask],
        "_masks_of": int | None,
        "_sums": dict[int, MixedSum],
    }
    sums = ("_sums",)

    def __init__(self, context: RoleContext, weights: tuple[int, ...], registry: ClusterRegistry) -> None:
        super().__init__(context)
        self._size = context.plan.parameters
        self._buffers = context.plan.buffers
        self._registry = registry
        self._weights = weights
        self._masks: dict[int, Mask] = {}
        self._masks_of: int | None = None
        """The round of these masks."""
        self._sums: dict[int, MixedSum] = {}
        self._united: dict[int, MixedSum] = {}
        """Sums of nothing yet, over the unions that the mask phase came to: for the update phase."""

    def check_changed(self) -> None:
        known = {client for client in range(self._clients) if self._registry.knows(client)}
        refuse_unless(self._masks.keys() <= known and self._registry.is_of(self._size))
        refuse_unless(all(mask.size == self._size + self._buffers for mask in self._masks.values()))
        refuse_unless(0 <= (self._masks_of or 0) <= self.round)

    def take_changed(self, record: Mapping[str, Any]) -> None:
        self._united = {}
        super().take_changed(record)

    def check_sums(self) -> None:
        super().check_sums()
        if self._phase != "update":
            refuse_unless(not self._sums)
            return
        refuse_unless(self._seen <= self._masks.keys())
        heard = Counter(map(self._registry.cluster_of, self._seen))
        refuse_unless(self._sums.keys() == {self._registry.cluster_of(client) for client in self._masks})
        refuse_unless(all(one.is_of(one.union, heard[cluster]) for cluster, one in self._sums.items()))

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect; who is in which cluster is kept from round to round, masks for the update phase."""
        if phase == "update":
            if self._masks_of != round_number:
                raise PolicyError(f"nobody has sent a mask for the update phase of round {round_number}")
            with self.clock.stage("negotiate"):
                self._sums, self._united = self._united or self._new_sums(round_number), {}
        else:
            self._masks, self._masks_of = {}, round_number
            self._sums, self._united = {}, {}

    def _collect(self, phase: str, client: int, message: Message) -> None:
        if phase == "cluster":
            with self.clock.stage("negotiate"):
                self._receive_introduction(client, message)
        elif phase == "mask":
            with self.clock.stage("negotiate"):
                if not self._registry.knows(client):
                    raise PolicyError(f"client {client} sent a mask without being in a cluster")
                mask = Mask.from_bytes(message["mask"], expected_size=self._size)
                self._masks[client] = encrypted_positions(mask, self._buffers)
        elif client in self._masks:
            self._sums[self._registry.cluster_of(client)].add(client, message, self._masks[client])
        else:
            raise PolicyError(f"client {client} sent an update without a mask in this round")

    def _receive_introduction(self, client: int, message: Message) -> None:
        if self._registry.knows(client) and "capability" not in message:
            return
        vector = None
        if self._registry.by_sensitivity:
            vector = message.vector("sensitivity", np.float32, self._size)
        bandwidth, speed = message.vector("capability", np.float64, 2)
        self._registry.introduce(client, vector, float(bandwidth), float(speed))

    def _result(self, phase: str) -> Message:
        if phase == "cluster":
            with self.clock.stage("negotiate"):
                return self._assign()
        if phase == "mask":
            with self.clock.stage("negotiate"):
                return self._unite()
        with self.clock.stage("aggregate"):
            parts = {"round": Message.from_number(self.round), "clusters": self._registry.clusters.tobytes()}
            for cluster, total in self._sums.items():
                parts |= total.parts(f" {cluster}")
            return Message(parts)

    def _assign(self) -> Message:
        for text in self._registry.assign():
            self.note(Note(text))
        clusters = self._registry.clusters
        known = np.flatnonzero(clusters >= 0)
        budgets = np.zeros(clusters.size)
        bandwidths, speeds = self._registry.capabilities[known].T.copy()
        budgets[known] = sense_crypt_budgets(bandwidths, speeds, clusters[known])
        return Message({"clusters": clusters.tobytes(), "budgets": budgets.tobytes()})

    def _unite(self) -> Message:
        parts = {"clusters": self._registry.clusters.tobytes()}
        self._united = self._new_sums(self.round)
        for cluster, total in self._united.items():
            parts |= total.union_parts(f" {cluster}")
        return Message(parts)

    def _new_sums(self, round_number: int) -> dict[int, MixedSum]:
        """Return a sum for each cluster that has a mask, of nothing yet."""
        clusters = self._registry.clusters
        key = self._round_key(round_number, "update")
        sums = {}
        for cluster in sorted({int(clusters[client]) for client in self._masks}):
            masks = [mask for client, mask in self._masks.items() if clusters[client] == cluster]
            number = cluster_round(self.context, round_number, cluster)
            sums[cluster] = MixedSum(
                key,
                masks,
                number,
                self._weights,
                self.clock,
                self.context.threads,
                weighted=self.context.most_weight > 1,
            )
        return sums
