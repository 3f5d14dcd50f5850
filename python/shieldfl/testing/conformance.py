"""What every method must do, whatever it protects with: a class of tests to derive from.

:class:`SteppedRun` drives any method's steps by hand: a training that needs no torch, and messages that a
test can alter.
"""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.authority.role_state import SEALING_KEY_BYTES
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import DuplicateFrameError, ParameterError, PolicyError, ShieldError
from shieldfl.learning.local_update import LocalUpdate, StartingPoint, contraction
from shieldfl.masks import Mask
from shieldfl.methods.registry import MethodSettings, make_method, method_class
from shieldfl.privacy.events import ClearUpload, EncryptedUpload, NoisedUpload, NoiseShareUpload, OpenedSum
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.driver import RoundDriver
from shieldfl.rounds.method import EmbeddedRoles
from shieldfl.rounds.opening_rule import HISTORY
from shieldfl.rounds.plan import TELL_OPENED, FederationPlan, GlobalModel, Opener, Phase
from shieldfl.rounds.reports import Account, Reporter
from shieldfl.rounds.training_client import PUBLIC_PARTS
from shieldfl.stateful import encode_record

Train = Callable[[int, int, StartingPoint], LocalUpdate]
Messages = dict[int, Message]
Intrude = Callable[[str, CollectingAggregator, Messages], None]


@dataclass(frozen=True)
class MethodCase:
    """A method under one setting, and the model that it is tried with."""

    method: str
    settings: MethodSettings = field(default_factory=MethodSettings)
    layer_offsets: tuple[int, ...] = (0, 200, 320, 333)
    """Offsets of the model's layers; 333 parameters are no multiple of the 64 bits of a mask's word."""
    buffers: int = 5
    clients: int = 4
    tolerance: float = 0.0
    """Largest difference between parameters of two runs: noise that is added."""
    opener: Opener = None
    """Who opens sums, as in the plan."""
    fraction_bits: int = 20
    """Bits of an encrypted value behind its point: rounding alone moves a mean by half a step at most."""

    @property
    def size(self) -> int:
        return self.layer_offsets[-1]


def initial_model(size: int, buffers: int) -> GlobalModel:
    """Return a model of random numbers, always the same."""
    generator = np.random.default_rng(0)
    return GlobalModel(
        generator.normal(0.0, 0.3, size).astype(np.float32),
        generator.normal(0.0, 0.3, buffers).astype(np.float32),
    )


class _RoundClients:
    """A run's clients in one round: what they send is kept, and may be tampered with before it arrives."""

    def __init__(self, run: SteppedRun, intrude: Intrude | None) -> None:
        self._run = run
        self._intrude = intrude

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        for index in clients:
            self._run.train_client(index, round_number, participants, message_of(index))

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterator[tuple[int, bytes]]:
        run = self._run
        messages = {
            index: run.clients[index].step(phase, None if message_of is None else message_of(index))
            for index in clients
        }
        run.sent[phase] = messages
        if self._intrude is not None:
            self._intrude(phase, run.aggregator, messages)
        for index, message in messages.items():
            yield index, message.to_bytes()

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        for index in clients:
            self._run.clients[index].end_round(message_of(index))


class _KeepingDriver(RoundDriver):
    """Has a run keep what the aggregator closes a phase with, and what clients get for it."""

    run: SteppedRun

    def _reply_to_clients(
        self, phase: Phase, round_number: int, left: Sequence[int], result: Message
    ) -> Message:
        self.run.closed[phase.name] = self.run.answers[phase.name] = result
        answer = super()._reply_to_clients(phase, round_number, left, result)
        self.run.answers[phase.name] = answer
        return answer


class SteppedRun(EmbeddedRoles):
    """One method, its roles and their messages; nothing happens but what a test asks for.

    Every message, and the public set-up, is passed on as its bytes. The plan is of 100 rounds and at least
    two clients, and the server averages as FedAvg does.

    Parameters
    ----------
    case : what is tried.
    clients : how many; None for the case's.
    initial : the model before the first round; None for random numbers.
    train : makes an update of round, client and starting point.
    trained : the positions that training changes; None for what the method says.
    weights, shared_secret : as for :class:`EmbeddedRoles`.
    restarts_roles : whether every step of a role runs in a new object, restored from the state of the one
        before: what a process that ends after every message goes through.
    changes : other fields of the plan.
    """

    def __init__(
        self,
        case: MethodCase,
        *,
        clients: int | None = None,
        initial: GlobalModel | None = None,
        train: Train = contraction,
        trained: Mask | None = None,
        weights: Sequence[int] | None = None,
        shared_secret: bytes = bytes(range(32)),
        restarts_roles: bool = False,
        **changes: Any,
    ) -> None:
        self.case, model = case, initial or initial_model(case.size, case.buffers)
        parameters = model.parameters.size
        facts = {
            "clients": case.clients if clients is None else clients,
            "rounds": 100,
            "min_clients": 2,
            "server_learning_rate": 1.0,
            "parameters": parameters,
            "buffers": model.buffers.size,
            "layer_offsets": case.layer_offsets if parameters == case.size else (),
            "opener": case.opener,
        }
        plan = FederationPlan.for_weights(weights, **{**facts, **changes})
        method = make_method(case.method, case.settings, plan)
        super().__init__(method, model, weights, threads=1, shared_secret=shared_secret)
        if restarts_roles:
            for index, client in enumerate(self.clients):
                _restart_each_step(client, partial(self.new_client, index))
            _restart_each_step(self.aggregator, self.new_aggregator)
            if self.authority is not None:
                _restart_each_step(self.authority, self.new_authority)
        holder = self.aggregator if method.aggregator_has_model else self.authority
        assert holder is not None
        self.model = self.clients[0].global_model(holder.newest_model())
        """Global model, as a message brings it, or as clients that open sums have it."""
        self.starts: dict[int, StartingPoint] = {}
        """Starting point of each client's last round, by client number."""
        self.updates: dict[int, LocalUpdate] = {}
        """Update of each client's last round, by client number."""
        self.sent: dict[str, Messages] = {}
        """Messages of the last round, by phase and client number."""
        self.closed: dict[str, Message] = {}
        """The aggregator's results of the messages, by phase."""
        self.answers: dict[str, Message] = {}
        """What clients got for the results, by phase."""
        self._account = method.account()
        self._train = train
        self._trained = method.trained if trained is None else trained
        self._round = 0

    @property
    def account(self) -> Account:
        self.report_to(self._account)
        return self._account

    def settings(self) -> dict[str, object]:
        return self.method.settings(self.weights) | self.account.settings()

    @property
    def parameters(self) -> FloatVector:
        """The first client's global model's parameters, float32 (P,)."""
        model = self.method.message_for(0, self.model)
        return model.vector("parameters", np.float32, self.initial.parameters.size)

    @property
    def buffers(self) -> FloatVector:
        """The first client's global model's buffers, float32; empty if they stay local."""
        return np.frombuffer(self.method.message_for(0, self.model)["buffers"], dtype=np.float32)

    def run_round(
        self,
        participants: Iterable[int] | None = None,
        dropping: Iterable[int] = (),
        intrude: Intrude | None = None,
    ) -> None:
        """Run a round. Clients that are ``dropping`` send nothing in the last phase.

        ``intrude(phase, aggregator, messages)`` may do as it likes before the honest messages arrive, or take
        some out.
        """
        chosen = list(range(len(self.clients))) if participants is None else list(participants)
        self._round += 1
        self.sent = {}
        (*_, last) = self.method.round_phases(self.model, self._round)
        driver = self._driver(intrude)
        # The aggregator or the authority says what becomes of a round of too few.
        leaving = dict.fromkeys(dropping, last.name)
        traffic = driver.run_round(self._round, chosen, min_clients=0, leaving=leaving)
        if traffic.finished:
            self.model = self.clients[traffic.finished[0]].global_model(driver.model)

    def answer_again(self, phase: str) -> Message:
        """Return what clients get where the last round's result of a phase is closed and answered again."""
        result = self.aggregator.close(phase)
        if self.authority is None:
            return result
        if self.method.aggregator_opens:
            return self.aggregator.open(phase, self.authority.answer(phase, self.aggregator.request(phase)))
        if not self.method.clients_open:
            return self.authority.answer(phase, result)
        asked = self.aggregator.request(phase)
        return Message({**result, HISTORY: asked[HISTORY], **self.authority.answer(phase, asked)})

    def _driver(self, intrude: Intrude | None = None) -> RoundDriver:
        clients = _RoundClients(self, intrude)
        driver = _KeepingDriver(self.method, self.authority, self.aggregator, clients, self._account)
        driver.run = self
        return driver

    def train_client(self, index: int, round_number: int, participants: int, model: Message) -> None:
        start = self.clients[index].begin_round(round_number, participants, model)
        update = self._train(round_number, index, start)
        if self._trained is not None:
            frozen = ~self._trained
            frozen.scatter(frozen.gather(start.parameters), update.parameters)
        self.starts[index], self.updates[index] = start, update
        self.clients[index].finish_training(update)

    def begin_round(self, round_number: int, invited: Sequence[int] | None = None) -> Message:
        return self._driver().begin_round(round_number, invited)

    def merged(self, client: int) -> StartingPoint:
        return self.clients[client].merged_model(self.method.message_for(client, self.model))


def _restart_each_step(role: Reporter, make: Callable[[], Reporter]) -> None:
    """Have each call of a role run in a new object, restored from the state before."""
    kind: Any = type(role)
    key = secrets.token_bytes(SEALING_KEY_BYTES) if role.needs_sealing else None
    runs = False  # a step that calls another one is one step

    def restarted(name: str) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal runs
            if runs:
                return getattr(kind, name)(self, *arguments, **options)
            runs = True
            try:
                fresh = make()
                fresh.restore(kind.state(self, key), key)
                vars(self).update(vars(fresh))
                return getattr(kind, name)(self, *arguments, **options)
            finally:
                runs = False

        return step

    own = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    steps = {name: restarted(name) for name in own - vars(Reporter).keys() | {"report"}}
    role.__class__ = type(kind.__name__, (kind,), steps)


def float_spacing(*vectors: FloatVector) -> FloatVector:
    """Return the distance between neighbouring float32 numbers at the largest of magnitudes, by position."""
    largest = np.max(np.abs(vectors), axis=0).astype(np.float32)
    spacing: FloatVector = np.spacing(largest).astype(np.float64)
    return spacing


def check_facts(run: SteppedRun) -> None:
    """Check that a round went as the class says: its phases, schemes and scores."""
    method = run.method
    stated = [phase.name for phase in type(method).phases]
    phases = [phase.name for phase in method.phases_of(run.model, 1)]
    assert set(run.sent) - {TELL_OPENED.name} <= set(stated)
    assert phases == [name for name in stated if name in phases], "phases are in the order of the class"
    assert bool(method.purposes) == bool(type(method).schemes) == (run.authority is not None)
    for start in run.starts.values():
        assert start.scores in (None, method.scores)
        if start.noise is not None:
            assert type(method).trains_privately(method.name, run.case.settings.of(method.name))
        if start.synthetic or start.synthetic_share:
            assert method.synthetic_demand is not None
            assert type(method).named(method.name).takes_synthetic


def check_shares(run: SteppedRun, participants: Sequence[int]) -> None:
    """Check that each client's shares of zones sum to one, and that a method that hides all shows nothing."""
    for client in participants:
        stated = run.clients[client].disclosure
        shares = stated.shares()
        assert set(shares) == {"encrypted", "personalised", "noise", "clear"}
        assert all(0.0 <= share <= 1.0 for share in shares.values())
        assert math.isclose(sum(shares.values()), 1.0, abs_tol=1e-12)
        if run.method.hides_all:
            assert not stated.clear.count
            assert not stated.noised.count
            assert set(stated.parts) <= set(PUBLIC_PARTS)
            assert stated.buffers in ("encrypted", "local")


def check_messages(run: SteppedRun, participants: Sequence[int]) -> None:
    """Check that the last round's messages have no clear values that are stated as encrypted, or as kept.

    They are looked for as they are, in float32 and float64: what a client sends and forgets to state is
    found, and not what somebody has disguised. Parts that are stated by name to tell of the data are left
    out.
    """
    for client in participants:
        stated, trained, start = run.clients[client].disclosure, run.updates[client], run.starts[client]
        readable = set(stated.parts) - set(PUBLIC_PARTS)
        hidden = (stated.encrypted | stated.kept).to_bool() & (trained.parameters != start.parameters)
        # One float32 is in ciphertexts by chance; two neighbours, or one float64, are not.
        pairs = np.flatnonzero(hidden[:-1] & hidden[1:])
        for vector in (trained.parameters, trained.parameters - start.parameters):
            values = vector.astype(np.float32)
            forms = {values[at : at + 2].tobytes() for at in pairs}
            forms |= {value.tobytes() for value in values[hidden].astype(np.float64)}
            for phase, messages in run.sent.items():
                for name, part in messages[client].items() if client in messages else ():
                    if name not in readable:
                        content = bytes(part)
                        shown = any(form in content for form in forms)
                        assert not shown, f"{name} of phase {phase} shows values that are stated as hidden"


def check_records(run: SteppedRun, number: int, participants: Sequence[int]) -> None:
    """Check that every upload and opened sum of a round is among the events, in the zone that is stated."""
    encrypted = (EncryptedUpload, NoiseShareUpload)
    uploads = (*encrypted, NoisedUpload, ClearUpload)
    recorded = [event for event in run.account.book.all if getattr(event, "round", None) == number]
    # Introductions are of parts; the update itself is of values.
    updates = [
        one for one in recorded if isinstance(one, uploads) and getattr(one, "what", "values") == "values"
    ]
    assert {one.client for one in updates} == set(participants)
    opened = [event for event in recorded if isinstance(event, OpenedSum)]
    assert bool(opened) == any(isinstance(one, encrypted) for one in updates)
    for one in updates:
        stated = run.clients[one.client].disclosure
        zone = {
            EncryptedUpload: stated.encrypted,
            NoiseShareUpload: stated.encrypted,
            NoisedUpload: stated.noised,
            ClearUpload: stated.clear,
        }[type(one)]
        buffers = type(one) is EncryptedUpload and stated.buffers == "encrypted"
        assert zone.count or buffers


def check_costs(run: SteppedRun) -> None:
    """Check after one round: encryption gets no epsilon, and nothing that can be read costs nothing."""
    spent = run.account.spent()
    # Where the aggregator opens sums it reads them. What hides all and has an epsilon has one of its opened
    # sums.
    method = run.method
    shows = not method.hides_all or method.aggregator_opens or method.privacy_reading.unit is not None
    assert spent.rounds == 1
    assert (spent.epsilon > 0.0) == shows
    assert math.isnan(spent.epsilon) != shows
    assert math.isinf(spent.epsilon) == (spent.reason is not None)
    assert math.isnan(spent.of_noise) or spent.of_noise >= spent.if_participants_true
    assert all(isinstance(name, str) for name in run.settings())


def check_same_model(first: SteppedRun, second: SteppedRun, case: MethodCase) -> None:
    """Check that two runs have the same model: to the last bit, but for noise."""
    for one, other in ((first.parameters, second.parameters), (first.buffers, second.buffers)):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=case.tolerance)


@functools.cache
def _honest_run(case: MethodCase, rounds: int = 1) -> SteppedRun:
    run = SteppedRun(case)
    for _ in range(rounds):
        run.run_round()
    return run


class MethodConformance:
    """Tests of one method; derive a class whose name begins with Test, and say which.

    Rounds go through the driver of all federations, with roles that last and with roles restored for each
    step. A class that has many methods, or cases of its own making, overrides the fixtures ``case`` and
    ``lossless_case``.
    """

    method: ClassVar[str]
    """Name of the method."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings that differ from the method's default ones, by name."""
    lossless: ClassVar[Mapping[str, Any]] = {}
    """Further settings, by name, that lose nothing but rounding: no noise, nothing clipped or held back."""

    @pytest.fixture
    def case(self) -> MethodCase:
        return MethodCase(self.method, MethodSettings().changed(self.method, self.settings))

    @pytest.fixture
    def lossless_case(self, case: MethodCase) -> MethodCase:
        """Return the same with no loss but that of the fixed point, 20 bits behind the point."""
        return MethodCase(self.method, case.settings.changed(self.method, self.lossless))

    @pytest.fixture(params=[False, True], ids=["lasting", "restarted"])
    def restarts(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    def test_runs_that_last_and_that_restart_train_the_same_model_and_state_what_they_did(
        self, case: MethodCase
    ) -> None:
        """Shares sum to one, each upload and opened sum is an event, and no epsilon promises too much.

        No message has in the clear what its client says is hidden. Whether roles stay the same objects, or
        are new ones from the states of those before, makes no difference.
        """
        first, second = SteppedRun(case), SteppedRun(case, restarts_roles=True)
        assert np.isnan(first.account.spent().epsilon)
        for run in (first, second):
            run.account.charge_draw(case.clients)
        for number, participants in enumerate(([0, 1, 2, 3], [1, 3], [0, 1, 2]), start=1):
            first.run_round(participants)
            second.run_round(participants)
            check_facts(first)
            check_shares(first, participants)
            check_messages(first, participants)
            check_records(first, number, participants)
            if number == 1:
                check_costs(first)
        check_same_model(first, second, case)
        # Nothing is lost, or told twice, by a restart.
        one, other = first.account, second.account
        assert sorted(map(repr, one.book.all)) == sorted(map(repr, other.book.all))
        assert one.notes == other.notes
        assert not np.array_equal(first.parameters, first.initial.parameters)
        for client in range(case.clients):
            np.testing.assert_allclose(
                first.merged(client).parameters,
                second.merged(client).parameters,
                rtol=0.0,
                atol=case.tolerance,
            )

    def test_a_protection_that_loses_nothing_gives_plain_fedavg(self, lossless_case: MethodCase) -> None:
        """Three rounds end within the fixed point's rounding of plain averaging."""
        run = SteppedRun(lossless_case)
        plain = SteppedRun(
            MethodCase("fedavg", layer_offsets=lossless_case.layer_offsets), trained=run.method.trained
        )
        # Updates are equal in the first round. Each is rounded to the nearest multiple of 2^-f, so the mean
        # is off by half of that at most, and both models are rounded to float32 once.
        quantisation = 2.0 ** -(lossless_case.fraction_bits + 1)
        run.run_round()
        plain.run_round()
        spacing = float_spacing(run.parameters, plain.parameters)
        assert np.all(np.abs(run.parameters - plain.parameters.astype(np.float64)) <= quantisation + spacing)
        # From then on the training contracts what the models differ by (factor 0.9), so each round adds one
        # quantisation more and, for the training's own float32 arithmetic, a few roundings of values below 4.
        for _ in range(2):
            run.run_round()
            plain.run_round()
        roundings = 8 * np.spacing(np.float32(4.0))
        most = 3 * (quantisation + roundings)
        assert np.abs(run.parameters - plain.parameters.astype(np.float64)).max() <= most
        if run.buffers.size:
            most = 3 * (quantisation / run.method.buffer_factor + roundings)
            assert np.abs(run.buffers - plain.buffers.astype(np.float64)).max() <= most
            assert not np.array_equal(run.buffers, run.initial.buffers)

    def test_a_client_that_leaves_before_the_last_phase_is_survived(
        self, case: MethodCase, restarts: bool
    ) -> None:
        """The round is that of the others, and the client that left can come back."""
        run = SteppedRun(case, restarts_roles=restarts)
        run.run_round(dropping=[1])
        assert np.isfinite(run.parameters).all()
        check_records(run, 1, [0, 2, 3])
        run.run_round()
        assert np.isfinite(run.parameters).all()
        check_records(run, 2, [0, 1, 2, 3])

    def test_asking_for_a_result_again_gives_it_again(self, case: MethodCase, restarts: bool) -> None:
        """Messages, results and answers that were lost are repeated as they were, and cost nothing more."""
        run = SteppedRun(case, restarts_roles=restarts)
        run.run_round()
        *_, last = run.closed
        assert run.aggregator.close(last) == run.closed[last]
        assert run.answer_again(last) == run.answers[last]
        if run.authority is not None and not run.method.clients_open:
            assert run.answers[last] == run.model
        spent = repr(run.account.spent())
        previous = [*run.answers][-2:-1]
        answer = run.method.message_for(0, run.answers[previous[0]]) if previous else None
        assert run.clients[0].step(last, answer) == run.sent[last][0]
        assert repr(run.account.spent()) == spent
        run.run_round()
        check_same_model(run, _honest_run(case, rounds=2), case)

    def test_messages_that_are_not_for_now_are_refused_and_change_nothing(
        self, case: MethodCase, restarts: bool
    ) -> None:
        """A message twice, of an unknown client or phase, of another round, or too late."""
        run = SteppedRun(case, restarts_roles=restarts)
        phases = run.method.phases_of(run.model, 1)

        def intrude(phase: str, aggregator: Any, messages: dict[int, Message]) -> None:
            message = messages[0]
            other = Message({**message, "round": Message.from_number(7)})
            with pytest.raises(PolicyError):
                aggregator.receive(phase, 0, other)
            with pytest.raises(ParameterError):
                aggregator.receive(phase, case.clients, message)
            with pytest.raises(PolicyError):
                aggregator.receive("no such phase", 0, message)
            with pytest.raises(ParameterError):
                aggregator.begin_phase("no such phase", 1, None)
            if phase == phases[-1].name:
                aggregator.receive(phase, 0, messages.pop(0))
                with pytest.raises(DuplicateFrameError):
                    aggregator.receive(phase, 0, message)

        run.run_round(intrude=intrude)
        check_same_model(run, _honest_run(case), case)
        *_, last = run.closed
        with pytest.raises((PolicyError, DuplicateFrameError)):
            run.aggregator.receive(last, 0, run.sent[last][1])

    def test_a_used_role_takes_a_state_whole_or_not_at_all(self, case: MethodCase) -> None:
        """Back from a later step, and unchanged by a state that is refused."""
        run, key = SteppedRun(case), bytes(SEALING_KEY_BYTES)

        def contents(role: Any) -> bytes:
            return bytes(encode_record(role.changed(), role.clock.seconds()))

        def check(role: Any, state: bytes, before: bytes) -> None:
            own, later = key if role.needs_sealing else None, contents(role)
            assert later != before
            with pytest.raises(ShieldError):
                role.restore(state[:-1] + bytes([state[-1] ^ 1]), own)
            assert contents(role) == later
            role.restore(state, own)
            assert contents(role) == before

        def go_back(phase: str, aggregator: Any, messages: dict[int, Message]) -> None:
            state, before = aggregator.state(key if aggregator.needs_sealing else None), contents(aggregator)
            aggregator.receive(phase, 0, messages[0])
            check(aggregator, state, before)

        run.run_round(intrude=go_back)
        check_same_model(run, _honest_run(case), case)
        roles = [run.clients[0], run.aggregator, *([] if run.authority is None else [run.authority])]
        states = [(role.state(key if role.needs_sealing else None), contents(role)) for role in roles]
        run.run_round()
        for role, (state, before) in zip(roles, states, strict=True):
            check(role, state, before)

    def test_a_client_sends_what_it_trained_in_a_round_that_is_large_enough(
        self, case: MethodCase, restarts: bool
    ) -> None:
        """It refuses a round of too few, an update of another round, and to send before it has trained."""
        run = SteppedRun(case, restarts_roles=restarts)
        client, first = run.clients[0], run.method.message_for(0, run.begin_round(1))
        with pytest.raises(PolicyError):
            client.begin_round(1, 1, first)
        start = client.begin_round(1, case.clients, first)
        (phase, *_) = run.method.phases_of(run.model, 1)
        with pytest.raises(ParameterError):
            client.step(phase.name, None)
        stale = client.merged_model(run.method.message_for(0, run.model))
        with pytest.raises(PolicyError):
            client.finish_training(contraction(1, 0, stale))
        with pytest.raises(ParameterError):
            client.step("no such phase", None)
        client.finish_training(contraction(1, 0, start))
        assert client.step(phase.name, None).number("round") == 1

    def test_the_schemes_that_the_class_names_are_those_that_it_takes(self, case: MethodCase) -> None:
        """Settings choose among them, or there is no choice; others are refused before a key is made."""
        plan = SteppedRun(case).method.plan
        schemes = method_class(case.method).schemes
        if not hasattr(case.settings.of(case.method), "encryption"):
            assert len(schemes) <= 1, "which of several schemes it takes is no setting"
            return
        for name in encryptions():
            if schemes and name not in schemes:
                with pytest.raises(ParameterError):
                    make_method(case.method, case.settings.changed(case.method, {"encryption": name}), plan)
            else:
                settings = case.settings.changed(case.method, {"encryption": name})
                assert ("update" in make_method(case.method, settings, plan).purposes) == bool(schemes)
