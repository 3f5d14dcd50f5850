"""One method's run: its federation by round, what each round measured, and its last models."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shieldfl.array_view import FloatVector, address_of, as_unsigned
from shieldfl.errors import ParameterError, PolicyError, RangeError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset, LabelledSamples, label_shares, synthetic_shares
from shieldfl.lab.simulation.federation import (
    EmbeddedFederation,
    can_copy_process,
    leaves_alone,
    threads_worth,
    torch_threads,
    training_device,
)
from shieldfl.lab.simulation.results import MethodResult, RoundRecord, averaging_window, has_own_figures
from shieldfl.lab.simulation.written_run import KeptMethod
from shieldfl.learning.local_trainer import EVALUATION_BATCH, LocalTrainer, Objective, correct_by_class
from shieldfl.learning.local_update import StartingPoint
from shieldfl.methods.registry import count_trained
from shieldfl.models.torch_bridge import (
    flatten,
    flatten_buffers,
    load_flat,
    load_flat_buffers,
    parameter_layout,
    update_layout,
)
from shieldfl.privacy.book import PrivacySpent
from shieldfl.rounds.driver import RoundTraffic
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import GlobalModel, checked_weights
from shieldfl.rounds.reports import Note, Report

_Figures = dict[str, float]


_Measured = tuple[_Figures, npt.NDArray[np.float64] | None]
"""Figures of a model, and its accuracy on each class, (classes,).

The accuracy on a class without test samples is NaN. None stands for no accuracy by class.
"""


_MOST_ALL_MEASURED = 100
_MEASURED_OF_MANY = 10


def measured_clients(config: RunConfig) -> list[int]:
    """Return the clients whose own models are measured, in ascending order."""
    of_many = config.clients if config.clients <= _MOST_ALL_MEASURED else _MEASURED_OF_MANY
    drawn = np.random.default_rng([config.seed, config.clients, 3]).permutation(config.clients)
    return sorted(drawn[: config.measured_clients or of_many].tolist())


_COMPARED_EVERY = 97  # distance of the positions at which models are compared, to find one that is alike


class ClientModels(Mapping[int, StartingPoint]):
    """Each client's own model, by client number; what several have alike is in memory once."""

    def __init__(self, points: Iterable[tuple[int, StartingPoint]]) -> None:
        self._whole: list[FloatVector] = []
        self._differences: dict[int, tuple[int, npt.NDArray[np.uint32], StartingPoint]] = {}
        """The whole model that a client's is most like, positions where it differs, and its values there."""
        for client, point in points:
            parameters = point.parameters
            some = parameters[::_COMPARED_EVERY]
            alike = [np.count_nonzero(one[::_COMPARED_EVERY] == some) for one in self._whole]
            nearest = int(np.argmax(alike)) if 3 * max(alike, default=0) > 2 * some.size else len(alike)
            if nearest == len(alike):
                self._whole.append(parameters)
            bits, of_nearest = parameters.view(np.uint32), self._whole[nearest].view(np.uint32)
            positions = np.flatnonzero(bits != of_nearest).astype(np.uint32)
            self._differences[client] = nearest, positions, replace(point, parameters=parameters[positions])

    def __getitem__(self, client: int) -> StartingPoint:
        nearest, positions, own = self._differences[client]
        parameters = self._whole[nearest].copy()
        parameters[positions] = own.parameters
        return replace(own, parameters=parameters)

    def __iter__(self) -> Iterator[int]:
        return iter(self._differences)

    def __len__(self) -> int:
        return len(self._differences)


class Evaluation:
    """Measures models on a test set; models that the round before had too are not measured again.

    The model is overwritten. The test set is on its device. ``label_shares`` is the share of each class in
    each client's data, (clients, classes), for :meth:`matched_accuracy`; None if targets are not classes, or
    something else than the accuracy is measured.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        features: torch.Tensor,
        targets: torch.Tensor,
        label_shares: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self._model = model
        self._objective = objective
        self._test = features, targets
        self._label_shares = label_shares
        if label_shares is not None:
            self._of_class = np.bincount(targets.cpu().numpy(), minlength=label_shares.shape[1])
            self._own_classes = [(held := np.flatnonzero(own), own[held]) for own in label_shares]
            """Classes in each client's data, and their shares."""
        self._digests: dict[tuple[int, int], tuple[bytes, StartingPoint]] = {}
        """Digest and model by the addresses of its vectors, so that a model of all clients is read once.

        The model beside the digest stays in memory, so that no other one takes its address.
        """
        self._known: dict[bytes, _Measured] = {}
        """Figures of the models of the last round that was measured, by digest."""
        self._newest: frozenset[bytes] = frozenset()
        """Digests of all models of the newest round."""
        self.changed_nothing = False
        """Whether the models of the newest round are those of the round before."""

    def means(self, *groups: Sequence[StartingPoint]) -> list[_Figures]:
        """Return, for each group of one round's models, the mean of every figure over the group.

        A group without models has no figures.
        """
        self._digests = {}
        found: dict[bytes, _Measured] = {}
        means = []
        for points in groups:
            figures = []
            for point in points:
                digest = self._digest(point)
                if digest not in found:
                    found[digest] = self._known.get(digest) or self._measure(point)
                figures.append(found[digest][0])
            names = self._objective.names if figures else ()
            means.append({name: float(np.mean([one[name] for one in figures])) for name in names})
        self._known = found
        self.changed_nothing = found.keys() == self._newest
        self._newest = frozenset(found)
        return means

    def begin_from(self, points: Iterable[StartingPoint]) -> None:
        self._newest = frozenset(map(self._digest, points))

    def _digest(self, point: StartingPoint) -> bytes:
        """Return a digest that only equal models share; all models of a run have the same sizes."""
        place = address_of(point.parameters), address_of(point.buffers)
        if place not in self._digests:
            digest = hashlib.sha256(np.ascontiguousarray(point.parameters).data)
            digest.update(np.ascontiguousarray(point.buffers).data)
            self._digests[place] = digest.digest(), point
        return self._digests[place][0]

    def matched_accuracy(self, clients: Sequence[int], points: Sequence[StartingPoint]) -> float:
        """Return the mean accuracy of clients' models, each on test data of its client's label distribution.

        As in SelectiveShield's eq. 10 and SenseCrypt's figures 2b to 4c. Nothing is drawn: the accuracy on
        each class counts by its share of the client's data, which is what test sets of that distribution give
        on average. NaN without label shares, and where the test set lacks a class that a client has.
        ``points`` are the clients' models, those of the last call of :meth:`means`.
        """
        if self._label_shares is None or not points:
            return float("nan")
        accuracies = []
        for client, point in zip(clients, points, strict=True):
            _, by_class = self._known[self._digest(point)]
            assert by_class is not None, "there are label shares"
            classes, shares = self._own_classes[client]
            accuracies.append(float(shares @ by_class[classes]))
        return float(np.mean(accuracies))

    def _measure(self, point: StartingPoint) -> _Measured:
        load_flat(self._model, point.parameters)
        load_flat_buffers(self._model, point.buffers)
        if self._label_shares is None:
            return self._objective.measured(self._model, *self._test), None
        correct = correct_by_class(self._model, *self._test, self._of_class.size)
        with np.errstate(invalid="ignore"):
            by_class = correct / self._of_class
        return {"accuracy": int(correct.sum()) / int(self._of_class.sum())}, by_class


@dataclass(frozen=True)
class LastModels:
    method: str
    module: nn.Module
    of_all: StartingPoint | None
    of_clients: Mapping[int, StartingPoint]
    """Merged model of each client, by client number, without clients that no cluster has taken in."""
    clusters: Mapping[int, int]
    clients: int

    def state(self, client: int | None = None, cluster: int | None = None) -> dict[str, torch.Tensor]:
        """Return copies, on the processor. Raises ParameterError for no model of that name, or several."""
        if client is not None and cluster is not None:
            raise ParameterError("give client or cluster, not both")
        if client is not None:
            client = as_unsigned(client, "client")
            if client >= self.clients:
                raise ParameterError(f"there is no client {client}: clients are 0 to {self.clients - 1}")
            if client not in self.of_clients:
                raise ParameterError(
                    f"client {client} has no model of {self.method}: it took part in no round, so no cluster "
                    "has it"
                )
            point = self.of_clients[client]
        elif self.of_all is not None and cluster is None:
            point = self.of_all
        else:
            point = self._of_cluster(None if cluster is None else as_unsigned(cluster, "cluster"))
        load_flat(self.module, point.parameters)
        load_flat_buffers(self.module, point.buffers)
        return {name: one.detach().cpu().clone() for name, one in self.module.state_dict().items()}

    def _of_cluster(self, cluster: int | None) -> StartingPoint:
        numbers = sorted(set(self.clusters.values()))
        named = ", ".join(map(str, numbers))
        if not numbers and cluster is not None:
            raise ParameterError(f"{self.method} has no clusters: leave out cluster")
        if not numbers:
            raise ParameterError(
                f"{self.method} leaves buffers with each client, so there is no model for all: give client"
            )
        if cluster is None and len(numbers) > 1:
            raise ParameterError(
                f"{self.method} ended with {len(numbers)} clusters, each with its own model: give cluster, "
                f"one of {named}, or client"
            )
        cluster = numbers[0] if cluster is None else cluster
        if cluster not in numbers:
            raise ParameterError(f"there is no cluster {cluster}: choose from {named}")
        return self.of_clients[min(one for one, number in self.clusters.items() if number == cluster)]


def _epsilons(spent: PrivacySpent) -> dict[str, Any]:
    return {
        "epsilon": spent.epsilon,
        "epsilon_of_noise": spent.of_noise,
        "epsilon_if_participants_true": spent.if_participants_true,
        "epsilon_if_participation_hidden": spent.if_participation_hidden,
    }


_CHANGED_NOTHING = "rounds changed nothing: every client has the model that it had before"
_NOTHING_SENT = {"encrypted": 0.0, "personalised": 1.0, "noise": 0.0, "clear": 0.0}


class MethodRun:
    """One method of a run; with ``kept`` it resumes where another process stopped.

    ``federation`` is the class that moves its messages, for callers that look at them; None for an embedded
    one. Where it changes no figure, clients train in ``processes`` beside this one.
    """

    def __init__(
        self,
        method: Method,
        config: RunConfig,
        dataset: Dataset,
        model: nn.Module,
        partition: Sequence[np.ndarray],
        weights: Sequence[int] | None,
        given_synthetic: LabelledSamples | None,
        kept: KeptMethod | None = None,
        objective: Objective | None = None,
        federation: type[EmbeddedFederation] | None = None,
        processes: int = 1,
    ) -> None:
        self._objective = objective or Objective()
        self.name = method.name
        self._method = method
        self._config = config
        self._model = model
        self._size = parameter_layout(model).size
        self._account = method.account()
        self._weights = checked_weights(weights, config.clients)
        if kept is None:
            self._shares = synthetic_shares(
                method, self._account, dataset, config.clients, config.seed, given_synthetic
            )
        else:
            self._shares = kept.shares
            self._account.restore(kept.account)
        # A batch that is measured may be worth threads where a step of training is not.
        self._measured_on = (
            torch.get_num_threads()
            if processes == 1
            else threads_worth(model, dataset.train_features, EVALUATION_BATCH, processes)
        )
        labels, shares = dataset.train_labels, None
        if self._objective.loss is None and not self._objective.metrics and labels.ndim == 1:
            shares = label_shares(partition, labels.numpy(), dataset.classes)
        device = training_device(config.device)
        model.to(device)
        self._evaluation = Evaluation(
            model, self._objective, dataset.test_features.to(device), dataset.test_labels.to(device), shares
        )
        features, labels = dataset.train_features.to(device), labels.to(device)
        self._trainers = [
            LocalTrainer(
                model,
                features,
                labels,
                config,
                None if share is None else (share[0].to(device), share[1].to(device)),
                self._objective,
                torch.from_numpy(samples).to(device),
            )
            for samples, share in zip(partition, self._shares, strict=True)
        ]
        vectors_alone, parameters_alone = leaves_alone(model, self._objective)
        if processes > 1 and not (device.type == "cpu" and vectors_alone and can_copy_process()):
            processes = 1
        initial = GlobalModel(flatten(model), flatten_buffers(model))
        self.federation = (federation or EmbeddedFederation)(
            method,
            initial,
            self._trainers,
            config.seed,
            weights=weights,
            threads=config.threads,
            # Not secret: anybody who knows the seed can repeat the run.
            shared_secret=np.random.default_rng([config.seed, config.clients, 2]).bytes(32),
            layout=update_layout(model),
            account=self._account,
            kept=None if kept is None else kept.federation,
            clients_keep_nothing=parameters_alone and method.clients_keep_nothing,
            processes=min(processes, config.clients),
        )
        self._measured = measured_clients(config)
        merged = (
            [initial.starting_point()]
            if kept is None
            else [point for _, point in self._merged(self._measured)]
        )
        self._evaluation.begin_from(merged if kept is None else [*merged, *self._global_points(merged)])
        self.records: list[RoundRecord] = [] if kept is None else kept.records
        """Records of the finished rounds."""
        self.round_number = min(len(self.records) + 1, config.rounds)
        """Number of the current round."""
        if kept is not None:
            for trainer, kinds in zip(self._trainers, kept.trained, strict=True):
                trainer.kinds.update(kinds)

    def kept(self, key: bytes, setup_seconds: float) -> KeptMethod:
        return KeptMethod(
            self.records,
            [sorted(trainer.kinds) for trainer in self._trainers],
            setup_seconds,
            self._shares,
            self._account.state(),
            (self.federation.parts(key), key),
        )

    def run(
        self,
        on_round: Callable[[str, RoundRecord], None] | None,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """Run all rounds, or those before one that noise or a learning rate made impossible.

        In that case other methods still run. ``keep`` is called after each round, before ``on_round``, which
        is first called for earlier rounds.
        """
        config, records = self._config, self.records
        if on_round is not None:
            for record in records:
                on_round(self.name, record)
        try:
            for number in range(len(records) + 1, config.rounds + 1):
                self.round_number = number
                try:
                    participants = self.federation.draw(config.sample_rate, config.min_clients)
                except PolicyError as error:
                    if not records:
                        raise
                    self._account.note(f"stopped before round {number}: {error}")
                    break
                start = time.perf_counter()
                leaving = self.federation.draw_leavers(participants, config.dropout, number)
                try:
                    traffic = self.federation.run_round(number, participants, config.min_clients, leaving)
                except RangeError as error:
                    if not records:
                        raise
                    self._account.note(
                        f"broke down in round {number}, so its figures are of the rounds before: {error}"
                    )
                    break
                seconds = time.perf_counter() - start + traffic.saved_seconds
                records.append(self._record(number, traffic, seconds))
                keep()
                if on_round is not None:
                    on_round(self.name, records[-1])
        finally:
            self.federation.close()

    def result(self, setup_seconds: float) -> MethodResult:
        method = self._method
        spent = self._account.spent()
        if self.records:
            # Also what left in a round that was not finished.
            self.records[-1] = replace(self.records[-1], **_epsilons(spent))
        settings = method.settings(self._weights)
        scheme = str(settings.get("encryption") or method.schemes[0]) if method.purposes else None
        reading = method.privacy_reading
        further = [] if spent.reason is None else [spent.reason]
        if reading.if_participation_hidden is not None and spent.if_participation_hidden < spent.epsilon:
            further.append(reading.if_participation_hidden)
        some = len(self._measured) < self._config.clients
        if some and any(has_own_figures(self.records, name) for name in self._objective.names):
            further.append(
                f"personalised figures are means over {len(self._measured)} of the {self._config.clients} "
                "clients, which the seed has drawn"
            )
        return MethodResult(
            method.name,
            settings | self._account.settings(),
            count_trained(self._model),
            spent.delta,
            self.records,
            sum(record.seconds for record in self.records),
            [reading.meaning, *further, *self._account.notes],
            averaging_window(method.interleaving),
            reading.unit,
            method.adversary,
            reading.neighbours,
            method.all_that_the_aggregator_sees,
            list(self._account.book.readable_parts),
            training=self._training(),
            alternates=method.interleaving is not None,
            scheme=scheme,
            opened_by=method.opened_by,
            setup_seconds=setup_seconds,
        )

    def _training(self) -> str:
        kinds = sorted(set().union(*(trainer.kinds for trainer in self._trainers)))
        trained = f"{count_trained(self._model):,} of {self._size:,} parameters, {' and '.join(kinds)}"
        ratio = self._method.interleaving
        return trained if ratio is None else f"{trained}, interleaved at {ratio}"

    def _record(self, round_number: int, traffic: RoundTraffic, seconds: float) -> RoundRecord:
        measured, own = self._evaluate()
        stayed = Note(_CHANGED_NOTHING, counts=(int(self._evaluation.changed_nothing), 1))
        self._account.take(Report(notes=(stayed,)))
        spent = self._account.spent()
        # Also of clients that left after they had sent something.
        stated = [self.federation.clients[index].disclosure for index in traffic.senders]
        shares = [one.shares() for one in stated if one.kept.count < one.kept.size]
        count = traffic.participants
        finished = len(traffic.finished)
        return RoundRecord(
            round=round_number,
            participants=finished,
            dropped=count - finished,
            loss=float(np.mean(traffic.losses)) if traffic.losses else float("nan"),
            accuracy=measured.pop("accuracy", math.nan),
            personalised_accuracy=own.pop("accuracy", math.nan),
            zone_shares={zone: sum(share[zone] for share in shares) / len(shares) for zone in shares[0]}
            if shares
            else _NOTHING_SENT,
            stage_seconds=self._account.clock.take(),
            bytes_up=traffic.bytes_up / count,
            bytes_down=traffic.bytes_down / count,
            seconds=seconds,
            matched_accuracy=own.pop("matched_accuracy", math.nan),
            metrics=measured,
            personalised_metrics=own,
            **_epsilons(spent),
        )

    def _evaluate(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the figures of the global model, and their means over the measured clients' merged models.

        Where buffers stay local, or clusters have models of their own, there is no global model: then the
        first figure too is a mean over these clients, of the global parameters with each client's buffers, or
        of the clusters' models. Clients that are in no cluster yet do not count.
        """
        merged = dict(self._merged(self._measured))
        points = [*merged.values()]
        with torch_threads(self._measured_on):
            own, measured = self._evaluation.means(points, self._global_points(points))
        return measured or dict(own), own | {
            "matched_accuracy": self._evaluation.matched_accuracy([*merged], points)
        }

    def _merged(self, clients: Iterable[int]) -> Iterator[tuple[int, StartingPoint]]:
        """Yield the merged models of those of these clients that have one."""
        message = self.federation.model
        for index in clients:
            if self._method.has_model(index, message):
                own = self._method.message_for(index, message)
                yield index, self.federation.clients[index].merged_model(own)

    def _global_points(self, merged: Sequence[StartingPoint]) -> list[StartingPoint]:
        """Return the global model, with each client's buffers if these are its own.

        The list is empty if there is no global model.
        """
        message = self.federation.model
        if "parameters" not in message:
            return []
        parameters = message.vector("parameters", np.float32, self._size)
        shared = len(message["buffers"]) == merged[0].buffers.nbytes
        return [StartingPoint(parameters, point.buffers) for point in (merged[:1] if shared else merged)]

    def last_models(self) -> LastModels:
        merged = ClientModels(self._merged(range(self._config.clients)))
        points = self._global_points([merged[client] for client in [*merged][:2]])
        message, clusters = self.federation.model, {}
        if "clusters" in message:
            numbers = message.vector("clusters", np.int64, self._config.clients)
            clusters = {client: int(numbers[client]) for client in merged}
        return LastModels(
            self.name,
            self._model,
            points[0] if len(points) == 1 else None,
            merged,
            clusters,
            self._config.clients,
        )
