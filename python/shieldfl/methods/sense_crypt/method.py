"""SenseCrypt: each client encrypts what is sensitive and what it has the time for, in clusters of like data.

docs/reference/methods/sense-crypt.md says what it protects, what leaks and how the paper was read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from operator import or_
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import INVITED, digest_of_parts, model_signature_name, round_key_parts
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector, StartingPoint
from shieldfl.masks import Mask, Selection, SelectionLimits, select, sense_crypt_budgets
from shieldfl.methods.encrypted_update import (
    MixedSum,
    MixedTotal,
    MixedUpload,
    encrypted_positions,
    in_buffer_range,
    opened_mean,
)
from shieldfl.methods.encryption_settings import EncryptionSettings, update_parameters
from shieldfl.methods.sense_crypt.clustering import IntVector, cluster_clients, noised_sensitivity
from shieldfl.privacy.accountant import gaussian_noise_multiplier
from shieldfl.privacy.events import ClearUpload, Noise, NoisedUpload, PrivacyReading
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.method import Method, NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Phase, RoleContext
from shieldfl.rounds.reports import Disclosure, Note
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.settings import Delta, NotNegative, Positive, Share, about
from shieldfl.stateful import refuse_unless

_Kinds = Annotated[tuple[Positive, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class SenseCryptSettings(EncryptionSettings):
    """Settings of SenseCrypt."""

    encryption: Annotated[
        str,
        about(
            "Encryption scheme and packing. paillier-single: one ciphertext for each value, as in the "
            "paper. paillier-dense: many values in a ciphertext, in the order of the cluster's union. "
            "Under the others every client encrypts the union.",
            choices=encryptions,
        ),
    ] = "paillier-dense"
    clustering: Annotated[
        Literal["affinity-propagation", "none"],
        about("Clustering of the clients by their sensitivities. none: one cluster."),
    ] = "affinity-propagation"
    clustering_epsilon: Annotated[
        Annotated[float, Meta(ge=1e-6, le=1e9)] | None,
        about(
            "Epsilon of the noise on the sensitivities that clients upload once for clustering. Default: "
            "no noise."
        ),
    ] = None
    clustering_delta: Annotated[Delta, about("Delta of that noise.")] = 1e-5
    clustering_clip_norm: Annotated[
        float,
        Meta(ge=2.0**-100, le=2.0**100),
        about(
            "L2 norm to which sensitivities are clipped, with and without noise (algorithm 2). If it is "
            "below every client's norm, its value does not matter: clustering then compares directions, "
            "which reflect a client's data, and not lengths, which reflect how far it has trained.",
            symbol="G",
        ),
    ] = 1e-3
    least_silhouette: Annotated[
        float,
        Meta(ge=-1.0, le=1.0),
        about(
            "Smallest mean silhouette of a clustering. Below it all clients form one cluster. -1 keeps "
            "every clustering."
        ),
    ] = 0.25
    least_budget: Annotated[
        Share,
        about(
            "Smallest budget; smaller ones are raised to it. Without it, a client that reports a great "
            "speed lowers the budgets of all others."
        ),
    ] = 0.1
    bandwidths: Annotated[
        _Kinds,
        about("Bandwidths of the clients, in any unit. With k values, client i has value i modulo k."),
    ] = (1.0,)
    compute_speeds: Annotated[
        _Kinds, about("Speeds of the clients' processors, in any unit, assigned in the same way.")
    ] = (1.0,)
    exposed_share: Annotated[
        Share,
        about(
            "Factor C of eq. 7: share of the sensitivity that a client with budget 0 may leave unencrypted.",
            symbol="C",
        ),
    ] = SelectionLimits.exposed_share
    exposure_decay: Annotated[
        Positive, about("Rate B of eq. 7: how fast that share falls as the budget grows.", symbol="B")
    ] = SelectionLimits.exposure_decay
    information_bits: Annotated[
        NotNegative,
        about(
            "Most mutual information that the values in the clear may leave, in bits (eq. 8); inf for no "
            "bound.",
            symbol="eta",
            words={"inf": inf},
        ),
    ] = SelectionLimits.information_bits
    information_bins: Annotated[
        int,
        Meta(ge=1, le=65_536),
        about("Bins of the histogram that estimates the mutual information. The paper states no number."),
    ] = SelectionLimits.bins
    objective: Annotated[
        Literal["normalised", "printed"],
        about(
            "Objective of eq. 9. normalised: with the normalised terms of section 3.3. printed: the "
            "difference as printed, without them, which encrypts no more than the constraints on "
            "security and leakage require."
        ),
    ] = "normalised"
    cost_weight: Annotated[
        Positive,
        about("Weight of a position's cost against its protection, for beta_2 = 1.", symbol="beta_1"),
    ] = SelectionLimits.cost_weight

    def limits(self, budget: float) -> SelectionLimits:
        return SelectionLimits(
            budget=budget,
            exposed_share=self.exposed_share,
            exposure_decay=self.exposure_decay,
            information_bits=self.information_bits,
            bins=self.information_bins,
            normalised=self.objective == "normalised",
            cost_weight=self.cost_weight,
        )


def cluster_round(context: RoleContext, round_number: int, cluster: int) -> int:
    """Return the number under which a cluster's ciphertexts of a round travel.

    The key authority opens one total of each number, so no two clusters share one; there are at most as many
    clusters as clients. If clients enrol, it is the round's own number, by which their keys advance: a client
    in one cluster's total is answered for in no other.
    """
    if context.keys.enrols:
        return round_number
    return round_number * context.plan.clients + cluster


def cluster_model(message: Message, cluster: int) -> Message:
    """Return a cluster's part of all clusters' models: no model for -1, which is no cluster."""
    suffix = f" {cluster}"
    own = {name.removesuffix(suffix): part for name, part in message.items() if name.endswith(suffix)}
    return Message(own if cluster >= 0 else {})


class SenseCryptClient(TrainingClient):
    """One client, whose global model is its cluster's.

    That comes with all buffers, which are encrypted in full. ``noise_multiplier`` is that of the sensitivity,
    which it uploads once; 0 for no noise.
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
        self, method: SenseCrypt, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        super().__init__(index, initial, context)
        self.introduced = False
        """Whether its sensitivity, or without clustering its reported capability, has arrived."""
        self.selection: Selection | None = None
        """Its selection in the newest round; None until it has made one."""
        self._settings: SenseCryptSettings = method.own
        self._noise_multiplier = method.noise_multiplier
        self._weight = weight
        self._upload: MixedUpload | None = None
        self._clients = context.plan.clients
        self._introduction: bytes | None = None
        self._sensitivity_recorded = False
        self._introduced_in: int | None = None
        """Last round in which it introduced itself, or said that it is there; None before."""
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
        """Read the cluster's model.

        A client in no cluster, which is signed too, begins with the initial model.
        """
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
        """Send the sensitivity vector, noised once, until an answer shows that it arrived (section 3.1)."""
        parts: dict[str, bytes] = {}
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
        # Its noise is recorded with it. A mask tells even where it chooses all: whether it does follows from
        # scores.
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
            return Message({"mask": chosen.mask.to_bytes()})

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
            return Message(upload.parts(update, ciphertexts, mask))


class SenseCryptAggregator(CollectingAggregator):
    """Holds the round's public key; sees sensitivities (noised, if so set), masks, what is not encrypted.

    Clients that are there are clustered once; later ones join the nearest centre (section 3.1).
    """

    changes: ClassVar = {
        "_clusters": IntVector,
        "_capabilities": np.ndarray[tuple[int, int], np.dtype[np.float64]],
        "_waiting": dict[int, FloatVector],
        "_centres": list[FloatVector],
        "_masks": dict[int, Mask],
        "_masks_of": int | None,
        "_sums": dict[int, MixedSum],
    }
    sums = ("_sums",)

    def __init__(self, method: SenseCrypt, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(context)
        settings: SenseCryptSettings = method.own
        self._size, self._buffers = context.plan.parameters, context.plan.buffers
        self._by_sensitivity = settings.clustering != "none"
        deviation = method.noise_multiplier * settings.clustering_clip_norm
        self._clustered_by = context.plan.min_clients, settings.least_silhouette, deviation
        self._weights = weights
        self._clusters: IntVector = np.full(self._clients, -1)
        """Cluster of every client, (K,); -1 for a client that has not been seen."""
        self._capabilities: DoubleVector = np.zeros((self._clients, 2))
        """Bandwidths and computing speeds that clients reported, (K, 2)."""
        self._waiting: dict[int, FloatVector] = {}
        """Sensitivities of clients without a cluster yet, by client; empty vectors without clustering."""
        self._centres: list[FloatVector] = []
        self._masks: dict[int, Mask] = {}
        self._masks_of: int | None = None
        """Round of these masks; None before the first."""
        self._sums: dict[int, MixedSum] = {}
        self._united: dict[int, MixedSum] = {}
        """Empty sums over the unions that the mask phase led to, by cluster, for the update phase."""

    def check_changed(self) -> None:
        clients, size = self._clients, self._size if self._by_sensitivity else 0
        refuse_unless(self._clusters.size == clients and self._capabilities.shape == (clients, 2))
        refuse_unless(bool(((self._clusters >= -1) & (self._clusters < clients)).all()))
        refuse_unless(bool(((self._capabilities >= 0.0) & (self._capabilities < np.inf)).all()))
        refuse_unless(self._waiting.keys() <= set(range(clients)) and len(self._centres) <= clients)
        for one in (*self._waiting.values(), *self._centres):
            refuse_unless(one.size == size and bool(np.isfinite(one).all()))
        refuse_unless(self._masks.keys() <= set(np.flatnonzero(self._clusters >= 0)))
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
        heard = Counter(int(self._clusters[client]) for client in self._seen)
        refuse_unless(self._sums.keys() == {int(self._clusters[client]) for client in self._masks})
        refuse_unless(all(one.is_of(one.union, heard[cluster]) for cluster, one in self._sums.items()))

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect; each client's cluster is kept from round to round, masks for the update phase."""
        if phase != "update":
            self._masks, self._masks_of = {}, round_number
            self._sums, self._united = {}, {}
            return
        if self._masks_of != round_number:
            raise PolicyError(f"nobody has sent a mask for the update phase of round {round_number}")
        with self.clock.stage("negotiate"):
            self._sums, self._united = self._united or self._new_sums(round_number), {}

    def _collect(self, phase: str, client: int, message: Message) -> None:
        if phase == "update":
            if client not in self._masks:
                raise PolicyError(f"client {client} sent an update without a mask in this round")
            self._sums[int(self._clusters[client])].add(client, message, self._masks[client])
            return
        with self.clock.stage("negotiate"):
            if phase == "cluster":
                self._receive_introduction(client, message)
                return
            if self._clusters[client] < 0:
                raise PolicyError(f"client {client} sent a mask without being in a cluster")
            mask = Mask.from_bytes(message["mask"], expected_size=self._size)
            self._masks[client] = encrypted_positions(mask, self._buffers)

    def _receive_introduction(self, client: int, message: Message) -> None:
        """Take what a client reports of itself.

        Raises RangeError for what is not finite, and a speed not above 0.
        """
        is_known = self._clusters[client] >= 0
        if is_known and "capability" not in message:
            return
        sensitivity: FloatVector = np.empty(0, dtype=np.float32)
        if self._by_sensitivity:
            sensitivity = message.vector("sensitivity", np.float32, self._size)
        reported = message.vector("capability", np.float64, 2)
        if not (np.isfinite(reported).all() and (reported > 0.0).all()):
            raise RangeError(f"client {client} reports a bandwidth or speed that is not positive and finite")
        if not np.isfinite(sensitivity).all():
            raise RangeError(f"client {client} sent a sensitivity that is NaN or infinite")
        self._capabilities[client] = reported
        if not is_known:
            self._waiting[client] = sensitivity

    def _result(self, phase: str) -> Message:
        clusters = {"clusters": self._clusters.tobytes()}
        if phase == "cluster":
            with self.clock.stage("negotiate"):
                return self._assigned()
        if phase == "mask":
            with self.clock.stage("negotiate"):
                self._united = self._new_sums(self.round)
                unions = [one.union_parts(f" {cluster}") for cluster, one in self._united.items()]
                return Message(reduce(or_, unions, clusters))
        with self.clock.stage("aggregate"):
            totals = [one.parts(f" {cluster}") for cluster, one in self._sums.items()]
            return Message(reduce(or_, totals, {"round": Message.from_number(self.round), **clusters}))

    def _assigned(self) -> Message:
        """Put every client that has introduced itself into a cluster.

        Return the clusters, and the clients' budgets.
        """
        waiting, self._waiting = self._waiting, {}
        clients = sorted(waiting)
        if not self._by_sensitivity:
            self._clusters[clients] = 0
        elif self._centres:
            for client in clients:
                away = [np.subtract(one, waiting[client], dtype=np.float64) for one in self._centres]
                self._clusters[client] = np.argmin([float(one @ one) for one in away])  # of equals the first
        elif clients:
            vectors = np.stack([waiting[client] for client in clients])
            labels, centres, silhouette, notes = cluster_clients(vectors, *self._clustered_by)
            self._clusters[clients] = labels
            self._centres = [vectors[centre] for centre in centres]
            sizes = ", ".join(map(str, np.bincount(labels)))
            found = (
                f"{len(clients)} clients are in {len(centres)} cluster(s) of {sizes}; silhouette "
                f"{silhouette:.3f}"
            )
            for text in (*notes, found):
                self.note(Note(text))
        known = np.flatnonzero(self._clusters >= 0)
        budgets = np.zeros(self._clients)
        bandwidths, speeds = self._capabilities[known].T.copy()
        budgets[known] = sense_crypt_budgets(bandwidths, speeds, self._clusters[known])
        return Message({"clusters": self._clusters.tobytes(), "budgets": budgets.tobytes()})

    def _new_sums(self, round_number: int) -> dict[int, MixedSum]:
        """Return an empty sum for each cluster that has a mask."""
        masks: dict[int, list[Mask]] = defaultdict(list)
        for client, mask in self._masks.items():
            masks[int(self._clusters[client])].append(mask)
        key, context = self._round_key(round_number, "update"), self.context
        return {
            cluster: MixedSum(
                key,
                masks[cluster],
                cluster_round(context, round_number, cluster),
                self._weights,
                self.clock,
                context.threads,
                weighted=context.most_weight > 1,
            )
            for cluster in sorted(masks)
        }


class SenseCryptRule(OpeningRule):
    """One total for each cluster moves that cluster's model (algorithm 3)."""

    changes: ClassVar = {"_models": dict[int, GlobalModel], "_clusters": IntVector}

    def __init__(self, method: SenseCrypt, context: RoleContext, initial: GlobalModel) -> None:
        super().__init__(context)
        self._initial = initial
        self._models: dict[int, GlobalModel] = {}
        self._clusters: IntVector = np.full(context.plan.clients, -1)
        self._clients = context.plan.clients

    def check_changed(self) -> None:
        refuse_unless(self._clusters.size == self._clients)
        refuse_unless(self._clusters.min() >= -1 and self._clusters.max() < self._clients)
        refuse_unless(all(0 <= cluster < self._clients for cluster in self._models))
        refuse_unless(all(model.is_like(self._initial) for model in self._models.values()))

    def first_model(self) -> Message:
        return self._initial.to_message()

    def keeps(self, model: Message) -> bool:
        return model == (self._models_of_clusters() if "clusters" in model else self._initial.to_message())

    def digests(self, model: Message) -> Mapping[int | None, bytes]:
        """Return for each client the digest of its cluster's model, or of no model if it is in none."""
        if "clusters" not in model:
            return super().digests(model)
        digests = {
            int(cluster): digest_of_parts(cluster_model(model, int(cluster)))
            for cluster in np.unique(self._clusters)
        }
        return {client: digests[int(cluster)] for client, cluster in enumerate(self._clusters)}

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        clusters = message.vector("clusters", np.int64, self._clients)
        if clusters.min() < -1 or clusters.max() >= self._clients:
            raise WireFormatError("there is no cluster of this number")
        if ((self._clusters >= 0) & (clusters != self._clusters)).any():
            raise PolicyError(
                "a client has changed its cluster: totals of changing groups would single clients out"
            )
        round_number, learning_rate = message.number("round"), self.context.plan.server_learning_rate
        claims, notes = {}, []
        # What came in the clear is looked at, of all clusters, before anything is opened.
        for cluster in range(int(clusters.max(initial=-1)) + 1):
            if f"total {cluster}" not in message:
                continue
            number, size = cluster_round(self.context, round_number, cluster), self.context.plan.update_size
            claim = MixedTotal.read(message, f" {cluster}", self.context.parameters, size, number)
            named = claim.total.named_clients
            if any(client >= self._clients or clusters[client] != cluster for client in named):
                raise PolicyError("the total of a cluster has an update of a client that is not in it")
            if claim.total.clients < sums.min_clients:
                notes.append(
                    f"round {round_number}: {claim.total.clients} client(s) of cluster {cluster} sent an "
                    "update, too few to open: its model stays"
                )
                continue
            claim.check_weights(self.context.most_weight)
            if claim.sums.size:
                self._model_of(cluster).moved_finite(claim.clear_mean(), learning_rate)
            claims[cluster] = claim
        moved = {}
        for cluster, claim in claims.items():
            mean = opened_mean(claim, self.context, sums)
            moved[cluster] = self._model_of(cluster).moved_finite(mean, learning_rate)
        self._models = self._models | moved
        for text in notes:
            sums.note(text)
        self._clusters = clusters
        return self._models_of_clusters()

    def _models_of_clusters(self) -> Message:
        parts: dict[str, Part] = {"clusters": self._clusters.tobytes()}
        for cluster in range(int(self._clusters.max(initial=-1)) + 1):
            model = self._model_of(cluster).to_message()
            parts |= {f"{name} {cluster}": part for name, part in model.items()}
        return Message(parts)

    def _model_of(self, cluster: int) -> GlobalModel:
        return self._models.get(cluster, self._initial)


class SenseCrypt(Method):
    """SenseCrypt for one federation.

    Clusters of fewer than ``min_clients`` are merged; buffers are averaged, always encrypted.
    """

    names = (
        NamedMethod(
            "sense-crypt",
            "each client's own share encrypted, the rest in the clear",
            "clients of uneven speed; clients in clusters",
            "SenseCrypt, algorithms 1 and 2, eqs. 2 to 8",
            SenseCryptSettings(),
            masks="budgets",
            masks_each_round=True,
        ),
    )
    privacy_reading = PrivacyReading(
        "client",
        "the aggregator, which sees no model",
        "the sensitivity that a client uploads is zeroed out",
        "ε is ∞ once masks, or values outside of them, are readable; the noise alone counts the one upload "
        "for clustering; what opened sums, and with them the model, tell is not counted",
    )
    aggregator_sees = (
        "values outside of the masks, masks, every client's sensitivity once, speeds and weights"
    )

    scores = "taylor"
    schemes = encryptions()
    client_kind, aggregator_kind, rule_kind = SenseCryptClient, SenseCryptAggregator, SenseCryptRule
    phases = (
        Phase("cluster", answered_by_authority=False),
        Phase("mask", answered_by_authority=False),
        Phase("update", answered_by_authority=True),
    )

    def __init__(self, name: str, settings: SenseCryptSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan)
        self.delta = settings.clustering_delta
        self.noise_multiplier = 0.0
        if settings.clustering_epsilon is not None and settings.clustering != "none":
            self.noise_multiplier = gaussian_noise_multiplier(
                settings.clustering_epsilon, settings.clustering_delta
            )
        self.buffer_factor = settings.buffer_factor
        self.purposes = {
            "update": update_parameters(
                settings.encryption,
                plan.most_participants,
                settings,
                most_weight=plan.most_weight,
                mean_weight=plan.mean_weight,
                key_bits=settings.key_bits,
                takes_clear_values=True,
            )
        }

    def message_for(self, client: int, message: Message) -> Message:
        """Return what concerns the client's cluster.

        A client in no cluster gets no model: it has the initial one. Raises WireFormatError for a cluster out
        of range, and a budget for a client in none.
        """
        if "clusters" not in message:
            return message
        cluster = self._cluster_of(client, message)
        if "budgets" in message:
            if cluster < 0:
                raise WireFormatError(f"client {client} is in no cluster, so there is no budget for it")
            budget = message.vector("budgets", np.float64, self.plan.clients)[client]
            return Message({"cluster": Message.from_number(cluster), "budget": budget.tobytes()})
        names = (INVITED, model_signature_name(client))
        signed = {name: message[name] for name in names if name in message}
        return Message({**cluster_model(message, cluster), **round_key_parts(message), **signed})

    def has_model(self, client: int, message: Message) -> bool:
        if "clusters" not in message:
            return True
        return self._cluster_of(client, message) >= 0

    def _cluster_of(self, client: int, message: Message) -> int:
        cluster = int(message.vector("clusters", np.int64, self.plan.clients)[client])
        if not -1 <= cluster < self.plan.clients:
            raise WireFormatError("there is no cluster of this number")
        return cluster

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return super().settings(weights) | {"clustering_noise_multiplier": self.noise_multiplier}
