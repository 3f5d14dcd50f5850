"""In which order an audit's pieces are done, and how much of the time each attack has."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shieldfl.audit.attack import ModelPlantingAttack, UpdateAttack
from shieldfl.audit.piece import OWN_FEDERATIONS, Done, Piece
from shieldfl.audit.result import FEWEST_TRIES, UNDEFENDED

__all__ = ["Schedule"]

_SLOW = 10.0
"""So many times as long as the usual round of a method."""
_FEWEST_ROWS = 16
_LONGEST = 0.1
"""Of the whole time: what one federation with a planted layer may take, before the layer has fewer rows."""


class Schedule:
    """What is to be done next.

    First every attack is tried on every method: on one trial, or with the federations that it has of its own. Then
    trials follow up to the fewest that an interval is believed of, and with what time is left then, more of them. In
    each of these stages attacks have equal shares of the time, and what one does not need is shared out again among
    those that do. What cannot be begun before a method's first federation has ended holds up nobody: others go on with
    quick pieces of later stages meanwhile.

    Parameters
    ----------
    methods : the undefended one first.
    on_updates : attacks on updates.
    on_methods : names of those that have federations of their own.
    trials : of each method, at most.
    seconds : of all processes together.
    processes : how many there are: a piece is done by one of them.
    """

    def __init__(
        self,
        methods: Sequence[str],
        on_updates: Sequence[UpdateAttack],
        on_methods: Sequence[str],
        trials: int,
        seconds: float,
        processes: int = 1,
    ) -> None:
        self._processes = processes
        self._methods, self._trials, self._seconds = tuple(methods), trials, seconds
        self.honest = tuple(one.name for one in on_updates if not isinstance(one, ModelPlantingAttack))
        """Names of attacks that share the federations whose model nobody has altered."""
        self.planting = {one.name: one for one in on_updates if isinstance(one, ModelPlantingAttack)}
        """By name: attacks with federations of their own, of which each is one trial."""
        self._on_methods = tuple(on_methods)
        self._round_seconds: dict[str, float] = {}
        """By method: of a round with a model that nobody has altered."""
        self._parameters: dict[str, int] = {}
        """By method: of such a model."""
        self._sizes: dict[str, int] = {}
        """By planting attack: of the models that it has altered, in full."""
        self._spent: defaultdict[str, float] = defaultdict(float)
        """By attack."""
        self._begun: set[tuple[str, str, int]] = set()
        """Methods, attacks and trials."""
        self._running: set[str] = set()
        """Methods whose first honest federation is under way: how long it takes is not known yet."""
        self._left_out: set[tuple[str, str]] = set()
        self.too_long: set[tuple[str, str]] = set()
        """Methods and attacks of which a federation would have taken more than what was left of the time."""

    def leave_out(self, method: str, attack: str) -> None:
        """Do no more of an attack on a method."""
        self._left_out.add((method, attack))

    def next(self, seconds_left: float) -> Piece | None:
        """Return the next piece to begin, with so many seconds left of all processes together; None for none now."""
        if seconds_left <= 0:
            return None
        waiting: set[str] = set()
        """Attacks with a piece that will be begun once it is known how long its method takes."""
        for stage in (self._first(), self._fewest(), self._more()):
            # Beside what waits, what is short alone: whoever does it is back soon.
            held = self._slow() if waiting else frozenset[str]()
            pieces = [one for one in stage if one.method not in held]
            wanting = waiting.union(*(piece.attacks for piece in pieces))
            waiting.update(one.attacks[0] for one in pieces if self._waits(one))
            # Each attack that still wants time may come up to the level that all of them can have.
            level = (seconds_left + sum(self._spent[one] for one in wanting)) / max(1, len(wanting))
            for least in (level,) if waiting else (level, math.inf):
                for piece in pieces:
                    own = tuple(one for one in piece.attacks if self._spent[one] < least)
                    fitting = self._fitting(piece, own, seconds_left, level) if own else None
                    if fitting is not None:
                        return self._begin(fitting)
        return None

    def _waits(self, piece: Piece) -> bool:
        return piece.attacks[0] in self.planting and piece.method in self._running

    def _begin(self, piece: Piece) -> Piece:
        self._begun |= {(piece.method, one, piece.trial) for one in piece.attacks}
        if piece.attacks[0] in self.honest and piece.method not in self._round_seconds:
            self._running.add(piece.method)
        return piece

    def _fitting(
        self, piece: Piece, attacks: tuple[str, ...], seconds_left: float, level: float
    ) -> Piece | None:
        """Return a piece for these attacks of it; None where it has to wait, or is too long."""
        left = seconds_left / self._processes
        shares = {one: level - self._spent[one] for one in attacks}
        seconds = {one: min(left, share) if share > 0 else left for one, share in shares.items()}
        name = attacks[0]
        if name not in self.planting:
            return Piece(piece.method, piece.trial, attacks, seconds)
        if self._waits(piece):
            return None
        expected, rows, fewer = self._expected(piece.method, name), self.planting[name].rows, None
        longest = _LONGEST * self._seconds / self._processes
        if expected > longest and rows > _FEWEST_ROWS:
            fitting = rows * longest / expected
            fewer = max(_FEWEST_ROWS, 2 ** int(math.log2(max(fitting, 1.0))))
            expected *= fewer / rows
        if expected > left:
            self.too_long.add((piece.method, name))
            return None
        return Piece(piece.method, piece.trial, attacks, seconds, fewer)

    def _expected(self, method: str, attack: str) -> float:
        """Return how many seconds a federation with a planted layer will take; 0 where nobody knows.

        What takes long is to encrypt every parameter, so that it is guessed by how many there are.
        """
        if method not in self._round_seconds or attack not in self._sizes:
            return 0.0
        return self._round_seconds[method] * self._sizes[attack] / self._parameters[method]

    def _first(self) -> Iterator[Piece]:
        yield from self._of_trials(range(1), self._quick_first)
        for attack in self._on_methods:
            for method in self._quick_first(0):
                yield from self._piece(method, OWN_FEDERATIONS, (attack,))

    def _fewest(self) -> Iterator[Piece]:
        trials, slow = range(1, min(self._trials, FEWEST_TRIES)), self._slow()
        yield from self._of_trials(
            trials, lambda number: [one for one in self._quick_first(number) if one not in slow]
        )
        yield from self._of_trials(trials, lambda number: sorted(slow))

    def _more(self) -> Iterator[Piece]:
        yield from self._of_trials(range(FEWEST_TRIES, self._trials), self._quick_first)

    def _of_trials(self, trials: range, methods_of: Callable[[int], Sequence[str]]) -> Iterator[Piece]:
        for number in trials:
            for method in methods_of(number):
                yield from self._piece(method, number, self.honest)
            for attack in self.planting:
                for method in methods_of(number):
                    yield from self._piece(method, number, (attack,))

    def _piece(self, method: str, trial: int, attacks: tuple[str, ...]) -> Iterator[Piece]:
        left = tuple(
            one
            for one in attacks
            if (method, one, trial) not in self._begun and (method, one) not in self._left_out
        )
        if left:
            yield Piece(method, trial, left)

    def _slow(self) -> frozenset[str]:
        """Return methods whose rounds take as long as many others', and those that may turn out to be such."""
        usual = float(np.median([*self._round_seconds.values()] or [math.inf]))
        known = frozenset(name for name, one in self._round_seconds.items() if one > _SLOW * usual)
        return known | self._running

    def _quick_first(self, number: int) -> list[str]:
        """Return the methods: what defends nothing, then another one first in each trial, since time may end amid one.

        Last are those that :meth:`_slow` names.
        """
        turn = 1 + number % max(1, len(self._methods) - 1)
        others = (*self._methods[turn:], *self._methods[1:turn])
        slow = self._slow()
        return [UNDEFENDED, *sorted(others, key=lambda name: name in slow)]

    def take_in(self, done: Done) -> None:
        """Learn from what has ended how long things take."""
        piece = done.piece
        self._begun |= {(piece.method, one.attack, piece.trial) for one in done.ended}
        for one in done.ended:
            self._spent[one.attack] += one.seconds + one.shared_seconds
        if piece.attacks[0] in self.honest:
            self._running.discard(piece.method)
        if done.parameters is None:
            return
        if done.round_seconds is not None:
            self._round_seconds.setdefault(piece.method, done.round_seconds)
            self._parameters.setdefault(piece.method, done.parameters)
        elif piece.rows is None:
            # Nearly the same for all methods: only what they make of layers differs.
            self._sizes[piece.attacks[0]] = done.parameters
