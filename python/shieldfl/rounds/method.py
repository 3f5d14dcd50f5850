"""The interface of a method, what its class says of its names, and all of its roles in one process."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import SESSION_BYTES, RoundKeyCheck, digest_of_parts
from shieldfl.authority.total_opener import GrantedKeys
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.masks import Mask
from shieldfl.privacy.events import PrivacyReading
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.opening_rule import OpenedTogether, OpeningRule
from shieldfl.rounds.plan import (
    TELL_OPENED,
    FederationPlan,
    GlobalModel,
    Phase,
    PublicSetup,
    RoleContext,
    SyntheticDemand,
    check_sizes,
    checked_weights,
    stated_weights,
)
from shieldfl.rounds.reports import Account, Reporter
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.settings import TrainingSettings, plain_settings

if TYPE_CHECKING:
    from torch import nn

    from shieldfl.authority.authority_secrets import JointKeys
    from shieldfl.authority.authority_store import AuthorityStore
    from shieldfl.authority.round_keys import MakePair, RoundSigner
    from shieldfl.rounds.authorities import AuthoritySteps

__all__ = ["Masks", "Method", "NamedMethod", "check_declarations", "naming_own_method"]

Masks = Literal["nothing", "everything", "one share", "budgets"]
"""How much clients encrypt: nothing, everything, one share for all, or a share by each one's budget."""


@dataclass(frozen=True)
class NamedMethod:
    """One name of a method's class, with what readers and runs need to know; a class may have several."""

    name: str
    """Name on the command line, in small letters and hyphens."""
    sends: str
    """What leaves a client, in a few words."""
    purpose: str
    """Purpose of the method, in a few words."""
    source: str
    """The paper with its section, equation or algorithm, or what replaces one."""
    settings: Any = None
    """Default settings, a frozen dataclass whose values can be hashed; None for a method without settings."""
    takes_synthetic: bool = False
    """Whether some settings make rounds train on synthetic data."""
    masks: Masks | None = None
    """How much of its update each client encrypts, for simulations of fleets; None if it is not simulated."""
    masks_each_round: bool = False
    """Whether clients score, select and send a mask in every round, for simulations of fleets."""


def check_declarations(name: str, method: Any) -> None:
    """Raise ParameterError unless a class declares its names, with settings, and what it shows.

    The class itself must say how to read its epsilon and what the aggregator sees: inherited texts describe
    another method, and nothing is called encrypted, or private, by default.
    """
    own = vars(method)
    names = {one.name: one for one in own.get("names", ()) if isinstance(one, NamedMethod)}
    if name not in names:
        raise ParameterError(
            f"{method.__name__} says nothing of the name {name!r}: declare names on the class itself, with a "
            "NamedMethod of it"
        )
    settings = names[name].settings
    try:
        hash(settings)
    except TypeError:
        raise ParameterError(
            f"{type(settings).__name__} cannot be hashed: make it a frozen dataclass, with tuples in place "
            "of lists, and without dictionaries and arrays"
        ) from None
    if not isinstance(own.get("privacy_reading"), PrivacyReading):
        raise ParameterError(
            f"{method.__name__} does not say how its epsilon is to be read: declare privacy_reading on the "
            "class itself"
        )
    sees = own.get("aggregator_sees")
    if not isinstance(sees, str) or not sees.strip():
        raise ParameterError(
            f"{method.__name__} does not say what the aggregator sees: declare aggregator_sees on the class "
            "itself"
        )


@contextmanager
def naming_own_method(name: str, kind: type, *, refuses: bool = False) -> Iterator[None]:
    """Add the method's name to errors of another package's method; errors of this package's pass unchanged.

    An error of shieldfl has it in its message, any other one in a note below its traceback. With ``refuses``,
    before anything runs, any other one becomes a ParameterError.
    """
    try:
        yield
    except Exception as error:
        if kind.__module__.partition(".")[0] == "shieldfl":
            raise
        whose = f"the method {name!r}, {kind.__module__}:{kind.__qualname__}"
        if isinstance(error, ShieldError):
            if whose not in str(error):
                error.args = (f"{whose}: {error}",)
        elif refuses:
            raise ParameterError(f"{whose}: {type(error).__name__}: {error}") from error
        elif whose not in getattr(error, "__notes__", ()):
            error.add_note(whose)
        raise


_IN_WORDS = {
    None: "nobody",
    "aggregator": "the aggregator",
    "authority": "the key authority",
    "clients": "each client",
}

_NO_SECRET = bytes(32)
"""Zero bytes instead of the shared secret of a client that only enrols."""


class Method:
    """A method in one federation: it makes the roles, and holds no key, model or changing state.

    A method's class is called with the method's name, its settings (None if it has none) and the plan. Each
    class that is found by a name declares its names, how to read its figures and what the aggregator sees:
    texts of a base class describe another method.
    """

    names: ClassVar[tuple[NamedMethod, ...]] = ()
    """Names under which the method is found, with the facts of each; empty for a base class."""
    privacy_reading: PrivacyReading
    """How to read the method's epsilon, if it has one: for whom, against whom, between which neighbours.

    The class has the reading under its default settings; see ``reading_with``.
    """
    aggregator_sees: str
    """What the aggregator can read, in words; the class has the text for its default settings."""

    weighs_all_alike: bool = False
    """Whether clients count alike, whatever their weights."""
    why_alike: str = ", whatever their weights"
    """End of the note that all clients count alike, which is made if weights may differ."""
    schemes: ClassVar[tuple[str, ...]] = ()
    """Encryptions that updates can have, by names in the registry; empty for a method without keys."""
    averages_all: ClassVar[bool] = True
    """Whether the result is the weighted mean of all updates, up to rounding, if no noise is added."""
    hides_all: bool = False
    """Whether clients send nothing but ciphertexts and the parts in :data:`PUBLIC_PARTS`."""
    clients_keep_nothing: ClassVar[bool] = False
    """Whether what a client sends in a round follows from its data and the model that it gets alone.

    Then it does not depend on the client's earlier rounds. That describes the method, whatever the model
    keeps. Only then is there an epsilon against outsiders alone.
    """

    scores: str | None = None
    """Scores that training must compute in rounds that ask, see ``StartingPoint.scores``; None for none."""
    synthetic_demand: SyntheticDemand | None = None
    """Synthetic data set that rounds train on; None if no round trains on synthetic data."""
    trained: Mask | None = None
    """Which of the P parameters training changes; None for all."""
    buffer_factor: float = 1.0
    """Factor of buffers before they are encrypted, a power of two."""
    interleaving: Fraction | None = None
    """Share of rounds of the second of two kinds; None if all rounds are alike."""
    delta: float = math.nan
    """Delta of the method's epsilon; NaN for a method without noise."""

    clients_can_open: bool = False
    """Whether each client can compute the model itself, so that no other role needs to know opened sums."""
    needs_shared_secret: ClassVar[bool] = False
    """Whether clients and key authority share a secret, which the maker of the federation draws."""

    phases: tuple[Phase, ...]
    """All phases that a round may have, in order; settings may omit some of the class's."""
    purposes: Mapping[str, SchemeParameters[Any]] = MappingProxyType({})
    """Parameters of encryption by a sum's purpose, ``"update"`` among them; empty for a method without
    keys."""

    shares_buffers: bool = True
    """Whether the global model has the model's buffers; otherwise each client keeps its own."""
    client_kind: Callable[..., TrainingClient]
    """Makes a client from method, context, index, weight and initial model."""
    aggregator_kind: Callable[..., CollectingAggregator]
    """Makes the aggregator from method, context and weights."""
    rule_kind: Callable[..., OpeningRule]
    """Makes the rule for opened sums from method, context and first model; unset for a method without
    keys."""

    def __init__(self, name: str, settings: Any, plan: FederationPlan) -> None:
        self.name = name
        self.plan = plan
        self.notes: list[str] = []
        """Remarks that a reader of the results needs before the first round."""
        self.own = settings
        self.own_settings = plain_settings(settings)
        """Settings as plain data, as in a public set-up; empty for a method without settings."""
        if self.weighs_all_alike and plan.most_weight > 1:
            self.notes.append(f"{name} weighs all clients alike{self.why_alike}")

    @property
    def states_epsilon(self) -> bool:
        return not math.isnan(self.delta)

    @classmethod
    def named(cls, name: str) -> NamedMethod:
        return next(one for one in cls.names if one.name == name)

    @classmethod
    def trains_privately(cls, name: str, settings: Any) -> bool:
        """Say whether any round trains by DP-SGD: not on a model that mixes samples."""
        return False

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str | None:
        """Say why sums cannot have noise, as what follows the method's name; None where they can."""
        if hasattr(cls.named(name).settings, "asked_noise"):
            return None
        return "has no setting for noise on sums: leave it out, or take full-he or ddp-fedavg"

    @classmethod
    def reading_with(cls, settings: Any) -> PrivacyReading:
        return cls.privacy_reading

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return the deviation of the noise on a noised value, without shares of a sum's noise."""
        return 0.0

    @classmethod
    def adapted(cls, model: nn.Module, settings: Any) -> nn.Module:
        """Return the module that clients train, of the same parameters; the model must not be changed."""
        return model

    @cached_property
    def enrols(self) -> bool:
        return any(scheme_of(own).enrols for own in self.purposes.values())

    @property
    def aggregator_can_open(self) -> bool:
        return self.enrols and self.clients_can_open and not self.needs_shared_secret

    @cached_property
    def opener(self) -> str | None:
        """The role that opens sums, also where the plan leaves it open; None for a method without keys."""
        if not self.purposes:
            return None
        if self.plan.opener == "aggregator" and self.aggregator_can_open:
            return "aggregator"
        by_clients = self.plan.opener in (None, "clients") and self.enrols and self.clients_can_open
        return "clients" if by_clients else "authority"

    @property
    def clients_open(self) -> bool:
        return self.opener == "clients"

    @property
    def aggregator_opens(self) -> bool:
        """Whether the aggregator alone opens sums. It then has the model, and begins rounds with it."""
        return self.opener == "aggregator"

    @property
    def aggregator_has_model(self) -> bool:
        """Whether rounds begin with the aggregator's model: where it opens sums, or where nobody has keys."""
        return self.opener in ("aggregator", None)

    @property
    def opened_by(self) -> str:
        return _IN_WORDS[self.opener]

    def check_opener(self) -> None:
        if self.plan.opener in (None, "authority", self.opener):
            return
        if self.plan.opener == "clients":
            raise ParameterError(
                f'clients of {self.name} cannot open sums as it is set: take opener = "authority", or '
                "another scheme"
            )
        why = "without the secret that clients keep from it" if self.needs_shared_secret else "as it is set"
        raise ParameterError(
            f'the aggregator of {self.name} cannot open sums {why}: take opener = "authority" or "clients"'
        )

    def signs_answer(self, phase: Phase) -> bool:
        """Whether the key authority signs the answer to a phase: not where each client works it out."""
        signs = phase.answered_by_authority and phase.signs_answer and phase != self.phases[-1]
        return signs and not self.clients_open

    def _with_opened(self, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        if not self.clients_open:
            return phases
        found: list[Phase] = []
        for phase in phases[:-1]:
            found += (phase, TELL_OPENED) if phase.answered_by_authority else (phase,)
        return (*found, *phases[-1:])

    @property
    def all_that_the_aggregator_sees(self) -> str:
        opened = ", and what sums open to, with the global model" if self.aggregator_opens else ""
        return self.aggregator_sees + opened

    @property
    def adversary(self) -> str | None:
        stated = self.privacy_reading.adversary
        return (
            "the aggregator, which has the model" if stated is not None and self.aggregator_opens else stated
        )

    @property
    def derived(self) -> dict[str, Any]:
        """Facts that follow from settings and plan and must be alike for all roles: ids of parameters."""
        return {f"parameters for {purpose}": one.id.hex() for purpose, one in self.purposes.items()}

    @property
    def most_weight(self) -> int:
        return 1 if self.weighs_all_alike else self.plan.most_weight

    @property
    def positions(self) -> int:
        return self.plan.update_size

    def authority_setup(
        self,
        initial: GlobalModel,
        *,
        threads: int | None = None,
        shared_secret: bytes | None = None,
        store: AuthorityStore | None = None,
        joint: JointKeys | None = None,
        make_pair: MakePair | None = None,
    ) -> tuple[AuthoritySteps | None, PublicSetup]:
        """Make the key authority, if the method has one, and the public set-up for all other roles.

        ``store`` is a new one: it holds the authority's state before anything leaves. ``joint`` is its part
        of several authorities. ``make_pair`` is for audits.
        """
        check_sizes(initial, self.plan)
        initial = initial.kept()
        public = self.name, self.own_settings, self.plan, initial.digest
        if not self.purposes:
            return None, PublicSetup(
                *public, session=secrets.token_bytes(SESSION_BYTES), derived=self.derived
            )
        if joint is not None and not (self.clients_open or self.aggregator_opens):
            raise ParameterError(
                "each of several authorities answers, and none opens sums: have clients or the aggregator "
                "open them"
            )
        keys = self._made_round_keys(threads, store, None, joint, make_pair)
        check = keys.check
        setup = PublicSetup(*public, check.session, check.verifying_key, check.enrolment_key, self.derived)
        steps = self._bound_authority(setup, initial, keys, threads, shared_secret, store)
        steps.settle(self._context(setup, threads).keys)
        return steps, setup

    def authority_steps(
        self,
        setup: PublicSetup,
        initial: GlobalModel,
        *,
        threads: int | None = None,
        shared_secret: bytes | None = None,
        store: AuthorityStore | None = None,
    ) -> AuthoritySteps:
        """Make an existing federation's key authority. Without its store, restore its state afterwards."""
        initial = setup.check_model(initial)
        if not self.purposes:
            raise ParameterError(f"{self.name} has no key authority")
        keys = self._made_round_keys(threads, store, self._context(setup, threads).keys)
        steps = self._bound_authority(setup, initial, keys, threads, shared_secret, store)
        steps.load()
        return steps

    def _made_round_keys(
        self,
        threads: int | None,
        store: AuthorityStore | None,
        check: RoundKeyCheck | None,
        joint: JointKeys | None = None,
        make_pair: MakePair | None = None,
    ) -> RoundSigner:
        """Return keys of rounds, or those shared with clients that enrol; new ones without a check."""
        from shieldfl.authority.round_keys import RoundKeys, SessionKeys  # hold secrets: only here

        plan = self.plan
        common: dict[str, Any] = {"weight_bounds": (1 / self.most_weight, 1.0), "threads": threads}
        if self.enrols:
            return SessionKeys(
                self.purposes,
                plan.min_clients,
                most_values=self.positions,
                clients=plan.clients,
                aggregator_opens=plan.opener == "aggregator",
                check=check,
                store=store,
                joint=joint,
                **common,
            )
        return RoundKeys(self.purposes, plan.min_clients, make_pair=make_pair, check=check, **common)

    def _bound_authority(
        self,
        setup: PublicSetup,
        initial: GlobalModel,
        keys: RoundSigner,
        threads: int | None,
        shared_secret: bytes | None,
        store: AuthorityStore | None,
    ) -> AuthoritySteps:
        from shieldfl.rounds import authorities

        context, secret = self._context(setup, threads), None
        steps: AuthoritySteps
        if self.clients_open:
            steps = authorities.ListAuthority(context, keys, store)
        else:
            rule = self._opening_rule(initial, context, shared_secret)
            if self.aggregator_opens:
                first_model = digest_of_parts(rule.first_model())
                steps = authorities.ListAuthority(context, keys, store, first_model)
            else:
                steps = authorities.RoundAuthority(rule, keys, store)
                secret = shared_secret if self.needs_shared_secret else None
        steps.bind(setup.digest, "key authority", self.positions, secret)
        return steps

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        return self.rule_kind(self, context, self._shared(initial))

    def _shared(self, initial: GlobalModel) -> GlobalModel:
        return initial if self.shares_buffers else GlobalModel(initial.parameters, initial.buffers[:0])

    def client_steps(
        self,
        setup: PublicSetup,
        index: int,
        weight: int,
        initial: GlobalModel,
        *,
        threads: int | None = None,
        shared_secret: bytes | None = None,
    ) -> TrainingClient:
        """Make the client of this index and weight. It knows no other client's weight.

        If clients open sums and share a secret, but none is given, the secret derives from what the client is
        granted: this one only enrols, and :meth:`granted_client_steps` makes the one that takes part. Raises
        ParameterError, KeyMismatchError for another model.
        """
        initial = setup.check_model(initial)
        index, weight = self.plan.client(index), self.plan.weight(weight)
        own = 1 if self.weighs_all_alike else weight
        context = self._context(setup, threads)
        awaits_secret = self.needs_shared_secret and shared_secret is None and self.clients_open
        if awaits_secret:
            shared_secret = _NO_SECRET
        steps = self._client(context, index, own, initial, shared_secret)
        steps.awaits_secret = awaits_secret
        if self.clients_open:
            steps.open_by(self._opening_rule(initial, context, shared_secret), self._granted_keys(context))
        secret = shared_secret if self.needs_shared_secret else None
        steps.bind(setup.digest, f"client {index} of weight {own}", self.positions, secret)
        return steps

    def granted_client_steps(
        self,
        setup: PublicSetup,
        index: int,
        weight: int,
        initial: GlobalModel,
        enrolled: TrainingClient,
        *,
        threads: int | None = None,
    ) -> tuple[TrainingClient, bytes]:
        """Make the client that takes part, from one that was granted, and its secret."""
        secret = enrolled.granted_secret()
        steps = self.client_steps(setup, index, weight, initial, threads=threads, shared_secret=secret)
        steps.go_on_from(enrolled)
        return steps, secret

    def _granted_keys(self, context: RoleContext) -> GrantedKeys:
        bounds = (1 / self.most_weight, 1.0)
        return GrantedKeys(context.keys, self.plan.min_clients, weight_bounds=bounds, threads=context.threads)

    def aggregator_steps(
        self,
        setup: PublicSetup,
        weights: Sequence[int],
        *,
        initial: GlobalModel | None = None,
        threads: int | None = None,
    ) -> CollectingAggregator:
        """Make the aggregator for clients of these weights; ``initial`` is for one that holds the model."""
        if initial is not None:
            initial = setup.check_model(initial)
        known = tuple(map(self.plan.weight, checked_weights(weights, self.plan.clients)))
        own = (1,) * len(known) if self.weighs_all_alike else known
        context = self._context(setup, threads)
        steps = self._aggregator(context, own, None if self.aggregator_opens else initial)
        if self.aggregator_opens:
            if initial is None:
                raise ParameterError("this aggregator opens sums: give it the initial model")
            steps.open_by(self._opening_rule(initial, context, None), self._granted_keys(context))
        steps.bind(setup.digest, f"aggregator of weights {[int(one) for one in own]}", self.positions)
        return steps

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> TrainingClient:
        return self.client_kind(self, context, index, weight, initial)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> CollectingAggregator:
        return self.aggregator_kind(self, context, weights)

    def _context(self, setup: PublicSetup, threads: int | None) -> RoleContext:
        setup.check_method(self.name, self.own_settings, self.plan, self.derived)
        if (bool(self.purposes), self.enrols) != (bool(setup.verifying_key), bool(setup.enrolment_key)):
            raise ParameterError(
                "a public set-up has a signing key if and only if its method encrypts, and an enrolment key "
                "where its clients enrol"
            )
        manifest = setup.digest if self.enrols else b""
        self.check_opener()
        check = RoundKeyCheck(
            setup.verifying_key, setup.session, self.purposes, setup.enrolment_key, manifest
        )
        phases = [phase.name for phase in self._with_opened(self.phases)]
        answered = [phase for phase in self.phases if phase.answered_by_authority]
        signed = [phase.name for phase in answered if self.signs_answer(phase)]
        once = [phase.name for phase in answered if phase.once]
        return RoleContext(
            self.plan,
            check,
            self.most_weight,
            tuple(phases),
            {phase.name: phase.opens for phase in answered},
            tuple(signed),
            self.scores,
            threads,
            self.clients_open,
            self.aggregator_opens,
            self.buffer_factor,
            tuple(once),
        )

    def account(self) -> Account:
        return Account(self.notes, self.delta)

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Return the phases of a round from this model, beside which earlier agreements travel."""
        return self.phases

    def round_phases(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        return self._with_opened(self.phases_of(model, round_number))

    def message_for(self, client: int, message: Message) -> Message:
        """Return what this client gets of a message: here all of it."""
        return message

    def has_model(self, client: int, message: Message) -> bool:
        return True

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the method's settings as plain data, for reports, with the clients' weights."""
        stated: dict[str, Any] = {} if self.own is None else asdict(self.own)
        if self.purposes:
            stated["bytes_per_encrypted_value"] = self.purposes["update"].bytes_per_value
        return stated | {"weights": "uniform" if self.weighs_all_alike else stated_weights(weights)}


class EmbeddedRoles:
    """All roles of a federation, in one process.

    The other roles get the authority's set-up as bytes, as they would elsewhere.

    ``client_threads`` are each client's, if not ``threads``. ``shared_secret``, of clients and key authority,
    is drawn if it is None. ``kept`` is what :meth:`parts` returned in another process, with the key: the
    roles continue from there. ``together`` has what clients that open sums share; with None each opens all.
    """

    def __init__(
        self,
        method: Method,
        initial: GlobalModel,
        weights: Sequence[int] | None = None,
        *,
        threads: int | None = None,
        client_threads: int | None = None,
        shared_secret: bytes | None = None,
        kept: tuple[Message, bytes] | None = None,
        together: OpenedTogether | None = None,
    ) -> None:
        if method.needs_shared_secret and shared_secret is None:
            shared_secret = secrets.token_bytes(32)
        self.method = method
        self.initial = initial.kept()  # once for all roles
        self.weights = checked_weights(weights, method.plan.clients)
        self.shared_secret = shared_secret
        self._threads = threads
        self._client_threads = client_threads or threads
        self._together = together
        with naming_own_method(method.name, type(method)):
            if kept is None:
                self.authority, made = self._made_authority()
                self.setup = PublicSetup.from_bytes(made.to_bytes(), made.digest)
            else:
                self.setup = PublicSetup.trusted(bytes(kept[0]["setup"]))
                self.authority = self.new_authority() if method.purposes else None
            self.clients = [self.new_client(index) for index in range(method.plan.clients)]
            self.aggregator = self.new_aggregator()
            if kept is None:
                self._enrol()
            else:
                parts, key = kept
                for name, role in self._roles().items():
                    role.restore(parts[name], key if role.needs_sealing else None)

    def _enrol(self) -> None:
        if self.authority is None:
            return
        enrolling: list[tuple[Any, Any]] = [(self.aggregator, self.authority.grant)]
        enrolling += [(one, partial(self.authority.enrol, index)) for index, one in enumerate(self.clients)]
        for role, grant in enrolling:
            request = role.enrolment()
            if request:
                granted = grant(Message.from_bytes(request.to_bytes()))
                role.enrolled(Message.from_bytes(granted.to_bytes()))

    def _made_authority(self, **how: Any) -> tuple[AuthoritySteps | None, PublicSetup]:
        return self.method.authority_setup(
            self.initial, threads=self._threads, shared_secret=self.shared_secret, **how
        )

    def _roles(self) -> dict[str, Reporter]:
        roles: dict[str, Reporter] = {f"client {index}": client for index, client in enumerate(self.clients)}
        roles["aggregator"] = self.aggregator
        return roles if self.authority is None else roles | {"authority": self.authority}

    def parts(self, key: bytes) -> Message:
        """Return, between rounds, the public set-up and every role's state, sealed: ``kept``."""
        roles = self._roles().items()
        states = {name: role.state(key if role.needs_sealing else None) for name, role in roles}
        return Message({"setup": self.setup.to_bytes(), **states})

    def new_client(self, index: int) -> TrainingClient:
        client = self.method.client_steps(
            self.setup,
            index,
            self.weights[index],
            self.initial,
            threads=self._client_threads,
            shared_secret=self.shared_secret,
        )
        if self._together is not None:
            client.open_together(self._together)
        return client

    def new_authority(self) -> AuthoritySteps:
        return self.method.authority_steps(
            self.setup, self.initial, threads=self._threads, shared_secret=self.shared_secret
        )

    def new_aggregator(self) -> CollectingAggregator:
        initial = self.initial if self.method.aggregator_has_model else None
        return self.method.aggregator_steps(self.setup, self.weights, initial=initial, threads=self._threads)

    def report_to(self, account: Account) -> None:
        for role in self._roles().values():
            account.take(role.report())
