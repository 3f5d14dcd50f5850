"""The app's own strategy behind a protected sum: it samples nodes and joins metrics, and it may step with the mean."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)
from flwr.supercore import log

from shieldfl.errors import ParameterError
from shieldfl.roles.message import Message as RoleMessage

__all__ = ["MeanStrategy"]

_SINGLE = (Bulyan, FedMedian, FedTrimmedAvg, FedXgbBagging, FedXgbCyclic, Krum, MultiKrum, QFedAvg)
_STEPPING = (FedAdagrad, FedAdam, FedAvgM, FedYogi)
_MOST_WEIGHT = 2.0**53
"""Sums of such weights are finite: divided by infinity, the mean model that a strategy steps with would be 0."""


class MeanStrategy:
    """What of a strategy works where nobody sees a single update.

    Parameters
    ----------
    strategy : the app's.
    takes_mean : that what it does with updates needs their weighted mean alone. Known of Flower's own: FedAvg, FedProx,
        FedAvgM, FedAdagrad, FedAdam and FedYogi.

    Raises ParameterError for a strategy that looks at single updates, or may.
    """

    def __init__(self, strategy: Strategy, *, takes_mean: bool = False) -> None:
        self.strategy = strategy
        plain = isinstance(strategy, FedAvg) and type(strategy).aggregate_train is FedAvg.aggregate_train
        self._is_flowers = type(strategy).aggregate_train.__module__.startswith("flwr.")
        self.steps = not plain
        """Whether it makes more of the mean than the mean: then the server has to see it."""
        name = type(strategy).__name__
        if isinstance(strategy, _SINGLE):
            raise ParameterError(
                f"{name} compares single clients' updates, which nobody sees here: take a strategy that needs their "
                "mean"
            )
        if self.steps and not isinstance(strategy, _STEPPING) and not takes_mean:
            raise ParameterError(
                f"{name} has an aggregation of its own, which would get the clients' mean in the place of every single "
                "update: if it needs no more than that, say so by takes_mean=True"
            )

    @property
    def arrays_key(self) -> str:
        """The name of the record of arrays in messages to clients."""
        return str(getattr(self.strategy, "arrayrecord_key", "arrays"))

    @property
    def weighted_by(self) -> str:
        """The metric that counts a client's samples."""
        return str(getattr(self.strategy, "weighted_by_key", "num-examples"))

    def app_records(self, messages: Iterable[Message]) -> dict[int, RecordDict]:
        """Return, by node, what the strategy sends beside arrays."""
        found = {}
        for message in messages:
            others: dict[str, Any] = {
                name: record
                for name, record in message.content.items()
                if not isinstance(record, ArrayRecord)
            }
            found[message.metadata.dst_node_id] = RecordDict(others)
        return found

    def aggregated(
        self,
        round_number: int,
        trained: Mapping[int, Mapping[str, MetricRecord]],
        model: ArrayRecord | None,
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return what the strategy makes of a round, given the mean model, or None where the server does not see it.

        Every client's reply is said to have brought that model, with the metrics that it had.
        """
        brought = ArrayRecord([np.zeros(1, np.float32)]) if model is None else model
        joined = self._alike(trained)
        if not joined and self.steps:
            joined = {0: {"metrics": MetricRecord({self.weighted_by: 1})}}
        replies = [
            _reply_of(client, {self.arrays_key: brought, **records}) for client, records in joined.items()
        ]
        arrays, metrics = self.strategy.aggregate_train(round_number, replies)
        if model is None:
            return None, metrics
        return (arrays if self.steps else model), metrics

    def _alike(self, told: Mapping[int, Mapping[str, MetricRecord]]) -> dict[int, Mapping[str, MetricRecord]]:
        """Return what can be joined: metrics of the form that most clients' have, and a weight that is one.

        One client alone could else end the run by what it says of itself.
        """
        # Where an epsilon holds, clients tell none.
        told = {client: records for client, records in told.items() if records}
        fits = {client: records for client, records in told.items() if self._can_be_joined(records)}
        forms = {client: _form_of(records) for client, records in fits.items()}
        if not forms:
            return {}
        ((most, _),) = Counter(forms.values()).most_common(1)
        alike = {client: records for client, records in fits.items() if forms[client] == most}
        for client in told.keys() - alike.keys():
            log(WARNING, "shieldfl: the metrics of client %s are not those of the others: left out", client)
        return alike

    def _can_be_joined(self, records: Mapping[str, MetricRecord]) -> bool:
        weights = [record[self.weighted_by] for record in records.values() if self.weighted_by in record]
        if self._is_flowers and (len(records) != 1 or not weights):
            return False  # Flower would end the run
        return self.arrays_key not in records and all(
            isinstance(one, int | float) and 0.0 < one < _MOST_WEIGHT for one in weights
        )

    def evaluated(
        self, round_number: int, told: Mapping[int, Mapping[str, MetricRecord]]
    ) -> MetricRecord | None:
        """Return what the strategy makes of the clients' evaluations: by client, its metrics."""
        replies = [_reply_of(client, records) for client, records in self._alike(told).items()]
        metrics: MetricRecord | None = self.strategy.aggregate_evaluate(round_number, replies)
        return metrics

    def state(self) -> RoleMessage:
        """Return what an optimiser remembers: the arrays among the strategy's attributes."""
        parts = {}
        for name, value in vars(self.strategy).items():
            if isinstance(value, dict) and all(isinstance(one, np.ndarray) for one in value.values()):
                parts[name] = RoleMessage(
                    {key: _array_bytes(np.asarray(one)) for key, one in value.items()}
                ).to_bytes()
        return RoleMessage(parts)

    def restore(self, state: RoleMessage) -> None:
        """Take what :meth:`state` returned."""
        for name, content in state.items():
            arrays = RoleMessage.from_bytes(content)
            setattr(self.strategy, name, {key: _array_of(part) for key, part in arrays.items()})


def _array_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array_of(part: bytes | memoryview) -> np.ndarray:
    array: np.ndarray = np.load(io.BytesIO(part), allow_pickle=False)
    return array


def _reply_of(client: int, content: Mapping[str, Any]) -> Message:
    asked = Message(RecordDict(), client, "train")
    asked.metadata.__dict__["_message_id"] = str(client)
    return Message(RecordDict(dict(content)), reply_to=asked)


def _form_of(records: Mapping[str, MetricRecord]) -> str:
    """Return the names of metrics, and of each whether it is a number or a list of how many."""
    return str(
        sorted(
            (name, sorted((key, len(one) if isinstance(one, list) else -1) for key, one in record.items()))
            for name, record in records.items()
        )
    )
