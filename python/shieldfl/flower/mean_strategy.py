"""The app's own strategy behind a protected sum: it samples nodes and joins metrics, and it may step with the mean."""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import WARNING
from types import MethodType, ModuleType
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
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

_STEPPING = (FedAdagrad, FedAdam, FedAvgM, FedYogi)
_REFUSED = {
    "compares single clients' updates, which nobody sees here: take a strategy that needs their mean": (
        Bulyan,
        FedMedian,
        FedTrimmedAvg,
        Krum,
        MultiKrum,
        QFedAvg,
    ),
    "joins single clients' trees, which nobody sees here: take a strategy that needs a mean": (
        FedXgbBagging,
        FedXgbCyclic,
    ),
    "adds noise that is scaled for clients whose single updates are clipped, and gets their mean alone: take "
    "shieldfl.method = 'ddp-fedavg', whose clients clip and add noise, with FedAvg": (
        DifferentialPrivacyClientSideAdaptiveClipping,
        DifferentialPrivacyClientSideFixedClipping,
        DifferentialPrivacyServerSideAdaptiveClipping,
        DifferentialPrivacyServerSideFixedClipping,
    ),
}
"""By the reason, strategies that nothing can be set to allow."""
_HOOKS = "summary", "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"
"""What ``start`` calls."""
_MOST_WEIGHT = 2.0**53
"""Sums of such weights are finite: divided by infinity, the mean model that a strategy steps with would be 0."""


class MeanStrategy:
    """What of a strategy works where nobody sees a single update.

    Parameters
    ----------
    strategy : the app's.
    takes_mean : that what it does with updates needs their weighted mean alone. Known of Flower's own: FedAvg, FedProx,
        FedAvgM, FedAdagrad, FedAdam and FedYogi.

    Raises ParameterError for a strategy that looks at single updates, or may, and for one that wraps such a one.
    """

    def __init__(self, strategy: Strategy, *, takes_mean: bool = False) -> None:
        if not isinstance(strategy, Strategy):
            kind = type(strategy)
            raise ParameterError(
                f"{kind.__name__} of {kind.__module__.rpartition('.')[0]} is no strategy of flwr.serverapp.strategy: "
                "take the one of the same name there"
            )
        self.strategy = strategy
        for one in _strategies_in(strategy):
            for reason, kinds in _REFUSED.items():
                if found := next((kind for kind in kinds if isinstance(one, kind)), None):
                    raise ParameterError(f"{found.__name__} {reason}")
        self._hooks = {name: getattr(strategy, name) for name in _HOOKS}
        aggregates = getattr(strategy.aggregate_train, "__func__", None)
        self._is_flowers = getattr(aggregates, "__module__", "").startswith("flwr.")
        self.steps = not (isinstance(strategy, FedAvg) and aggregates is FedAvg.aggregate_train)
        """Whether it makes more of the mean than the mean: then the server has to see it."""
        is_known = isinstance(strategy, _STEPPING) and self._is_flowers
        if self.steps and not is_known and not takes_mean:
            raise ParameterError(
                f"{type(strategy).__name__} has an aggregation of its own, which would get the clients' mean instead "
                "of every single update: if it needs no more than that, say so by takes_mean=True"
            )
        self.arrays_key = str(getattr(strategy, "arrayrecord_key", "arrays"))
        """The name of the record of arrays in messages to clients."""

    @property
    def weighted_by(self) -> str:
        """The metric that counts a client's samples."""
        return str(getattr(self.strategy, "weighted_by_key", "num-examples"))

    @contextmanager
    def standing_in(self, hooks: Strategy) -> Iterator[None]:
        """Have the strategy's own ``start`` go through another's rounds."""
        own = vars(self.strategy)
        kept = {name: own[name] for name in _HOOKS if name in own}
        own.update({name: getattr(hooks, name) for name in _HOOKS})
        try:
            yield
        finally:
            for name in _HOOKS:
                del own[name]
            own.update(kept)

    def summary(self) -> None:
        """Log what the strategy says of itself."""
        self._hooks["summary"]()

    def configured(
        self,
        kind: Literal["train", "evaluate"],
        round_number: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> dict[int, RecordDict]:
        """Return, by node that the strategy chooses, what it sends beside the model's arrays.

        Raises ParameterError for what would be lost: other arrays, a second message to a node, another function of the
        app than the default one.
        """
        name, found = type(self.strategy).__name__, {}
        for message in self._hooks[f"configure_{kind}"](round_number, arrays, config, grid):
            node, type_ = message.metadata.dst_node_id, message.metadata.message_type
            if type_ not in (kind, f"{kind}.default"):
                raise ParameterError(
                    f"{name} sends messages of the type {type_!r}: clients of a protected run take {kind!r} alone"
                )
            if node in found:
                raise ParameterError(f"{name} sends a node two messages in a round: send it one")
            records = dict(message.content.array_records.items())
            for key, record in records.items():
                if len(records) > 1 and key != self.arrays_key:
                    raise ParameterError(
                        f"{name} sends the arrays {key!r} beside the model: clients of a protected run get the model "
                        "alone, and settings in a ConfigRecord"
                    )
                if record is not arrays and record != arrays:
                    raise ParameterError(
                        f"{name} sends clients other arrays than the model: clients of a protected run train from the "
                        "model that all have"
                    )
                self.arrays_key = key
            found[node] = RecordDict({key: one for key, one in message.content.items() if key not in records})
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
        arrays, metrics = self._hooks["aggregate_train"](round_number, replies)
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
        metrics: MetricRecord | None = self._hooks["aggregate_evaluate"](round_number, replies)
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


def _strategies_in(strategy: Strategy) -> Iterator[Strategy]:
    """Yield a strategy and all that it holds."""
    seen: set[int] = set()
    waiting: list[Any] = [strategy]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Strategy):
            yield one
        if isinstance(one, Mapping):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset | deque):
            waiting.extend(one)
        elif isinstance(one, MethodType):
            waiting.append(one.__self__)
        elif not isinstance(one, type | ModuleType):
            waiting.extend(getattr(one, "__dict__", {}).values())


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
