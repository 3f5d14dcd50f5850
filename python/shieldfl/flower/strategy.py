"""A strategy that protects: around an app's own, or alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from logging import INFO
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from flwr.supercore import log

from shieldfl.authority_service.authority_client import AuthorityConnection
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.flower.exchange import Exchange
from shieldfl.flower.federation_settings import FederationSettings
from shieldfl.flower.mean_strategy import MeanStrategy
from shieldfl.flower.participants import Participants
from shieldfl.flower.planned_run import PlannedRun
from shieldfl.flower.result_without_model import ResultWithoutModel
from shieldfl.flower.sample_count import COUNTED_METRIC
from shieldfl.flower.server_session import ServerSession, server_sees_model
from shieldfl.flower.wire import Kind
from shieldfl.methods.protocol.method import Method
from shieldfl.privacy.book import PrivacySpent

__all__ = ["ShieldStrategy"]


class ShieldStrategy(Strategy):
    """Averages what nobody sees singly: ``ShieldStrategy(FedAvg(...), context.run_config)``.

    The app's strategy samples nodes, configures rounds and joins metrics as ever. In between, a round goes through the
    method's phases. By default the server opens each round's sum, and nothing else: it has the mean, as of secure
    aggregation, so that server optimisers, central evaluation and ``result.arrays`` work as ever. With
    ``shieldfl.opener = "clients"``, and by methods whose sums a server cannot open, it sees no model.

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
        self.settings, self._method_settings = FederationSettings.of(run_config)
        self._inner = MeanStrategy(FedAvg() if strategy is None else strategy, takes_mean=takes_mean)
        self._given_authority = authority
        self._session: ServerSession | None = None
        self._finished: list[int] = []
        self._evaluated: dict[int, Message] = {}
        self._ended_rounds = 0
        self._first_messages: list[Message] = []
        """Of round 1, where samples were counted by its training."""

    @property
    def session(self) -> ServerSession:
        """The run that was begun. Raises PolicyError before."""
        if self._session is None:
            raise PolicyError("no run was begun: call start")
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
        self._inner.strategy.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run as ``Strategy.start`` does, whose arguments these are; ``timeout`` is of each exchange with clients.

        Where the server sees no model, reading the result's ``arrays`` raises PolicyError. Raises ParameterError where
        it would need one, before anything is sent; PolicyError where not one round ended; and as
        :meth:`ServerSession.begin` and :meth:`ServerSession.run_round` do.
        """
        exchange, settings = Exchange(grid, timeout), self.settings
        self._ended_rounds, self._first_messages = 0, []
        planned = PlannedRun.of(settings, self._method_settings, initial_arrays, num_rounds)
        if not settings.resume:
            self._check_fits(planned.method_of_equals, evaluates=evaluate_fn is not None)
        train_config = ConfigRecord() if train_config is None else train_config
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
                        participants, planned, initial_arrays, train_config, grid
                    ),
                )
            self._check_fits(self._session.method, evaluates=evaluate_fn is not None)
            result = super().start(
                grid,
                initial_arrays,
                num_rounds,
                timeout,
                train_config,
                evaluate_config,
                evaluate_fn,
            )
            self._session.finish()
            if privacy := self._session.privacy():
                log(INFO, "shieldfl: %s", privacy)
        finally:
            if connection is not None and connection is not self._given_authority:
                connection.close()
        if not self._ended_rounds:
            raise PolicyError("not one round ended: the reasons are in the log above")
        if self._session.sees_model:
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
        config: ConfigRecord,
        grid: Grid,
    ) -> None:
        """Have clients that do not say how many samples they have train as round 1 asks for it, and say so."""
        if self._inner.weighted_by != COUNTED_METRIC:
            raise ParameterError(
                f"the strategy weighs by the metric {self._inner.weighted_by!r}, and clients are counted by "
                f"{COUNTED_METRIC!r} alone: give the app ShieldMod(samples=...), or the strategy weighted_by_key="
                f"{COUNTED_METRIC!r}"
            )
        self._first_messages = list(self._inner.strategy.configure_train(1, arrays, config, grid))
        records = self._inner.app_records(self._first_messages)
        layout = planned.layout.to_json()
        participants.count(planned.first_training(), layout, self._inner.arrays_key, records)

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
        model = session.model()
        messages, self._first_messages = self._first_messages, []
        if not messages:
            messages = list(
                self._inner.strategy.configure_train(
                    server_round, arrays if model is None else model, config, grid
                )
            )
        self._take_records(messages)
        session.clients.asked["weighted-by"] = self._inner.weighted_by if session.counts_samples else ""
        traffic = session.run_round(server_round, [one.metadata.dst_node_id for one in messages])
        if traffic is not None:
            self._finished = traffic.finished
            self._ended_rounds += 1
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the mean model, where the server sees it, and what the app's strategy makes of metrics."""
        session = self.session
        if server_round <= session.done:
            return session.model(), self._before(server_round, "train")
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
        return arrays, metrics

    def _before(self, server_round: int, kind: str) -> MetricRecord | None:
        told = self.session.metrics.get(server_round, {}).get(kind)
        return None if told is None else MetricRecord(told)

    def _take_records(self, messages: Iterable[Message]) -> None:
        session = self.session
        index_of = session.participants.by_node
        session.clients.app_records = {
            index_of[node]: records
            for node, records in self._inner.app_records(messages).items()
            if node in index_of
        }
        session.clients.asked = {"arrays": self._inner.arrays_key}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Have the nodes that the app's strategy chooses evaluate their own model."""
        session = self.session
        if "evaluate" in session.metrics.get(server_round, {}):
            return []
        messages = list(self._inner.strategy.configure_evaluate(server_round, arrays, config, grid))
        self._take_records(messages)
        contents = {
            index: session.model_content(index, Kind.MODEL) for index in sorted(session.clients.app_records)
        }
        self._evaluated = session.clients.asked_all(contents, f"evaluation {server_round}", kind="evaluate")
        log(INFO, "shieldfl: evaluation %s: %s", server_round, session.bytes_moved())
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
