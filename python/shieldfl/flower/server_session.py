"""The server's side of one protected run: its roles, and how it begins, goes round by round, and resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal

import msgspec
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from shieldfl.authority.message import Message
from shieldfl.authority.role_state import RunFolder
from shieldfl.authority.round_key_check import SESSION_BYTES
from shieldfl.authority_service.authority_client import (
    AuthorityClient,
    AuthorityConnection,
    RemoteAuthority,
    SeveralAuthorities,
)
from shieldfl.authority_service.certificates import CertificateFiles, client_tls
from shieldfl.authority_service.served_session import SessionRequest
from shieldfl.errors import (
    DataError,
    ParameterError,
    PolicyError,
    ShieldError,
    UnreachableError,
    WireFormatError,
)
from shieldfl.flower.clients import GridClients, Participant, ToldEvents, check_sample
from shieldfl.flower.records import Kind, RecordLayout
from shieldfl.flower.settings import FederationSettings, listed
from shieldfl.methods.registry import MethodSettings, make_method, method_of
from shieldfl.privacy.book import PrivacySpent
from shieldfl.privacy.events import OpenedSum
from shieldfl.quantities import epsilon_text
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.driver import RoundDriver
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan, GlobalModel, PublicSetup
from shieldfl.settings import plain_settings

_MOST_SKEW = 2.0
"""Largest ratio of the largest weight to the mean at which the mean keeps its precision.

Its binary logarithm is the number of bits by which values get longer, at some percent of bytes each. A larger
skew costs the mean precision instead. A ``most-weight`` above all weights costs further bits.
"""

_VERY_MANY = 10**6
_OF_ONE_PROCESS = ("checkpoint", "resume", "threads")
"""Beginnings of names of settings that, like those of the authority, may differ when a run is resumed."""


@dataclass(frozen=True)
class PlannedRun:
    settings: FederationSettings
    method_settings: MethodSettings
    rounds: int
    layout: RecordLayout
    initial: GlobalModel
    apart: Message

    @classmethod
    def of(
        cls, settings: FederationSettings, method_settings: MethodSettings, arrays: ArrayRecord, rounds: int
    ) -> PlannedRun:
        layout = RecordLayout.of(arrays, settings.buffers)
        apart = layout.apart_to_message(layout.apart_of(arrays))
        return cls(settings, method_settings, rounds, layout, layout.model_of(arrays).kept(), apart)

    @cached_property
    def method_of_equals(self) -> Method:
        """The method if all clients count alike; opener and knowledge of weights are the same otherwise.

        The number of samples is not known by then; a delta that follows from it is that of very many.
        """
        return self.method(samples=_VERY_MANY)

    @property
    def counts_samples(self) -> bool:
        return self.settings.weighting == "samples" and not self.method_of_equals.weighs_all_alike

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that a run keeps, in JSON's types, the method's too: all but where and how it runs."""
        settings = plain_settings(self.settings)
        kept = {
            name: value
            for name, value in settings.items()
            if not name.startswith(("authority", *_OF_ONE_PROCESS))
        }
        own = plain_settings(self.method_settings.of(self.settings.method))
        return {**kept, "rounds": self.rounds, "the method's own settings": json.dumps(own, sort_keys=True)}

    def first_training(self) -> Message:
        """Return what clients need to train from the first model, and know what for, before any signature."""
        method, digest = self.method_of_equals, self.initial.digest
        preview = PublicSetup(method.name, method.own_settings, method.plan, digest, bytes(SESSION_BYTES))
        return Message({"planned": preview.to_bytes(), **self.initial.to_message(), **self.apart})

    def weights(self, samples: Sequence[int | None]) -> tuple[list[int], list[int]]:
        if not self.counts_samples:
            return [1] * self.settings.clients, []
        counted = [one for one in samples if one is not None]
        idle = [index for index, one in enumerate(counted) if one == 0]
        if len(idle) == len(counted):
            raise ParameterError("no client has any samples: there is nothing to train on")
        return [max(one, 1) for one in counted], idle

    def method(self, weights: Sequence[int] | None = None, samples: int | None = None) -> Method:
        settings, initial = self.settings, self.initial
        plan = FederationPlan.for_weights(
            weights,
            clients=settings.clients,
            rounds=self.rounds,
            min_clients=settings.min_clients,
            server_learning_rate=settings.server_learning_rate,
            parameters=initial.parameters.size,
            buffers=initial.buffers.size,
            layer_offsets=self.layout.layout.offsets,
            samples=samples,
            opener=settings.opener or "aggregator",
            max_clients=settings.max_clients,
            layout_digest=self.layout.digest(self.apart),
        )
        plan = replace(plan, mean_weight=max(plan.mean_weight, plan.most_weight / _MOST_SKEW))
        if settings.most_weight is not None and weights is not None and self.counts_samples:
            plan = replace(plan, most_weight=settings.most_weight)
        method = make_method(settings.method, self.method_settings, plan)
        if settings.opener is None and not method.aggregator_opens:
            method = make_method(settings.method, self.method_settings, replace(plan, opener=None))
        method.check_opener()
        if method.needs_shared_secret and not method.clients_open:
            raise ParameterError(
                f"clients of {method.name} share a secret, which they are granted where they open sums: "
                "leave shieldfl.opener out"
            )
        return method

    def same_method(self, method: Method, progress: Progress) -> Method:
        """Return a run's method as its settings make it: the set-up does not say which budget it has."""
        other = [name for name, given in self.identity.items() if progress.identity.get(name) != given]
        if other:
            raise PolicyError(
                f"the checkpoint is of a run that differs in {', '.join(other)}: "
                "a resumed run keeps the settings that it began with"
            )
        return make_method(method.name, self.method_settings, method.plan)


@dataclass(frozen=True)
class Progress:
    round: int
    session: bytes
    weights: list[int]
    layout: str
    is_embedded: bool
    """Whether the key authority is in the server's process."""
    identity: dict[str, Any]
    idle: list[int]
    metrics: dict[int, dict[str, dict[str, Any]]]
    clients: dict[int, Participant]
    events: dict[int, int]
    """Number of privacy events in the account, by client number."""
    format: Literal["shieldfl checkpoint 3"] = "shieldfl checkpoint 3"

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def kept_in(cls, checkpoint: RunFolder) -> tuple[Progress, Message]:
        if not checkpoint.is_begun:
            raise DataError(
                f"there is no checkpoint in {checkpoint.folder}: begin the run without shieldfl.resume"
            )
        message = checkpoint.read()
        try:
            # To the encoder a role's message is a dict, which it asks no hook for.
            progress = msgspec.msgpack.decode(
                message["progress"], type=cls, dec_hook=lambda kind, parts: kind(parts)
            )
        except msgspec.MsgspecError as error:
            raise WireFormatError("the checkpoint comes from another version of shieldfl") from error
        return progress, message


class ServerSession:
    """Aggregator, driver and clients of a run, and the key authority, here or where it is served.

    Made by :meth:`begin` and :meth:`resume`. ``signed`` is the set-up as clients get it; clients that are
    ``idle`` have no samples: they count for nothing, and so are in no round.
    """

    def __init__(
        self,
        planned: PlannedRun,
        method: Method,
        signed: Message,
        authority: AuthoritySteps | RemoteAuthority | None,
        weights: list[int],
        idle: list[int],
        clients: GridClients,
        checkpoint: RunFolder | None,
    ) -> None:
        self.planned, self._signed, self._authority = planned, signed, authority
        self._weights, self._idle, self._checkpoint = weights, idle, checkpoint
        self.method, self.clients, self.layout = method, clients, planned.layout
        self._account = method.account()
        if method.synthetic_demand is not None:
            self._account.note_given_synthetic_data()
        setup = PublicSetup.trusted(bytes(signed["setup"]))
        self.aggregator = method.aggregator_steps(
            setup,
            weights,
            initial=planned.initial if method.aggregator_has_model else None,
            threads=planned.settings.threads,
        )
        self._told = ToldEvents(self._account, method.privacy_reading.unit, method.plan.rounds)
        clients.told, clients.aggregator, clients.clients_open = (
            self._told,
            self.aggregator,
            method.clients_open,
        )
        clients.session = setup.session
        self.strategy_state = Message()
        self.done = 0
        """Last round that ended, or was given up; 0 before the first."""
        self.metrics: dict[int, dict[str, dict[str, Any]]] = {}

    @classmethod
    def begin(
        cls,
        grid: Grid,
        timeout_seconds: float,
        planned: PlannedRun,
        connection: AuthorityConnection | None,
        count_samples: Callable[[GridClients], None],
    ) -> ServerSession:
        """Find the clients, begin a session at the key authority, have all take it and enrol.

        ``count_samples`` counts the samples of clients that do not state them. Raises PolicyError if a client
        or the authority refuses, UnreachableError, ParameterError; TimeoutError for clients that do not come.
        """
        settings = planned.settings
        checkpoint = None if settings.checkpoint is None else RunFolder(Path(settings.checkpoint))
        if checkpoint is not None and checkpoint.is_begun:
            raise PolicyError(
                f"there is a checkpoint in {checkpoint.folder}: resume it with shieldfl.resume = true, or "
                "name another folder"
            )
        clients = GridClients(grid, timeout_seconds, _nodes_in(checkpoint))
        clients.find(settings.clients)
        if planned.counts_samples and clients.silent:
            count_samples(clients)
        samples = [clients.by_index[index].samples for index in range(settings.clients)]
        weights, idle = planned.weights(samples)
        method = planned.method(weights, sum(filter(None, samples)) if all(samples) else None)
        authority: AuthoritySteps | RemoteAuthority | None
        if connection is not None and method.purposes:
            authority = connection.begin_session(SessionRequest(method, planned.initial))
            signed = authority.signed_setup
        else:
            authority, setup = method.authority_setup(planned.initial, threads=settings.threads)
            signed = Message({"setup": setup.to_bytes()})
        session = cls(planned, method, signed, authority, weights, idle, clients, checkpoint)
        session._enrol()
        session.keep()
        log(INFO, "shieldfl: set-up: %s clients, %s", settings.clients, clients.bytes_moved())
        return session

    def _enrol(self) -> None:
        brought = Message({**self.planned.initial.to_message(), **self.planned.apart})
        requests = self.clients.set_up(self._signed, brought, self.layout.to_json(), self._weights)
        if self._authority is None:
            return
        asked = self.aggregator.enrolment()
        if asked:
            self.aggregator.enrolled(self._authority.grant(asked))
        for index, request in sorted(requests.items()):
            if request:
                self.clients.by_index[index].grant = self._authority.enrol(index, request) or None

    @classmethod
    def resume(
        cls, grid: Grid, timeout_seconds: float, planned: PlannedRun, connection: AuthorityConnection | None
    ) -> ServerSession:
        settings = planned.settings
        assert settings.checkpoint is not None
        checkpoint = RunFolder(Path(settings.checkpoint))
        progress, parts = Progress.kept_in(checkpoint)
        signed, key = Message.from_bytes(parts["signed"]), checkpoint.key()
        setup = PublicSetup.trusted(bytes(signed["setup"]))
        method, plan = planned.same_method(method_of(setup), progress), setup.plan
        first = Message.from_bytes(parts["initial"])
        initial = GlobalModel.from_message(first, plan.parameters, plan.buffers).kept()
        authority: AuthoritySteps | RemoteAuthority | None = None
        if method.purposes and progress.is_embedded:
            authority = method.authority_steps(setup, initial, threads=settings.threads)
            authority.restore(parts["authority"], key)
        elif method.purposes:
            if connection is None:
                raise ParameterError("the run began with a served key authority: set shieldfl.authority")
            authority = connection.session(bytes(parts["authority"]))
        layout, apart = RecordLayout.from_json(progress.layout), Message.from_bytes(parts["apart"])
        planned = replace(planned, layout=layout, initial=initial, apart=apart)
        clients = GridClients(
            grid, timeout_seconds, _nodes_in(checkpoint), progress.session, progress.clients
        )
        clients.find(settings.clients)
        session = cls(
            planned, method, signed, authority, progress.weights, progress.idle, clients, checkpoint
        )
        aggregator, account = session.aggregator, session._account
        aggregator.restore(parts["aggregator"], key if aggregator.needs_sealing else None)
        session.done, session.metrics = progress.round, progress.metrics
        account.restore(parts["account"])
        session._told.restore(progress.events, clients.by_index, session.done + 1)
        if method.states_epsilon and method.purposes and session.done < plan.rounds:
            # It may have been opened before the run was cut off; run again, it is told once more.
            account.book.add(OpenedSum(session.done + 1))
        session.strategy_state = Message.from_bytes(parts["strategy"])
        log(INFO, "shieldfl: the run resumes after round %s", session.done)
        return session

    def keep(self, state: Message | None = None) -> None:
        if self._checkpoint is not None:
            key, planned, authority = self._checkpoint.key(), self.planned, self._authority
            progress = Progress(
                round=self.done,
                session=self.clients.session,
                weights=self._weights,
                layout=self.layout.to_json(),
                is_embedded=not isinstance(authority, RemoteAuthority),
                identity=planned.identity,
                idle=self._idle,
                metrics=self.metrics,
                clients=self.clients.by_index,
                events=self._told.taken,
            )
            parts = {
                "progress": progress.to_bytes(),
                "signed": self._signed.to_bytes(),
                "initial": planned.initial.to_message().to_bytes(),
                "apart": planned.apart.to_bytes(),
                "aggregator": self.aggregator.state(key if self.aggregator.needs_sealing else None),
                "strategy": (state or Message()).to_bytes(),
                "account": self._account.state(),
            }
            if isinstance(authority, RemoteAuthority):
                parts["authority"] = authority.session_id
            elif authority is not None:
                parts["authority"] = authority.state(key)
            self._checkpoint.write(Message(parts))
        self._told.keep()

    @cached_property
    def driver(self) -> RoundDriver:
        """The driver of rounds, once all clients have enrolled, or the aggregator is restored."""
        roles = self._authority, self.aggregator, self.clients
        return RoundDriver(self.method, *roles, self._account, leaves_on=ShieldError)

    @property
    def weighted_by(self) -> str:
        if not self.planned.counts_samples:
            knows_none = f"{self.method.name} knows no weights"
            why = knows_none if self.method.weighs_all_alike else "shieldfl.weighting is uniform"
            return f"all clients count alike, since {why}"
        counted = [one for index, one in enumerate(self._weights) if index not in self._idle]
        words = f"clients count by their samples, {min(counted):,} to {max(counted):,}"
        if self._idle:
            who = ", ".join(map(str, self._idle))
            words += f"; clients without samples, which count for nothing, are in no round: {who}"
        return words

    def run_round(self, number: int, nodes: Collection[int]) -> list[int]:
        """Run a round with the clients among these nodes; return those that it ended for.

        None are returned if it was given up, which is logged with the reason.

        Raises UnreachableError: what was asked of the authority may have been answered, and the run is to be
        resumed.
        """
        index_of = self.clients.by_node
        chosen = sorted({index_of[node] for node in index_of.keys() & set(nodes)}.difference(self._idle))
        late = len(nodes) - len(chosen) - len(self._idle)
        if late > 0:
            left_out = "no clients of this run, since they came after it had begun: left out"
            log(WARNING, "shieldfl: %s of %s nodes are %s", late, len(nodes), left_out)
        reason = ""
        try:
            check_sample(len(chosen), self.method.plan)
            self._account.charge_draw(len(chosen))
            traffic = self.driver.run_round(number, chosen, self.method.plan.min_clients)
            if not traffic.finished:
                failures = [f"client {one}: {why}" for one, why in sorted(self.clients.failures.items())]
                reason = "; ".join(failures) or "too few clients were left"
        except UnreachableError:
            raise
        except ShieldError as error:
            reason = str(error)
        finally:
            self._account.take(self.aggregator.report())
            if self._authority is not None:
                self._account.take(self._authority.report())
        if reason:
            log(WARNING, "shieldfl: round %s was given up: %s", number, reason)
            return []
        moved, finished = self.clients.bytes_moved(), traffic.finished
        log(INFO, "shieldfl: round %s: %s of %s clients, %s", number, len(finished), len(chosen), moved)
        return finished

    def told(self, number: int, kind: str) -> MetricRecord | None:
        """Return clients' metrics of a round that was done before; None if it has none."""
        found = self.metrics.get(number, {}).get(kind)
        return None if found is None else MetricRecord(found)

    def take_model(self, arrays: ArrayRecord) -> None:
        """Begin the next round with the model that an app hands over, if it is not the newest one."""
        newest = self._newest() if server_sees_model(self.method) else self.planned.initial
        if self.layout.model_of(arrays).kept().to_message() == newest.to_message():
            return
        if not server_sees_model(self.method):
            raise ParameterError(
                "the app begins a round with another model than the run's, and the server sees none: begin "
                'the run with it, or set shieldfl.opener = "aggregator"'
            )
        if self._checkpoint is not None:
            raise ParameterError(
                "the app's start changes the model between rounds, and would change it twice where the run "
                "is resumed: leave shieldfl.checkpoint out"
            )
        self.replace_model(arrays)

    def replace_model(self, arrays: ArrayRecord) -> None:
        self.aggregator.replace_model(self.layout.model_of(arrays))
        self.driver.model = self.aggregator.newest_model()

    def model(self) -> ArrayRecord | None:
        apart = self.layout.apart_from_message(self.planned.apart)
        return self.layout.record_of(self._newest(), apart) if server_sees_model(self.method) else None

    def _newest(self) -> GlobalModel:
        plan = self.method.plan
        return GlobalModel.from_message(self.driver.model, plan.parameters, plan.buffers)

    def model_content(self, index: int, kind: Kind) -> RecordDict:
        needs_model = kind == "model" or self.clients.by_index[index].writes_model
        is_sent = needs_model and not self.method.clients_open
        message = self.method.message_for(index, self.driver.model) if is_sent else None
        return self.clients.content(index, kind, message)

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """What noise has cost, by what clients say that they have sent; None for a method without a delta."""
        return self._told.spent() if self.method.states_epsilon else None

    def finish(self) -> None:
        self.clients.app_records = {}
        contents = {index: self.model_content(index, "finish") for index in self.clients.by_index}
        self.clients.asked_all("finish", contents, "the end of the run")
        clients, spent = self.clients, self.privacy_spent
        log(INFO, "shieldfl: the end of the run: %s", clients.bytes_moved())
        whole = f"{clients.bytes_up:,} bytes up, {clients.bytes_down:,} bytes down"
        log(INFO, "shieldfl: the whole run: %s, evaluation and set-up included", whole)
        if spent is not None:
            reading, epsilon = self.method.privacy_reading, epsilon_text(spent.epsilon)
            whom = f"for a {reading.unit} ({reading.neighbours}), against {self.method.adversary}"
            why = spent.reason or f"the noise alone was charged {epsilon_text(spent.of_noise)}"
            log(
                INFO,
                "shieldfl: ε = %s at δ = %g, %s; %s; %s",
                epsilon,
                spent.delta,
                whom,
                why,
                reading.meaning,
            )


def authority_connection(settings: FederationSettings) -> AuthorityConnection | None:
    """Return the connection to the key authority; None if there is none. Raises ParameterError, DataError."""
    if settings.authority is None:
        return None
    given = settings.authority, settings.authority_key, settings.authority_tls
    each = [listed(one or "") for one in given]
    if len({len(one) for one in each}) > 1:
        raise ParameterError(
            "each key authority needs an address, a key and a folder: list equally many in "
            "shieldfl.authority, shieldfl.authority-key and shieldfl.authority-tls, in the same order"
        )
    clients = []
    for address, key, folder in zip(*each, strict=True):
        files = CertificateFiles.in_folder(Path(folder), settings.authority_name)
        # A service that is started again takes seconds, and a round waits for it.
        clients.append(AuthorityClient(address, client_tls(files), key, attempts=10))
    return clients[0] if len(clients) == 1 else SeveralAuthorities(clients)


def _nodes_in(checkpoint: RunFolder | None) -> str:
    """Return the folder that simulated nodes keep their stores in, so that the run can be resumed."""
    return "" if checkpoint is None else str(checkpoint.folder.absolute() / "nodes")


def server_sees_model(method: Method) -> bool:
    """Say whether the server has the model that all clients have: not if they open, or have a cluster's."""
    return not method.clients_open and type(method).message_for is Method.message_for
