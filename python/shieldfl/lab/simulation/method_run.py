"""One method's run: its federation round by round, and what each round measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from shieldfl.errors import PolicyError, RangeError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset
from shieldfl.lab.simulation.evaluation import Evaluation, LastModels
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.lab.simulation.partition import LabelledSamples, label_shares, synthetic_shares
from shieldfl.lab.simulation.results import MethodResult, RoundRecord, averaging_window
from shieldfl.lab.simulation.training_device import (
    leaves_parameters_alone,
    leaves_vectors_alone,
    threads_worth,
    torch_threads,
    training_device,
)
from shieldfl.lab.simulation.training_processes import can_copy_process
from shieldfl.lab.simulation.written_run import KeptMethod
from shieldfl.learning.local_trainer import LocalTrainer, Objective
from shieldfl.learning.local_update import StartingPoint
from shieldfl.learning.sgd import EVALUATION_BATCH
from shieldfl.methods.registry import count_trained
from shieldfl.models.torch_bridge import flatten, flatten_buffers, parameter_layout, update_layout
from shieldfl.privacy.book import PrivacySpent
from shieldfl.rounds.driver import RoundTraffic
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import GlobalModel, checked_weights
from shieldfl.rounds.reports import Note, Report


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
    """One method of a run; with ``kept`` it goes on where another process stood.

    ``federation`` is the class of what moves its messages, for whoever looks at them; None for an embedded one. Where
    it changes no figure, clients train in ``processes`` beside this one.
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
        shape, dtype = dataset.feature_shape, dataset.train_features.dtype
        # A large batch is worth threads where a step of training is not.
        self._measured_on = (
            None if processes == 1 else threads_worth(model, shape, EVALUATION_BATCH, processes, dtype)
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
        if processes > 1 and not (
            device.type == "cpu" and leaves_vectors_alone(model, self._objective) and can_copy_process()
        ):
            processes = 1
        initial = GlobalModel(flatten(model), flatten_buffers(model))
        self.federation = (federation or EmbeddedFederation)(
            method,
            initial,
            self._trainers,
            config.seed,
            weights=weights,
            threads=config.threads,
            # Not secret: whoever knows the seed can repeat the run.
            shared_secret=np.random.default_rng([config.seed, config.clients, 2]).bytes(32),
            layout=update_layout(model),
            account=self._account,
            kept=None if kept is None else kept.federation,
            clients_keep_nothing=leaves_parameters_alone(model, self._objective)
            and method.clients_keep_nothing,
            processes=min(processes, config.clients),
        )
        merged = [initial.starting_point()] if kept is None else self._merged()[1]
        self._evaluation.begin_from(merged if kept is None else [*merged, *self._global_points(merged)])
        self.records: list[RoundRecord] = [] if kept is None else kept.records
        """Of the rounds that are finished."""
        self.round_number = min(len(self.records) + 1, config.rounds)
        """Of the round that runs."""
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
        keep: Callable[[MethodRun], None] | None = None,
    ) -> None:
        """Run all rounds, or those before one that noise or a learning rate made impossible: other methods go on.

        ``keep`` is called after each round, before ``on_round``, which is told of the rounds before, too.
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
                if keep is not None:
                    keep(self)
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
        # Also of those who left after they had sent something.
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
        """Return the figures of the global model and their means over all clients of their merged models.

        Where buffers stay local, or clusters have models of their own, there is no global model: then the first figure
        too is a mean over the clients, of the global parameters with each client's buffers, or of the clusters' models.
        Clients that are in no cluster yet do not count.
        """
        clients, merged = self._merged()
        with torch_threads(self._measured_on):
            own, measured = self._evaluation.means(merged, self._global_points(merged))
        return measured or dict(own), own | {
            "matched_accuracy": self._evaluation.matched_accuracy(clients, merged)
        }

    def _merged(self) -> tuple[list[int], list[StartingPoint]]:
        message, clients = self.federation.model, self.federation.clients
        having = [index for index in range(len(clients)) if self._method.has_model(index, message)]
        return having, [
            clients[index].merged_model(self._method.message_for(index, message)) for index in having
        ]

    def _global_points(self, merged: Sequence[StartingPoint]) -> list[StartingPoint]:
        """Return the global model, with each client's buffers where these are its own; none where there is none."""
        message = self.federation.model
        if "parameters" not in message:
            return []
        parameters = message.vector("parameters", np.float32, self._size)
        shared = len(message["buffers"]) == merged[0].buffers.nbytes
        return [StartingPoint(parameters, point.buffers) for point in (merged[:1] if shared else merged)]

    def last_models(self) -> LastModels:
        clients, merged = self._merged()
        points = self._global_points(merged)
        message, clusters = self.federation.model, {}
        if "clusters" in message:
            numbers = message.vector("clusters", np.int64, self._config.clients)
            clusters = {client: int(numbers[client]) for client in clients}
        return LastModels(
            self.name,
            self._model,
            points[0] if len(points) == 1 else None,
            dict(zip(clients, merged, strict=True)),
            clusters,
            self._config.clients,
        )
