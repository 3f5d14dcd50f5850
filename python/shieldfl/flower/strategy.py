"""A protecting strategy around an app's own, which samples nodes, joins metrics, may step with the mean."""

from __future__ import annotations

import inspect
import io
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from logging import INFO, WARNING
from types import MethodType, ModuleType
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flowers
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from flwr.supercore import log

from shieldfl.authority.message import Message as RoleMessage
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.flower.clients import GridClients, check_sample
from shieldfl.flower.records import COUNTED_METRIC
from shieldfl.flower.server_session import PlannedRun, ServerSession, authority_connection, server_sees_model
from shieldfl.flower.settings import FederationSettings
from shieldfl.privacy.book import PrivacySpent
from shieldfl.rounds.method import Method


class ShieldStrategy(Strategy):
    """Averages what nobody sees singly: ``ShieldStrategy(FedAvg(...), context.run_config)``.

    The app's strategy runs the rounds by its own ``start``, samples nodes, configures rounds and joins
    metrics as ever. In between, a round goes through the method's phases. By default the server opens each
    round's sum, and nothing else: it has the mean, as of secure aggregation, so that server optimisers,
    central evaluation and ``result.arrays`` work as ever. With ``shieldfl.opener = "clients"``, and by
    methods whose sums a server cannot open, it sees none.

    Parameters
    ----------
    strategy : the app's own; None for ``FedAvg()``.
    run_config : the app's configuration, whose settings are those of :class:`FederationSettings`, after
        ``shieldfl.``.
    takes_mean : whether a strategy that is none of Flower's own needs only the mean of updates.

    Raises ParameterError for settings that do not fit each other or the strategy.
    """

    def __init__(
        self, strategy: Strategy | None, run_config: Mapping[str, Any], *, takes_mean: bool = False
    ) -> None:
        if isinstance(strategy, ShieldStrategy):
            raise ParameterError("the ShieldStrategy is in a ShieldStrategy already: one protects")
        self.settings, self._method_settings = FederationSettings.of(run_config)
        self._own = own = FedAvg() if strategy is None else strategy
        self._steps = _steps(own, takes_mean=takes_mean)
        """Whether the strategy does more with the mean than take it: the server then has to see it."""
        self._is_flowers = _module_of(own).startswith("flwr.")
        self._hooks = {name: getattr(own, name) for name in _HOOKS}
        self._arrays_key = str(getattr(own, "arrayrecord_key", "arrays"))
        self._weighted_by = str(getattr(own, "weighted_by_key", "num-examples"))
        self._session: ServerSession | None = None
        self._begin_session: Callable[[Callable[[], dict[int, RecordDict]]], ServerSession] | None = None
        """Makes the session, from what the first round sends, by which samples may be counted."""
        self._finished: list[int] = []
        self._evaluated: dict[int, Message] = {}
        self._ended_rounds = 0
        self._newest: ArrayRecord | None = None
        """Arrays that the app's ``start`` got last; what it hands over for a round may be another model."""

    @property
    def session(self) -> ServerSession:
        if self._session is None:
            raise PolicyError(
                "no run was begun: call start of ShieldStrategy itself, and see that no other strategy "
                "stands around it"
            )
        return self._session

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """What noise has cost in the run so far, by what clients say that they have sent."""
        return self.session.privacy_spent

    def summary(self) -> None:
        self._own.summary()

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *arguments: Any, **named: Any) -> Result:
        """Run as the app's strategy's own ``start`` does, which is called with these arguments.

        ``timeout`` is of each exchange with clients, in seconds. Where the server sees no model, reading the
        result's ``arrays`` raises PolicyError. Raises ParameterError for arguments that do not fit, before
        anything is sent; PolicyError where not one round ended; and as :meth:`ServerSession.begin` does.
        """
        given = self._given(grid, initial_arrays, *arguments, **named)
        settings, timeout, evaluates = self.settings, given["timeout"], given["evaluate_fn"] is not None
        self._ended_rounds, self._session, self._newest = 0, None, initial_arrays
        planned = PlannedRun.of(settings, self._method_settings, initial_arrays, given["num_rounds"])
        with authority_connection(settings) or nullcontext() as connection:
            if settings.resume:
                session = ServerSession.resume(grid, timeout, planned, connection)
                for name, content in session.strategy_state.items():
                    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                        setattr(self._own, name, {key[1:]: arrays[key] for key in arrays.files})
                self._check_fits(session.method, evaluates)
                self._go_on_with(session)
            else:
                self._check_fits(planned.method_of_equals, evaluates)
                begin = partial(ServerSession.begin, grid, timeout, planned, connection)
                self._begin_session = lambda sent: begin(partial(self._count_samples, planned, sent))
            with self._standing_in():
                result: Result = self._own.start(grid, initial_arrays, *arguments, **named)
            session = self.session
            session.finish()
        if not self._ended_rounds:
            raise PolicyError("not one round ended: the reasons are in the log above")
        if server_sees_model(session.method) or not isinstance(result, Result):
            return result
        log(INFO, "shieldfl: the model is with the clients, and the server has none")
        return ResultWithoutModel(result, session.method.opened_by)

    def _go_on_with(self, session: ServerSession) -> None:
        self._session, method = session, session.method
        # Not every method lets a server step: that is to be known before training.
        if self._steps and not session.done and self._newest is not None:
            session.replace_model(self._newest)
        unset = "" if self.settings.opener else ", since shieldfl.opener is not set"
        log(INFO, "shieldfl: %s, opened by %s%s", method.name, method.opened_by, unset)
        log(INFO, "shieldfl: the server sees: %s", method.all_that_the_aggregator_sees)
        log(INFO, "shieldfl: %s", session.weighted_by)

    @contextmanager
    def _standing_in(self) -> Iterator[None]:
        """Have the strategy's own ``start`` go through these rounds."""
        own = vars(self._own)
        kept = {name: own[name] for name in _HOOKS if name in own}
        own.update({name: getattr(self, name) for name in _HOOKS})
        try:
            yield
        finally:
            for name in _HOOKS:
                del own[name]
            own.update(kept)

    def _check_fits(self, method: Method, evaluates: bool) -> None:
        if self._steps and not method.aggregator_has_model:
            needs = f"{type(self._own).__name__} steps with the mean"
        elif evaluates and not server_sees_model(method):
            needs = "evaluate_fn needs a model"
        else:
            return
        remedy = "Take a method whose sums the server can open, as of full-he under its default encryption"
        if method.aggregator_can_open:
            remedy = 'Set shieldfl.opener = "aggregator"'
        raise ParameterError(
            f"{needs} on the server, which does not see it: sums of {method.name} are opened by "
            f"{method.opened_by}. {remedy}"
        )

    def _count_samples(
        self, planned: PlannedRun, sent: Callable[[], dict[int, RecordDict]], clients: GridClients
    ) -> None:
        if self._weighted_by != COUNTED_METRIC:
            raise ParameterError(
                f"the strategy weighs by the metric {self._weighted_by!r}, and clients are counted by "
                f"{COUNTED_METRIC!r} alone: give the app ShieldMod(samples=...), or the strategy "
                f"weighted_by_key={COUNTED_METRIC!r}"
            )
        records = sent()
        check_sample(len(clients.by_node.keys() & set(records)), planned.method_of_equals.plan)
        clients.count(planned.first_training(), planned.layout.to_json(), self._arrays_key, records)

    def _given(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        own, usual_start = (inspect.signature(one) for one in (self._own.start, super().start))
        name = f"{type(self._own).__name__}.start"
        try:
            given = own.bind(*arguments, **named)
            handed_on = {key: value for key, value in named.items() if key in usual_start.parameters}
            usual = usual_start.bind_partial(*arguments, **handed_on)
        except TypeError as error:
            raise ParameterError(f"{name} does not take what it is called with: {error}") from error
        hands_on = any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in own.parameters.values())
        if "num_rounds" not in own.parameters and not hands_on:
            raise ParameterError(f"{name} has to take num_rounds: a protected run is set up for so many")
        given.apply_defaults()
        usual.apply_defaults()
        return {**usual.arguments, **given.arguments, **given.kwargs}

    def _begin(
        self,
        kind: Literal["train", "evaluate"],
        number: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> set[int]:
        """Take the model and what the app's strategy sends, which begins the session.

        Return the nodes it sends to.
        """
        is_other, model = arrays is not self._newest, arrays
        if kind == "train" and not is_other and self._session is not None:
            model = self._session.model() or arrays
        sent = cache(partial(self._configured, kind, number, model, config, grid))
        if self._session is None and self._begin_session is not None:
            self._go_on_with(self._begin_session(sent))
        session = self.session
        if is_other:
            session.take_model(arrays)
            self._newest = arrays
        records = sent()
        index_of = session.clients.by_node
        session.clients.app_records = {
            index_of[node]: one for node, one in records.items() if node in index_of
        }
        session.clients.asked = {"arrays": self._arrays_key}
        return set(records)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Run the round, all phases of it, and leave nothing for Flower to send."""
        self._finished = []
        if self._session is not None and server_round <= self._session.done:
            log(INFO, "shieldfl: round %s was done before", server_round)
            self._ended_rounds += 1
            return []
        nodes = self._begin("train", server_round, arrays, config, grid)
        session = self.session
        if not self._ended_rounds:
            check_sample(len(session.clients.app_records), session.method.plan)
        session.clients.asked["weighted-by"] = self._weighted_by if session.planned.counts_samples else ""
        self._finished = session.run_round(server_round, nodes)
        self._ended_rounds += bool(self._finished)
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the mean model, where the server sees it, and what the app's strategy makes of metrics."""
        session = self.session
        arrays, metrics = session.model(), None
        if server_round <= session.done:
            return arrays, session.told(server_round, "train")
        if self._finished:
            told = {one: session.clients.trained[one] for one in self._finished}
            brought = {self._arrays_key: arrays or ArrayRecord([np.zeros(1, np.float32)])}
            replies = self._alike(told, brought)
            if self._steps and not replies:  # by a client without metrics the strategy still gets its mean
                replies = [_reply_of(0, {**brought, "metrics": MetricRecord({self._weighted_by: 1})})]
            stepped, metrics = self._hooks["aggregate_train"](server_round, replies)
            if self._steps:
                arrays = stepped
                if stepped is not None:
                    session.replace_model(stepped)
        else:
            arrays = None
        session.done = server_round
        self._keep(server_round, "train", metrics)
        self._newest = arrays or self._newest
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self._session is None or self._session.told(server_round, "evaluate") is None:
            self._begin("evaluate", server_round, arrays, config, grid)
            session, clients = self.session, self.session.clients
            contents = {index: session.model_content(index, "model") for index in sorted(clients.app_records)}
            self._evaluated = clients.asked_all("model", contents, f"evaluation {server_round}")
            log(INFO, "shieldfl: evaluation %s: %s", server_round, clients.bytes_moved())
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics = self.session.told(server_round, "evaluate")
        if metrics is None:
            told = {index: dict(one.content.metric_records) for index, one in sorted(self._evaluated.items())}
            metrics = self._hooks["aggregate_evaluate"](server_round, self._alike(told, {}))
            if metrics is not None:
                self._keep(server_round, "evaluate", metrics)
        return metrics

    def _keep(self, number: int, kind: str, metrics: MetricRecord | None) -> None:
        """Write down a round's outcome, and an optimiser's memory: arrays among the strategy's attributes."""
        if metrics is not None:
            self.session.metrics.setdefault(number, {})[kind] = dict(metrics)
        parts = {}
        for name, value in vars(self._own).items():
            if isinstance(value, dict) and all(isinstance(one, np.ndarray) for one in value.values()):
                buffer = io.BytesIO()
                np.savez(buffer, **{f" {key}": one for key, one in value.items()})
                parts[name] = buffer.getvalue()
        self.session.keep(RoleMessage(parts))

    def _configured(
        self,
        kind: Literal["train", "evaluate"],
        round_number: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> dict[int, RecordDict]:
        name, found = type(self._own).__name__, dict[int, RecordDict]()
        for message in self._hooks[f"configure_{kind}"](round_number, arrays, config, grid):
            node, type_ = message.metadata.dst_node_id, message.metadata.message_type
            if type_ not in (kind, f"{kind}.default"):
                raise ParameterError(
                    f"{name} sends messages of the type {type_!r}: clients of a protected run take {kind!r} "
                    "alone"
                )
            if node in found:
                raise ParameterError(f"{name} sends a node two messages in a round: send it one")
            content = message.content
            records = dict(content.array_records.items())
            for key, record in records.items():
                if len(records) > 1 and key != self._arrays_key:
                    raise ParameterError(
                        f"{name} sends the arrays {key!r} beside the model: clients of a protected run get "
                        "the model alone, and settings in a ConfigRecord"
                    )
                if record is not arrays and record != arrays:
                    raise ParameterError(
                        f"{name} sends clients other arrays than the model: clients of a protected run train "
                        "from the model that all have"
                    )
                self._arrays_key = key
            found[node] = RecordDict({**dict(content.config_records), **dict(content.metric_records)})
        return found

    def _alike(
        self, told: Mapping[int, Mapping[str, MetricRecord]], brought: Mapping[str, ArrayRecord]
    ) -> list[Message]:
        """Return replies that can be joined: metrics of most clients' form, with a weight that is valid.

        Otherwise one client alone could end the run by its metrics. If an epsilon holds, clients tell none.
        """
        told = {client: records for client, records in told.items() if records}
        forms = {client: _form_of(one) for client, one in told.items() if self._can_be_joined(one)}
        most = Counter(forms.values()).most_common(1)
        alike = {client: told[client] for client, form in forms.items() if form == most[0][0]}
        for client in told.keys() - alike.keys():
            log(WARNING, "shieldfl: the metrics of client %s are not those of the others: left out", client)
        return [_reply_of(client, {**brought, **records}) for client, records in alike.items()]

    def _can_be_joined(self, records: Mapping[str, MetricRecord]) -> bool:
        weights = [record[self._weighted_by] for record in records.values() if self._weighted_by in record]
        if self._arrays_key in records or (self._is_flowers and (len(records) != 1 or not weights)):
            return False  # Flower would end the run
        return all(isinstance(one, int | float) and 0.0 < one < _MOST_WEIGHT for one in weights)


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
"""Strategies that no setting allows, by the reason."""
_HOOKS = "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"
"""Names of the strategy's methods that ``start`` calls."""
_MOST_WEIGHT = 2.0**53
"""Weights are below this, so that sums are finite: a mean that is divided by infinity would be 0."""


def _module_of(strategy: Strategy) -> str:
    """Return where a strategy's aggregation is written."""
    return str(getattr(getattr(strategy.aggregate_train, "__func__", None), "__module__", ""))


def _steps(strategy: Strategy, *, takes_mean: bool) -> bool:
    """Say whether a strategy does more with the mean than take it as the model, without single updates.

    Flower's own FedAvg, FedProx, FedAvgM, FedAdagrad, FedAdam and FedYogi need the weighted mean alone.
    Raises ParameterError for a strategy that looks at single updates, or may, and for one that wraps such a
    one.
    """
    kind = type(strategy)
    if not isinstance(strategy, Strategy):
        raise ParameterError(
            f"{kind.__name__} of {kind.__module__.rpartition('.')[0]} is no strategy of "
            "flwr.serverapp.strategy: take the one of the same name there"
        )
    for one in _strategies_in(strategy):
        for reason, refused in _REFUSED.items():
            if isinstance(one, refused):
                raise ParameterError(f"{type(one).__name__} {reason}")
    aggregates = getattr(strategy.aggregate_train, "__func__", None)
    if isinstance(strategy, FedAvg) and aggregates is FedAvg.aggregate_train:
        return False
    is_known = isinstance(strategy, _STEPPING) and _module_of(strategy).startswith("flwr.")
    if not is_known and not takes_mean:
        raise ParameterError(
            f"{kind.__name__} has an aggregation of its own, which would get the clients' mean instead of "
            "single updates: pass takes_mean=True if the mean is enough for it"
        )
    return True


def _strategies_in(strategy: Strategy) -> Iterator[Strategy]:
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


def _reply_of(client: int, content: Mapping[str, Any]) -> Message:
    asked = Message(RecordDict(), client, "train")
    asked.metadata.__dict__["_message_id"] = str(client)
    return Message(RecordDict(dict(content)), reply_to=asked)


def _form_of(records: Mapping[str, MetricRecord]) -> str:
    return str(
        sorted(
            (name, key, len(one) if isinstance(one, list) else -1)
            for name, record in records.items()
            for key, one in (*record.items(), ("", 0))
        )
    )


class ResultWithoutModel(Result):
    """Flower's result, with metrics alone: an empty model would be saved, or loaded, as if it were one."""

    _METRICS = "train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"

    def __init__(self, result: Result, opened_by: str) -> None:
        self._opened_by = opened_by
        vars(self).update({name: getattr(result, name) for name in self._METRICS})

    @property
    def arrays(self) -> ArrayRecord:  # type: ignore[override]
        raise PolicyError(
            f"the server has no model: sums were opened by {self._opened_by}. Let clients evaluate or save "
            'it; or have the server open sums, by shieldfl.opener = "aggregator" and a method such as full-he'
        )

    def __repr__(self) -> str:
        return repr(Result(**{name: getattr(self, name) for name in self._METRICS}))
