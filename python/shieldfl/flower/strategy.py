"""A strategy that protects: around an app's own, or alone."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from logging import INFO
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from flwr.supercore import log

from shieldfl.authority_service.authority_client import AuthorityConnection
from shieldfl.errors import ParameterError, PolicyError, ShieldError
from shieldfl.flower.exchange import Exchange
from shieldfl.flower.federation_settings import FederationSettings
from shieldfl.flower.mean_strategy import MeanStrategy
from shieldfl.flower.participants import Participants, check_sample
from shieldfl.flower.planned_run import PlannedRun
from shieldfl.flower.result_without_model import ResultWithoutModel
from shieldfl.flower.sample_count import COUNTED_METRIC
from shieldfl.flower.server_session import ServerSession, server_sees_model
from shieldfl.flower.wire import Kind
from shieldfl.methods.protocol.method import Method
from shieldfl.privacy.book import PrivacySpent

__all__ = ["ShieldStrategy"]


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
                self._session = ServerSession.resume(
                    exchange, settings, self._method_settings, connection, num_rounds
                )
                self._inner.restore(self._session.strategy_state())
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
        flowers = inspect.signature(super().start)
        name = f"{type(self._inner.strategy).__name__}.start"
        try:
            given = own.bind(*arguments, **named)
            handed_on = {key: value for key, value in named.items() if key in flowers.parameters}
            usual = flowers.bind_partial(*arguments, **handed_on)
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
