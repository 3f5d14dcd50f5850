"""The interface of a method."""

from __future__ import annotations

import abc
import secrets
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.methods.protocol.account import Account
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.phase import Phase
from shieldfl.methods.protocol.plan import FederationPlan, checked_weights
from shieldfl.methods.protocol.public_setup import PublicSetup, check_sizes
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.stated_facts import StatedFacts
from shieldfl.methods.protocol.steps import AggregatorSteps, AuthoritySteps, ClientSteps
from shieldfl.methods.protocol.who_opens import WhoOpens
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import SESSION_BYTES, RoundKeyCheck, digest_of_parts
from shieldfl.settings import plain_settings

if TYPE_CHECKING:
    from shieldfl.roles.joint_keys import JointKeys
    from shieldfl.roles.round_keys import MakePair
    from shieldfl.roles.round_signer import RoundSigner

__all__ = ["Method"]

_NO_SECRET = bytes(32)
"""In the place of the secret of a client that only enrols."""


class Method(StatedFacts, WhoOpens, abc.ABC):
    """What a method does in one federation: it makes the roles, and holds no key, no model and nothing that changes.

    Every method's class is called with the method's name, its settings (None where it has none) and the plan. Every
    class that is found by a name declares for itself its names, how its figures are to be read and what the aggregator
    sees: what a base class says was said of another method.
    """

    def __init__(self, name: str, settings: Any, plan: FederationPlan) -> None:
        self.name = name
        self.plan = plan
        self.notes: list[str] = []
        """What a reader of the results must know before the first round."""
        self.own_settings = plain_settings(settings)
        """Plain data, as a public set-up has them; none for a method without."""
        if self.weighs_all_alike and plan.most_weight > 1:
            self.notes.append(self._why_alike())

    def _why_alike(self) -> str:
        """Return a remark for readers where weights are given and do not count."""
        return f"{self.name} weighs all clients alike, whatever their weights"

    @property
    def all_that_the_aggregator_sees(self) -> str:
        """What it can read, in words, as the plan says who opens sums."""
        opened = ", and what sums open to, with the global model" if self.aggregator_opens else ""
        return self.aggregator_sees + opened

    @property
    def adversary(self) -> str | None:
        """Against whom a finite epsilon holds: the aggregator with the model, where it opens sums."""
        stated = self.privacy_reading.adversary
        return (
            "the aggregator, which has the model" if stated is not None and self.aggregator_opens else stated
        )

    @property
    def derived(self) -> dict[str, Any]:
        """What follows from settings and plan and has to be the same with everybody, as plain data: parameters' ids."""
        return {f"parameters for {purpose}": one.id.hex() for purpose, one in self.purposes.items()}

    @property
    def most_weight(self) -> int:
        """The largest that a client counts."""
        return 1 if self.weighs_all_alike else self.plan.most_weight

    @property
    def positions(self) -> int:
        """How many an update has as it is sent: N, where nothing but the model's values is."""
        return self.plan.update_size

    def authority_setup(
        self,
        initial: GlobalModel,
        *,
        threads: int | None = None,
        shared_secret: bytes | None = None,
        store: str | PathLike[str] | None = None,
        joint: JointKeys | None = None,
        make_pair: MakePair | None = None,
    ) -> tuple[AuthoritySteps | None, PublicSetup]:
        """Make the key authority, where the method has one, and what everybody else needs to know.

        The only step that makes secrets. ``shared_secret`` is for methods in which clients and key authority share one.
        ``store``, where clients enrol: the path of a file to make for the authority's memory, which then answers nobody
        twice, whichever state it goes on from. ``joint``, where other authorities have to answer, too: its own part,
        and who they are. ``make_pair``: of an audit, whose federations protect nobody. Raises as :func:`check_sizes`
        and :func:`made_authority_keys` do, and ParameterError for several authorities of which one would open sums
        alone.
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
                "each of several authorities answers, and none opens sums: have clients or the aggregator open them"
            )
        keys = self._made_round_keys(threads, store, None, joint, make_pair)
        check = keys.check
        setup = PublicSetup(*public, check.session, check.verifying_key, check.enrolment_key, self.derived)
        steps = self._bound_authority(setup, initial, keys, threads, shared_secret)
        keys.settle(self._context(setup, threads).keys)  # the last that is refused: it makes the store's file
        return steps, setup

    def authority_steps(
        self,
        setup: PublicSetup,
        initial: GlobalModel,
        *,
        threads: int | None = None,
        shared_secret: bytes | None = None,
        store: str | PathLike[str] | None = None,
    ) -> AuthoritySteps:
        """Make the key authority of a federation that was set up before, without keys: restore its state.

        ``store``: its file's path. Raises as :meth:`client_steps` does, and ParameterError for a method without keys.
        """
        initial = setup.check_model(initial)
        if not self.purposes:
            raise ParameterError(f"{self.name} has no key authority")
        keys = self._made_round_keys(threads, store, self._context(setup, threads).keys)
        return self._bound_authority(setup, initial, keys, threads, shared_secret)

    def _made_round_keys(self, *how: Any) -> RoundSigner:
        from shieldfl.methods.protocol.authority_keys import made_authority_keys  # holds secrets: only here

        return made_authority_keys(self.purposes, self.plan, self.positions, self.most_weight, *how)

    def _bound_authority(
        self,
        setup: PublicSetup,
        initial: GlobalModel,
        keys: RoundSigner,
        threads: int | None,
        shared_secret: bytes | None,
    ) -> AuthoritySteps:
        context = self._context(setup, threads)
        steps: AuthoritySteps
        if self.clients_open:
            from shieldfl.methods.protocol.list_authority import ListAuthority

            steps, secret = ListAuthority(context, keys), None
        elif self.aggregator_opens:
            from shieldfl.methods.protocol.model_signing_authority import ModelSigningAuthority

            first = self._authority_steps(initial, context, keys, shared_secret).newest_model()
            steps, secret = ModelSigningAuthority(context, keys, digest_of_parts(first)), None
        else:
            steps = self._authority_steps(initial, context, keys, shared_secret)
            secret = self._bound_secret(shared_secret)
        steps.bind(setup.digest, "key authority", self.positions, secret)
        return steps

    def _bound_secret(self, shared_secret: bytes | None) -> bytes | None:
        return shared_secret if self.needs_shared_secret else None

    def _authority_steps(
        self, initial: GlobalModel, context: RoleContext, keys: RoundSigner, shared_secret: bytes | None
    ) -> AuthoritySteps:
        """Make the key authority's steps; for methods with keys alone."""
        raise NotImplementedError

    def client_steps(
        self,
        setup: PublicSetup,
        index: int,
        weight: int,
        initial: GlobalModel,
        *,
        threads: int | None = None,
        shared_secret: bytes | None = None,
    ) -> ClientSteps:
        """Make the client of this index, which counts so much. It knows no other client's weight.

        Where clients open sums and share a secret, but none is given, it derives from what the client is granted: this
        one only enrols, and :meth:`granted_client_steps` makes the one that takes part.

        Raises ParameterError for the set-up of another method, settings or plan, for an index or weight that the plan
        does not have, and for a wrong number of threads; KeyMismatchError for another model.
        """
        initial = setup.check_model(initial)
        index, weight = as_unsigned(index, "index"), as_unsigned(weight, "weight")
        if index >= self.plan.clients:
            raise ParameterError(f"the plan has clients 0 to {self.plan.clients - 1}")
        if not 1 <= weight <= self.plan.most_weight:
            raise ParameterError(f"the plan has weights from 1 to {self.plan.most_weight}")
        own = 1 if self.weighs_all_alike else weight
        context = self._context(setup, threads)
        awaits_secret = self.needs_shared_secret and shared_secret is None and self.clients_open
        if awaits_secret:
            shared_secret = _NO_SECRET
        steps = self._client(context, index, own, initial, shared_secret)
        steps.awaits_secret = awaits_secret
        if self.clients_open:
            steps.open_by(self._opener(initial, context, shared_secret))
        secret = self._bound_secret(shared_secret)
        steps.bind(setup.digest, f"client {index} of weight {own}", self.positions, secret)
        return steps

    def granted_client_steps(
        self,
        setup: PublicSetup,
        index: int,
        weight: int,
        initial: GlobalModel,
        enrolled: ClientSteps,
        *,
        threads: int | None = None,
    ) -> tuple[ClientSteps, bytes]:
        """Make the client that takes part, from one that has enrolled and was granted; return its secret, too.

        The secret is :meth:`client_steps`'s from then on. Raises as that does, and PolicyError before the grant.
        """
        secret = enrolled.granted_secret()
        steps = self.client_steps(setup, index, weight, initial, threads=threads, shared_secret=secret)
        steps.go_on_from(enrolled)
        return steps, secret

    def _opener(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> AuthoritySteps:
        """Make what turns totals into models for a client or the aggregator: an authority's steps, without its keys."""
        from shieldfl.roles.granted_keys import GrantedKeys

        bounds = (1 / self.most_weight, 1.0)
        keys = GrantedKeys(context.keys, self.plan.min_clients, weight_bounds=bounds, threads=context.threads)
        return self._authority_steps(initial, context, keys, shared_secret)

    def aggregator_steps(
        self,
        setup: PublicSetup,
        weights: Sequence[int],
        *,
        initial: GlobalModel | None = None,
        threads: int | None = None,
    ) -> AggregatorSteps:
        """Make the aggregator for clients that count so much.

        ``initial`` is for methods in which it holds the model; the others must not see it. Raises as
        :meth:`client_steps` does, and ParameterError for a missing model.
        """
        if initial is not None:
            initial = setup.check_model(initial)
        known = checked_weights(weights, self.plan.clients)
        if max(known) > self.plan.most_weight:
            raise ParameterError(f"the plan has weights from 1 to {self.plan.most_weight}")
        own = (1,) * len(known) if self.weighs_all_alike else known
        context = self._context(setup, threads)
        steps = self._aggregator(context, own, None if self.aggregator_opens else initial)
        if self.aggregator_opens:
            if initial is None:
                raise ParameterError(
                    "this aggregator opens sums and begins rounds: give it the initial model"
                )
            steps.open_by(self._opener(initial, context, None))
        steps.bind(setup.digest, f"aggregator of weights {[int(one) for one in own]}", self.positions)
        return steps

    @abc.abstractmethod
    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> ClientSteps:
        """Make a client."""

    @abc.abstractmethod
    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> AggregatorSteps:
        """Make the aggregator."""

    def _context(self, setup: PublicSetup, threads: int | None) -> RoleContext:
        """Return what roles know. Raises ParameterError for the set-up of another method, settings or plan."""
        setup.check_method(self.name, self.own_settings, self.plan, self.derived)
        if (bool(self.purposes), self.enrols) != (bool(setup.verifying_key), bool(setup.enrolment_key)):
            raise ParameterError(
                "a public set-up has a signing key if and only if its method encrypts, and an enrolment key where its "
                "clients enrol"
            )
        manifest = setup.digest if self.enrols else b""
        self.check_opener()
        check = RoundKeyCheck(
            setup.verifying_key, setup.session, self.purposes, setup.enrolment_key, manifest
        )
        phases = tuple(phase.name for phase in self._with_opened(self.phases))
        answered = [phase for phase in self.phases if phase.answered_by_authority]
        signed = tuple(phase.name for phase in self.phases if self.signs_answer(phase))
        return RoleContext(
            self.plan,
            check,
            self.most_weight,
            phases,
            {phase.name: phase.opens for phase in answered},
            signed,
            self.scores,
            threads,
            self.clients_open,
            self.aggregator_opens,
            self.buffer_factor,
            tuple(phase.name for phase in answered if phase.once),
        )

    def account(self) -> Account:
        """Return an account of a run, of nothing yet: it takes the roles' reports."""
        return Account(self.notes, self.delta)

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Return the phases of a round that starts from this model; what was agreed on before travels with it."""
        return self.phases

    def round_phases(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Return what a round goes through: its phases, and, where clients open sums, what they tell in between."""
        return self._with_opened(self.phases_of(model, round_number))

    def message_for(self, client: int, message: Message) -> Message:
        """Return the part of the last phase's answer, or of an earlier one, that this client gets: here all of it."""
        return message

    def has_model(self, client: int, message: Message) -> bool:
        """Say whether a model of the answer is the client's: not so for one that no cluster has taken in."""
        return True

    @abc.abstractmethod
    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the method's settings as plain data, for reports, with what the clients' weights come to in it."""
