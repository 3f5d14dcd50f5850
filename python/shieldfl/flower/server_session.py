"""The server's side of one protected run: its roles, and how it is begun, goes round by round, and is gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, RecordDict
from flwr.supercore import log

from shieldfl.authority.message import Message
from shieldfl.authority_service.authority_client import AuthorityConnection, RemoteAuthority
from shieldfl.errors import ParameterError, PolicyError, ShieldError, UnreachableError
from shieldfl.flower.clients import Exchange, GridClients, Participants, check_sample
from shieldfl.flower.run import BegunRun, Checkpoint, PlannedRun, Progress
from shieldfl.flower.told_events import ToldEvents, in_words
from shieldfl.flower.wire import Kind
from shieldfl.privacy.book import PrivacySpent
from shieldfl.privacy.events import OpenedSum
from shieldfl.rounds.account import AccountState
from shieldfl.rounds.driver import RoundDriver, RoundTraffic
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method


class ServerSession:
    """Aggregator, driver and clients of a run, and the key authority, here or where it is served.

    Made by :meth:`begin` and :meth:`resume`.
    """

    def __init__(
        self, begun: BegunRun, participants: Participants, checkpoint: Checkpoint | None, threads: int | None
    ) -> None:
        self._begun = begun
        self.method = begun.method
        self.layout = begun.planned.layout
        self.counts_samples, self.weighted_by = begun.planned.counts_samples, begun.weighted_by
        self.participants = participants
        self._checkpoint = checkpoint
        self._account = begun.method.account()
        if begun.method.synthetic_demand is not None:
            self._account.note_given_synthetic_data()
        self._told = ToldEvents(self._account, begun.method.privacy_reading.unit, begun.method.plan.rounds)
        initial = begun.planned.initial if begun.method.aggregator_has_model else None
        self.aggregator = begun.method.aggregator_steps(
            begun.setup, begun.weights, initial=initial, threads=threads
        )
        self.clients = GridClients(
            participants,
            lambda client, again: self.aggregator.missed(client, again=again),
            self._told,
            clients_open=begun.method.clients_open,
        )
        self.driver: RoundDriver
        """Runs rounds, once all have enrolled, or the aggregator has what it had."""
        self.strategy_state = Message()
        """What the app's strategy had at the checkpoint."""
        self.done = 0
        """The last round that ended, or was given up."""
        self.metrics: dict[int, dict[str, dict[str, Any]]] = {}
        """By round and kind, what the app's strategy made of metrics."""

    @classmethod
    def begin(
        cls,
        exchange: Exchange,
        planned: PlannedRun,
        connection: AuthorityConnection | None,
        count_samples: Callable[[Participants], None],
    ) -> ServerSession:
        """Find the clients, begin a session at the key authority, have all take it and enrol.

        ``count_samples`` has those say how many samples they have that do not.

        Raises PolicyError where a client or the authority refuses, UnreachableError, ParameterError; TimeoutError for
        clients that do not come.
        """
        settings = planned.settings
        checkpoint = None if settings.checkpoint is None else Checkpoint(Path(settings.checkpoint))
        if checkpoint is not None and checkpoint.is_begun:
            raise PolicyError(
                f"there is a checkpoint in {checkpoint.folder}: go on from it with shieldfl.resume = true, or name "
                "another folder"
            )
        participants = Participants(exchange, store="" if checkpoint is None else checkpoint.nodes)
        participants.find(settings.clients)
        if planned.counts_samples and any(one.samples is None for one in participants.by_index.values()):
            count_samples(participants)
        begun = BegunRun.made(
            planned,
            connection,
            [participants.by_index[index].samples for index in range(settings.clients)],
        )
        participants.session = begun.setup.session
        session = cls(begun, participants, checkpoint, settings.threads)
        session._enrol()
        session._make_driver()
        session.keep()
        log(INFO, "shieldfl: set-up: %s clients, %s", settings.clients, exchange.bytes_moved())
        return session

    @classmethod
    def resume(
        cls,
        exchange: Exchange,
        planned: PlannedRun,
        connection: AuthorityConnection | None,
    ) -> ServerSession:
        """Go on from a checkpoint. Raises as :meth:`begin` does, DataError, and PolicyError for another plan."""
        settings = planned.settings
        assert settings.checkpoint is not None
        checkpoint = Checkpoint(Path(settings.checkpoint))
        progress, parts = checkpoint.kept()
        begun = BegunRun.kept(planned, connection, progress, parts, checkpoint.key())
        participants = Participants(
            exchange, progress.session, checkpoint.nodes, progress.nodes, progress.positions
        )
        participants.find(settings.clients)
        session = cls(begun, participants, checkpoint, settings.threads)
        aggregator = session.aggregator
        aggregator.restore(parts["aggregator"], checkpoint.key() if aggregator.needs_sealing else None)
        session.done, session.metrics = progress.round, progress.metrics
        session._account.restore(AccountState.from_bytes(parts["account"]))
        session._told.restore(progress.events, participants.by_index, session.done + 1)
        if begun.method.states_epsilon and begun.method.purposes and session.done < begun.method.plan.rounds:
            # It may have been opened before the run was cut off; run again, it is told once more.
            session._account.book.add(OpenedSum(session.done + 1))
        grants = Message.from_bytes(parts["grants"])
        for index in participants.by_index:
            if str(index) in grants:
                participants.by_index[index].grant = Message.from_bytes(grants[str(index)])
        ends = Message.from_bytes(parts["ends"])
        for index, ended in progress.ended.items():
            session.clients.ends[index] = ended, Message.from_bytes(ends[str(index)])
        session.strategy_state = Message.from_bytes(parts["strategy"])
        session.clients.hear_again()
        session._make_driver()
        log(INFO, "shieldfl: the run goes on after round %s", session.done)
        return session

    def _enrol(self) -> None:
        begun = self._begun
        requests = self.participants.set_up(
            begun.signed,
            Message({**begun.planned.initial.to_message(), **begun.planned.apart}),
            self.layout.to_json(),
            begun.weights,
        )
        if begun.authority is None:
            return
        asked = self.aggregator.enrolment()
        if asked:
            self.aggregator.enrolled(begun.authority.grant(asked))
        for index, request in sorted(requests.items()):
            if request:
                granted = begun.authority.enrol(index, request)
                self.participants.by_index[index].grant = granted if granted else None

    def _make_driver(self) -> None:
        self.driver = RoundDriver(
            self.method,
            self._begun.authority,
            self.aggregator,
            self.clients,
            self._account,
            leaves_on=ShieldError,
        )

    def run_round(self, number: int, nodes: Iterable[int]) -> RoundTraffic | None:
        """Run a round with the clients among these nodes; None where it was given up, which is logged with the reason.

        Raises UnreachableError: what was asked of the authority may have been answered, and the run is to be resumed.
        """
        index_of, found = self.participants.by_node, list(nodes)
        idle = self._begun.idle
        chosen = sorted({index_of[node] for node in found if node in index_of}.difference(idle))
        if len(chosen) + len(idle) < len(found):
            log(
                WARNING,
                "shieldfl: %s of %s nodes are no clients of this run, since they came after it had begun: left out",
                len(found) - len(chosen) - len(idle),
                len(found),
            )
        try:
            check_sample(len(chosen), self.method.plan)
            self._account.charge_draw(len(chosen))
            traffic = self.driver.run_round(number, chosen, self.method.plan.min_clients)
        except UnreachableError:
            raise
        except ShieldError as error:
            log(WARNING, "shieldfl: round %s was given up: %s", number, error)
            return None
        finally:
            self._account.take(self.aggregator.report())
            if self._begun.authority is not None:
                self._account.take(self._begun.authority.report())
        if not traffic.finished:
            failures = [f"client {one}: {why}" for one, why in sorted(self.clients.failures.items())]
            reason = "; ".join(failures) or "too few clients were left"
            log(WARNING, "shieldfl: round %s was given up: %s", number, reason)
            return None
        moved = self.participants.exchange.bytes_moved()
        log(
            INFO,
            "shieldfl: round %s: %s of %s clients, %s",
            number,
            len(traffic.finished),
            len(chosen),
            moved,
        )
        return traffic

    def take_model(self, arrays: ArrayRecord) -> None:
        """Begin the next round with what an app hands over, where that is another model than the newest one.

        Raises ParameterError where the server sees no model or the run has a checkpoint, and as :meth:`replace_model`
        does.
        """
        given = self.layout.model_of(arrays).kept()
        newest = self._newest() if self.sees_model else self._begun.planned.initial
        if given.to_message() == newest.to_message():
            return
        if not self.sees_model:
            raise ParameterError(
                "the app begins a round with another model than the run's, and the server sees none: begin the run "
                'with it, or set shieldfl.opener = "aggregator"'
            )
        if self._checkpoint is not None:
            raise ParameterError(
                "the app's start changes the model between rounds, and would change it twice where the run is resumed: "
                "leave shieldfl.checkpoint out"
            )
        self.replace_model(arrays)

    def replace_model(self, arrays: ArrayRecord) -> None:
        """Begin the next round with another model. Raises as :meth:`CollectingAggregator.replace_model` does."""
        self.aggregator.replace_model(self.layout.model_of(arrays))
        self.driver.model = self.aggregator.newest_model()

    @property
    def sees_model(self) -> bool:
        """Whether the server sees the model."""
        return server_sees_model(self.method)

    def model(self) -> ArrayRecord | None:
        """Return the newest model as the app's arrays; None where the server does not see one."""
        if not self.sees_model:
            return None
        model = self._newest()
        apart = self.layout.apart_from_message(self._begun.planned.apart)
        return self.layout.record_of(model.parameters, model.buffers, apart)

    def _newest(self) -> GlobalModel:
        return GlobalModel.from_message(
            self.driver.model, self.method.plan.parameters, self.method.plan.buffers
        )

    def model_content(self, index: int, kind: Kind) -> RecordDict:
        """Return what brings a client its newest model, to evaluate it, or to write it down at the end."""
        message = None
        if not self.method.clients_open and (
            kind == Kind.MODEL or self.participants.by_index[index].writes_model
        ):
            message = self.method.message_for(index, self.driver.model)
        return self.clients.content(index, kind, message)

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """What noise has cost, by what clients say that they have sent; None for a method without a delta.

        A client that was asked and has not answered is taken to have sent what others have.
        """
        return self._told.spent() if self.method.states_epsilon else None

    def privacy(self) -> str | None:
        """Say what noise has cost, for whom and against whom; None for a method without a delta."""
        spent = self.privacy_spent
        return None if spent is None else in_words(spent, self.method)

    def finish(self) -> None:
        """Bring every client what it lacks, after the last round."""
        self.clients.app_records = {}
        contents = {index: self.model_content(index, Kind.FINISH) for index in self.participants.by_index}
        self.clients.asked_all(contents, "the end of the run")
        exchange = self.participants.exchange
        log(INFO, "shieldfl: the end of the run: %s", exchange.bytes_moved())
        whole = exchange.bytes_moved(since_asked=False)
        log(INFO, "shieldfl: the whole run: %s, evaluation and set-up included", whole)

    def keep(self, state: Message | None = None) -> None:
        """Write down what it takes to go on; ``state`` is the app's strategy's. Raises DataError."""
        if self._checkpoint is None:
            self._told.keep()
            return
        key, begun, ends = self._checkpoint.key(), self._begun, self.clients.ends
        grants = {
            str(index): one.grant.to_bytes()
            for index, one in self.participants.by_index.items()
            if one.grant is not None
        }
        by_index, settings = self.participants.by_index, begun.planned.settings
        progress = Progress(
            round=self.done,
            session=begun.setup.session,
            weights=begun.weights,
            layout=self.layout.to_json(),
            is_embedded=not isinstance(begun.authority, RemoteAuthority),
            weighting=settings.weighting,
            buffers=settings.buffers,
            method_settings=begun.planned.text_of_settings,
            opener=settings.opener,
            idle=begun.idle,
            metrics=self.metrics,
            ended={index: ended for index, (ended, _) in ends.items()},
            nodes={index: one.node for index, one in by_index.items()},
            positions={index: one.position for index, one in by_index.items()},
            events=self._told.taken(),
        )
        parts = {
            **begun.parts(key),
            "aggregator": self.aggregator.state(key if self.aggregator.needs_sealing else None),
            "grants": Message(grants).to_bytes(),
            "ends": Message({str(index): end.to_bytes() for index, (_, end) in ends.items()}).to_bytes(),
            "strategy": (state or Message()).to_bytes(),
            "account": self._account.state().to_bytes(),
        }
        self._checkpoint.keep(progress, parts)
        self._told.keep()


def server_sees_model(method: Method) -> bool:
    """Say whether the server has the model that all clients have: not where clients open, or have one for a cluster."""
    return not method.clients_open and type(method).message_for is Method.message_for
