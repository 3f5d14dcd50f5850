"""What an attack on the protocol is: one lie, told again and again to a method's own roles, and what it came to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.lab.audit.attack import FederationAttack
from shieldfl.lab.audit.figures import bootstrap_interval
from shieldfl.lab.audit.protocol.lying_aggregator import LyingAggregator, PlayedFederation
from shieldfl.lab.audit.result import FEWEST_TRIES, UNDEFENDED, Cell
from shieldfl.learning.local_update import FloatVector
from shieldfl.methods.discovery import method_class
from shieldfl.rounds.collecting_aggregator import CollectingAggregator

_CLOSE = 0.01
"""Of the root mean square of an update: what is nearer to a value than this tells it."""
_ALL = 0.9
"""Of a client's encrypted values: whoever is told so many has its update. The rest may have been rounded."""
_MOST_ROUNDS = 4 * FEWEST_TRIES
"""Of all federations together: methods that alternate have rounds in which nothing is encrypted."""
_NO_LIE = "no lie is needed: each client's message has its update in the clear"
_SECRET = "aggregator-and-client"
"""The party that lies and has a client, which opens what clients may."""


def share_told(
    guess: NDArray[np.floating[Any]] | None, change: FloatVector, encrypted: NDArray[np.bool_]
) -> float:
    """Return the share of a client's encrypted values that a guess tells, to a hundredth of their root mean square.

    All are (P,); there is one encrypted at least. Without a guess, 0.
    """
    if guess is None:
        return 0.0
    true = change[encrypted].astype(np.float64)
    step = _CLOSE * float(np.sqrt(np.mean(true**2)))
    return float(np.mean(np.abs(guess[encrypted] - true) <= step))


@dataclass(frozen=True)
class _Try:
    """What one lie came to."""

    told: float
    """Share of the victim's encrypted values."""
    told_honestly: float
    """The same share by the mean of all clients, which an honest round tells."""
    victim: int
    refusal: str = ""
    """What the roles refused with; empty where the lie was answered."""


@dataclass(frozen=True)
class _Past:
    """What clients did in a round: what is held against what was got."""

    changes: dict[int, FloatVector]
    encrypted: dict[int, NDArray[np.bool_]]

    @classmethod
    def of(cls, federation: PlayedFederation) -> _Past:
        """Keep what the round that runs has had."""
        changes = dict(federation.changes)
        return cls(changes, {client: federation.encrypts(client) for client in changes})

    @property
    def mean(self) -> FloatVector:
        """What an honest round tells: the mean of all changes, (P,)."""
        return cast(FloatVector, np.mean(list(self.changes.values()), axis=0))


class ProtocolAttack(FederationAttack):
    """A lie that a dishonest aggregator tells, on its own and with a client on its side.

    It is told in federations of drawn updates and a small model, in one round after another. What was got is held
    against what the victim has encrypted, and not told from whether something was refused.
    """

    measured_by: ClassVar[str] = "values told"
    is_told: ClassVar[bool] = True
    parameters: ClassVar[int] = 24
    """Of the model; few, since Paillier takes milliseconds for each."""
    rounds_back: ClassVar[int] = 0
    """How many rounds before the lie the victim has sent what it is about."""
    needs_client: ClassVar[bool] = False
    """Whether the aggregator cannot tell it without a client on its side."""
    in_first_rounds: ClassVar[bool] = False
    """Whether the lie is of a federation's first round alone where clients open: later ones need what they opened."""

    @classmethod
    @abstractmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector | None:
        """Tell the lie; return what it says that the victim has changed of the model, (P,).

        None in a round that only prepares it. Raises the ShieldError that it is refused with.
        """

    @classmethod
    def alter(cls, liar: LyingAggregator, phase: str, client: int, message: Message) -> Message:
        """Return what is taken in the place of a message: here itself."""
        return message

    @classmethod
    def inapplicable(cls, federation: PlayedFederation) -> str | None:
        """Say in one sentence why there is no such lie in a federation; None where there is."""
        return None

    @classmethod
    def size_for(cls, federation: PlayedFederation) -> int:
        """Return how many parameters the model has that the lie is told on, by a federation of the method's."""
        return cls.parameters

    def cells(self, method: str, on_federation: Callable[[str, int], None]) -> list[Cell]:
        """Return a cell for each party. Raises ParameterError for a method without keys."""
        if not method_class(method).schemes and method != UNDEFENDED:
            raise ParameterError("the method has no keys: there is nothing that a lie could have opened")

        def made(parameters: int) -> PlayedFederation:
            return PlayedFederation.set_up(method, self._settings, self._config, parameters)

        federation = made(self.parameters)
        if method == UNDEFENDED:
            tries = self._read(federation)
            return [self._cell(method, party.name, tries, True) for party in self._parties]
        why = federation.unplayable() or self.inapplicable(federation)
        if why is not None:
            raise ParameterError(why)
        size = self.size_for(federation)
        tries = self._told(lambda: made(size))
        if not tries:
            raise ParameterError("nothing was encrypted in a round that this lie can be told in")
        opens = federation.method.aggregator_opens
        return [self._cell(method, party.name, tries, opens) for party in self._parties]

    def _read(self, federation: PlayedFederation) -> list[_Try]:
        """Return what the aggregator of a method that encrypts nothing reads off each message, without a lie."""
        everything = np.ones(self.parameters, np.bool_)
        tries: list[_Try] = []

        def read(liar: LyingAggregator, phase: str) -> None:
            for victim, message in liar.sent.items():
                change = federation.changes[victim]
                guess = message.vector("update", np.float32, change.size)
                honest = share_told(_Past.of(federation).mean, change, everything)
                tries.append(_Try(share_told(guess, change, everything), honest, victim))

        federation.aggregator = self._liar(federation, read)
        while len(tries) < FEWEST_TRIES:
            ended = federation.run_round()
            if ended is not None:
                raise ended
        return tries[:FEWEST_TRIES]

    def _liar(
        self, federation: PlayedFederation, lie: Callable[[LyingAggregator, str], None]
    ) -> CollectingAggregator:
        reader = len(federation.clients) - 1
        return cast(
            CollectingAggregator,
            LyingAggregator(federation, reader, lambda: federation.changes, lie, self.alter),
        )

    def _told(self, made: Callable[[], PlayedFederation]) -> list[_Try]:
        federation = made()
        tries: list[_Try] = []

        past: list[_Past] = []
        """Of the rounds of the federation that runs, the newest last."""

        def tell(liar: LyingAggregator, phase: str) -> None:
            past.append(_Past.of(federation))
            if self.in_first_rounds and liar.roles.method.clients_open and len(past) > 1:
                return
            victim = len(tries) % (len(liar.roles.clients) - 1)
            about = past[max(len(past) - 1 - self.rounds_back, 0)]
            encrypted = about.encrypted[victim]
            if not encrypted.any() and not self.rounds_back:
                return
            guess: FloatVector | None = None
            refusal = ""
            try:
                guess = self.obtain(liar, phase, victim)
                if guess is None:
                    return
            except ShieldError as error:
                refusal = f"{type(error).__name__}: {error}"
            if not encrypted.any():
                return
            change = about.changes[victim]
            honest = share_told(about.mean, change, encrypted)
            tries.append(_Try(share_told(guess, change, encrypted), honest, victim, refusal))

        federation.aggregator = self._liar(federation, tell)
        for _ in range(_MOST_ROUNDS):
            before = len(tries)
            ended = federation.run_round()
            if ended is not None and len(tries) == before:
                raise ended  # of no lie's doing
            if len(tries) == FEWEST_TRIES:
                break
            # A lie that was answered leaves a federation in which nothing fits any more.
            if ended is not None or (self.in_first_rounds and federation.method.clients_open):
                federation = made()
                past.clear()
                federation.aggregator = self._liar(federation, tell)
        return tries

    def _cell(self, method: str, party: str, tries: list[_Try], opens: bool) -> Cell:
        if party not in (_SECRET, "aggregator"):
            why = f"it is a lie of the aggregator's, with a client or without: ask for {_SECRET}"
            return Cell(method, self.name, party, "does not apply", why)
        if self.needs_client and party != _SECRET and method != UNDEFENDED:
            why = f"the aggregator cannot tell this lie without a client on its side: ask for {_SECRET}"
            return Cell(method, self.name, party, "does not apply", why)
        reads = opens or party == _SECRET
        figures = [one.told if reads else 0.0 for one in tries]
        interval = bootstrap_interval(figures, "mean", self._config.seed)
        return Cell(
            method,
            self.name,
            party,
            "attacked",
            measured_by=self.measured_by,
            figure=float(np.mean(figures)),
            low=interval.low,
            high=interval.high,
            chance=float(np.mean([one.told_honestly for one in tries])),
            tries=len(tries),
            form=_NO_LIE
            if method == UNDEFENDED
            else self._in_words(max(tries, key=lambda one: one.told), reads),
        )

    @staticmethod
    def _in_words(best: _Try, reads: bool) -> str:
        if best.refusal:
            return f"refused with {best.refusal}"
        if not reads:
            return "answered, and the answer is for clients to open: the aggregator alone reads nothing of it"
        if best.told < _ALL:
            return f"answered, and what that opens to tells {best.told:.0%} of the values of client {best.victim}"
        return f"obtained: single update of client {best.victim}, {best.told:.0%} of its encrypted values"
