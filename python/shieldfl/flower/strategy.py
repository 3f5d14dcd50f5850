"""A strategy that protects, around an app's own, which samples nodes, joins metrics, and may step with the mean."""

from __future__ import annotations

import inspect
import io
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from logging import INFO, WARNING
from types import MethodType, ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flowers
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from flwr.supercore import log

from shieldfl.authority.message import Message as RoleMessage
from shieldfl.authority_service.authority_client import AuthorityConnection
from shieldfl.errors import ParameterError, PolicyError, ShieldError
from shieldfl.flower.clients import Exchange, Participants, check_sample
from shieldfl.flower.run import PlannedRun
from shieldfl.flower.server_session import ServerSession, server_sees_model
from shieldfl.flower.settings import FederationSettings
from shieldfl.flower.wire import COUNTED_METRIC, Kind
from shieldfl.privacy.book import PrivacySpent
from shieldfl.rounds.method import Method


class _FirstRound(NamedTuple):
    """What the app's strategy has configured, with its settings before and after that."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    records: Mapping[int, RecordDict]


class ShieldStrategy(Strategy):
    """Averages what nobody sees singly: ``ShieldStrategy(FedAvg(...), context.run_config)``.

    The app's strategy runs the rounds by its own ``start``, samples nodes, configures rounds and joins metrics as ever.
    In between, a round goes through the method's phases. By default the server opens each round's sum, and nothing
    else: it has the mean, as of secure aggregation, so that server optimisers, central evaluation and ``result.arrays``
    work as ever. With ``shieldfl.opener = "clients"``, and by methods whose sums a server cannot open, it sees none.

    Parameters
    ----------
    strategy : the app's own; None for ``FedAvg()``.
    run_config : the app's configuration, whose settings are those of :class:`FederationSettings`, after ``shieldfl.``.
    authority : what reaches the key authority; None for what the settings say.
    takes_mean : that a strategy which is none of Flower's own needs no more of updates than their mean.

    Raises ParameterError for settings that do not fit each other or the strategy.
    """

    def __init__(
        self,
        strategy: Strategy | None,
        run_config: Mapping[str, Any],
        *,
        authority: AuthorityConnection | None = None,
        takes_mean: bool = False,
    ) -> None:
        if isinstance(strategy, ShieldStrategy):
            raise ParameterError("the ShieldStrategy is in a ShieldStrategy already: one protects")
        self.settings, self._method_settings = FederationSettings.of(run_config)
        self._inner = MeanStrategy(FedAvg() if strategy is None else strategy, takes_mean=takes_mean)
        self._given_authority = authority
        self._session: ServerSession | None = None
        self._finished: list[int] = []
        self._evaluated: dict[int, Message] = {}
        self._ended_rounds = 0
        self._newest: ArrayRecord | None = None
        """The arrays that the app's strategy was given last."""
        self._first: _FirstRound | None = None
        """Where samples were counted by its training."""

    @property
    def session(self) -> ServerSession:
        """The run that was begun. Raises PolicyError before."""
        if self._session is None:
            raise PolicyError(
                "no run was begun: call start of ShieldStrategy itself, and see that no other strategy stands around it"
            )
        return self._session

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """What noise has cost in the run so far, by what clients say that they have sent.

        None for a method without a delta. How to read it says ``session.privacy()``. Raises PolicyError before a run.
        """
        return self.session.privacy_spent

    def summary(self) -> None:
        """Log what protects, and what the app's strategy says of itself."""
        method = self.session.method
        unset = "" if self.settings.opener else ", since shieldfl.opener is not set"
        log(INFO, "\t├──> shieldfl: %s, opened by %s%s", method.name, method.opened_by, unset)
        log(INFO, "\t│\tthe server sees: %s", method.all_that_the_aggregator_sees)
        log(INFO, "\t│\t%s", self.session.weighted_by)
        self._inner.summary()

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *arguments: Any, **named: Any) -> Result:
        """Run as the app's strategy's own ``start`` does, which is called with these arguments.

        Of Flower's strategies these are ``num_rounds``, ``timeout`` (seconds, of each exchange with clients),
        ``train_config``, ``evaluate_config`` and ``evaluate_fn``. Where the server sees no model, reading the result's
        ``arrays`` raises PolicyError.

        Raises ParameterError for arguments that it does not take, and where the server would need a model that it does
        not see, before anything is sent; PolicyError where not one round ended; and as :meth:`ServerSession.begin` and
        :meth:`ServerSession.run_round` do.
        """
        given = self._given(grid, initial_arrays, *arguments, **named)
        num_rounds, timeout, evaluate_fn = (given[name] for name in ("num_rounds", "timeout", "evaluate_fn"))
        exchange, settings = Exchange(grid, timeout), self.settings
        self._ended_rounds, self._first = 0, None
        planned = PlannedRun.of(settings, self._method_settings, initial_arrays, num_rounds)
        if not settings.resume:
            self._check_fits(planned.method_of_equals, evaluates=evaluate_fn is not None)
        connection = self._given_authority or settings.authority_connection()
        try:
            if settings.resume:
                self._session = ServerSession.resume(exchange, planned, connection)
                self._inner.restore(self._session.strategy_state)
            else:
                self._session = ServerSession.begin(
                    exchange,
                    planned,
                    connection,
                    lambda participants: self._count_samples(
                        participants, planned, initial_arrays, given["train_config"], grid
                    ),
                )
            self._check_fits(self._session.method, evaluates=evaluate_fn is not None)
            # Not every method lets a server step: that is to be known before training.
            if self._inner.steps and not self._session.done:
                self._session.replace_model(initial_arrays)
            self._newest = initial_arrays
            with self._inner.standing_in(self):
                result: Result = self._inner.strategy.start(grid, initial_arrays, *arguments, **named)
            self._session.finish()
            if privacy := self._session.privacy():
                log(INFO, "shieldfl: %s", privacy)
        finally:
            if connection is not None and connection is not self._given_authority:
                connection.close()
        if not self._ended_rounds:
            raise PolicyError("not one round ended: the reasons are in the log above")
        if self._session.sees_model or not isinstance(result, Result):
            return result
        log(INFO, "shieldfl: the model is with the clients, and the server has none")
        return ResultWithoutModel(result, self._session.method.opened_by)

    def _check_fits(self, method: Method, *, evaluates: bool) -> None:
        """Raise ParameterError where the server is to use a model that it does not see."""
        steps = self._inner.steps and not method.aggregator_has_model
        if steps or (evaluates and not server_sees_model(method)):
            needs = (
                f"{type(self._inner.strategy).__name__} steps with the mean"
                if steps
                else "evaluate_fn needs a model"
            )
            raise ParameterError(
                f"{needs} on the server, which does not see it: sums of {method.name} are opened by "
                f"{method.opened_by}. {_remedy_for(method)}"
            )

    def _count_samples(
        self,
        participants: Participants,
        planned: PlannedRun,
        arrays: ArrayRecord,
        config: ConfigRecord | None,
        grid: Grid,
    ) -> None:
        """Have clients that do not say how many samples they have train as round 1 asks for it, and say so."""
        if self._inner.weighted_by != COUNTED_METRIC:
            raise ParameterError(
                f"the strategy weighs by the metric {self._inner.weighted_by!r}, and clients are counted by "
                f"{COUNTED_METRIC!r} alone: give the app ShieldMod(samples=...), or the strategy weighted_by_key="
                f"{COUNTED_METRIC!r}"
            )
        own = ConfigRecord(dict(config or {}))
        before = dict(own)
        try:
            records = self._inner.configured("train", 1, arrays, own, grid)
        except ShieldError:
            raise
        except Exception as error:
            raise ParameterError(
                f"the strategy's configure_train fails before its start ({type(error).__name__}: {error}), where "
                "clients count their samples by a first training: give the app ShieldMod(samples=...)"
            ) from error
        check_sample(len(participants.by_node.keys() & set(records)), planned.method_of_equals.plan)
        self._first = _FirstRound(before, dict(own), records)
        layout = planned.layout.to_json()
        participants.count(planned.first_training(), layout, self._inner.arrays_key, records)

    def _given(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        """Return, by name, what the app's strategy's ``start`` is called with, its own defaults among it."""
        own = inspect.signature(self._inner.strategy.start)
        usual_start = inspect.signature(super().start)
        name = f"{type(self._inner.strategy).__name__}.start"
        try:
            given = own.bind(*arguments, **named)
            handed_on = {key: value for key, value in named.items() if key in usual_start.parameters}
            usual = usual_start.bind_partial(*arguments, **handed_on)
        except TypeError as error:
            raise ParameterError(f"{name} does not take what it is called with: {error}") from error
        hands_on = {one.kind for one in own.parameters.values()} & {
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        }
        if "num_rounds" not in own.parameters and not hands_on:
            raise ParameterError(f"{name} has to take num_rounds: a protected run is set up for so many")
        for one in (given, usual):
            one.apply_defaults()
        return {**usual.arguments, **given.arguments, **given.kwargs}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Run the round, all phases of it, and leave nothing for Flower to send."""
        session = self.session
        self._finished = []
        if server_round <= session.done:
            log(INFO, "shieldfl: round %s was done before", server_round)
            self._ended_rounds += 1
            return []
        self._take_model(arrays)
        model = session.model()
        records = self._configured(server_round, arrays if model is None else model, config, grid)
        if not self._ended_rounds:
            check_sample(len(session.participants.by_node.keys() & set(records)), session.method.plan)
        self._take_records(records)
        session.clients.asked["weighted-by"] = self._inner.weighted_by if session.counts_samples else ""
        traffic = session.run_round(server_round, records)
        if traffic is not None:
            self._finished = traffic.finished
            self._ended_rounds += 1
        return []

    def _configured(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Mapping[int, RecordDict]:
        """Have the app's strategy configure a round once: the first was, where samples were counted by its training."""
        first, self._first = self._first, None
        if first is None or dict(config) not in (first.before, first.after):
            return self._inner.configured("train", server_round, arrays, config, grid)
        for name, value in first.after.items():
            config[name] = value
        return first.records

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the mean model, where the server sees it, and what the app's strategy makes of metrics."""
        session = self.session
        if server_round <= session.done:
            return self._seen(session.model()), self._before(server_round, "train")
        if not self._finished:
            session.done = server_round
            session.keep(self._inner.state())
            return None, None
        trained = {index: session.clients.trained.get(index, {}) for index in self._finished}
        arrays, metrics = self._inner.aggregated(server_round, trained, session.model())
        if arrays is not None and self._inner.steps:
            session.replace_model(arrays)
        session.done = server_round
        if metrics is not None:
            session.metrics.setdefault(server_round, {})["train"] = dict(metrics)
        session.keep(self._inner.state())
        return self._seen(arrays), metrics

    def _seen(self, arrays: ArrayRecord | None) -> ArrayRecord | None:
        """Take note of what the app's ``start`` gets: what it hands over for the next round may be another model."""
        if arrays is not None:
            self._newest = arrays
        return arrays

    def _take_model(self, arrays: ArrayRecord) -> None:
        if arrays is not self._newest:
            self.session.take_model(arrays)
            self._newest = arrays

    def _before(self, server_round: int, kind: str) -> MetricRecord | None:
        told = self.session.metrics.get(server_round, {}).get(kind)
        return None if told is None else MetricRecord(told)

    def _take_records(self, by_node: Mapping[int, RecordDict]) -> None:
        session = self.session
        index_of = session.participants.by_node
        session.clients.app_records = {
            index_of[node]: records for node, records in by_node.items() if node in index_of
        }
        session.clients.asked = {"arrays": self._inner.arrays_key}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Have the nodes that the app's strategy chooses evaluate their own model."""
        session = self.session
        if "evaluate" in session.metrics.get(server_round, {}):
            return []
        self._take_model(arrays)
        self._take_records(self._inner.configured("evaluate", server_round, arrays, config, grid))
        contents = {
            index: session.model_content(index, Kind.MODEL) for index in sorted(session.clients.app_records)
        }
        self._evaluated = session.clients.asked_all(contents, f"evaluation {server_round}", kind="evaluate")
        log(INFO, "shieldfl: evaluation %s: %s", server_round, session.participants.exchange.bytes_moved())
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return what the app's strategy makes of the clients' evaluations."""
        session = self.session
        if "evaluate" in session.metrics.get(server_round, {}):
            return self._before(server_round, "evaluate")
        told = {
            index: dict(reply.content.metric_records.items())
            for index, reply in sorted(self._evaluated.items())
        }
        metrics = self._inner.evaluated(server_round, told)
        if metrics is not None:
            session.metrics.setdefault(server_round, {})["evaluate"] = dict(metrics)
            session.keep(self._inner.state())
        return metrics


def _remedy_for(method: Method) -> str:
    """Say how the server gets to see the mean."""
    if method.aggregator_can_open:
        return 'Set shieldfl.opener = "aggregator"'
    return 'Take a method whose sums the server can open: shieldfl.method = "full-he", under its default encryption'


_STEPPING = (flowers.FedAdagrad, flowers.FedAdam, flowers.FedAvgM, flowers.FedYogi)
_REFUSED = {
    "compares single clients' updates, which nobody sees here: take a strategy that needs their mean": (
        flowers.Bulyan,
        flowers.FedMedian,
        flowers.FedTrimmedAvg,
        flowers.Krum,
        flowers.MultiKrum,
        flowers.QFedAvg,
    ),
    "joins single clients' trees, which nobody sees here: take a strategy that needs a mean": (
        flowers.FedXgbBagging,
        flowers.FedXgbCyclic,
    ),
    "adds noise that is scaled for clients whose single updates are clipped, and gets their mean alone: take "
    "shieldfl.method = 'ddp-fedavg', whose clients clip and add noise, with FedAvg": (
        flowers.DifferentialPrivacyClientSideAdaptiveClipping,
        flowers.DifferentialPrivacyClientSideFixedClipping,
        flowers.DifferentialPrivacyServerSideAdaptiveClipping,
        flowers.DifferentialPrivacyServerSideFixedClipping,
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


class ResultWithoutModel(Result):
    """Flower's result, with metrics alone: an empty model would be saved, or loaded, as if it were one.

    Parameters
    ----------
    result : with the metrics.
    opened_by : who has opened sums, in words.
    """

    def __init__(self, result: Result, opened_by: str) -> None:
        self._opened_by = opened_by
        self.train_metrics_clientapp = result.train_metrics_clientapp
        self.evaluate_metrics_clientapp = result.evaluate_metrics_clientapp
        self.evaluate_metrics_serverapp = result.evaluate_metrics_serverapp

    @property
    def arrays(self) -> ArrayRecord:  # type: ignore[override]
        """The model, which is not here: raises PolicyError."""
        raise PolicyError(
            f"the server has no model: sums were opened by {self._opened_by}. Let clients evaluate or save it; or have "
            'the server open sums, by shieldfl.opener = "aggregator" and a method such as full-he'
        )

    def __repr__(self) -> str:
        """Return the metrics, as Flower prints them."""
        return repr(
            Result(
                train_metrics_clientapp=self.train_metrics_clientapp,
                evaluate_metrics_clientapp=self.evaluate_metrics_clientapp,
                evaluate_metrics_serverapp=self.evaluate_metrics_serverapp,
            )
        )
