"""One piece of an audit's work, which any process can do: one federation under attack, or all of those of an attack."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shieldfl.audit.attack import ModelPlantingAttack, UpdateAttack
from shieldfl.audit.attacked_trial import AttackedTrial, planted_trial
from shieldfl.audit.attacks.offered import usable_attacks
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.federation_attack import FederationAttack
from shieldfl.audit.result import UNDEFENDED, Cell
from shieldfl.audit.scores.outcome import Outcome
from shieldfl.audit.tries import Found
from shieldfl.audit.views.parties import party_named
from shieldfl.audit.views.trial import Trial
from shieldfl.audit.written_audit import Attacked
from shieldfl.errors import ShieldError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset

__all__ = ["OWN_FEDERATIONS", "Asked", "Done", "Piece", "PieceWorker"]

OWN_FEDERATIONS = -1
"""In the place of a trial's number: an attack that has federations of its own does all of them in one piece."""


@dataclass(frozen=True)
class Asked:
    """What an audit was asked for: a process has all that it needs by it."""

    config: AuditConfig
    attacks: tuple[str, ...]
    parties: tuple[str, ...]
    settings: MethodSettings


@dataclass(frozen=True)
class Piece:
    """What is to be done."""

    method: str
    trial: int
    """Its number, or :data:`OWN_FEDERATIONS`."""
    attacks: tuple[str, ...]
    """Of one federation: several where nobody alters its model."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By attack on updates: so long it goes on, and then ends with the search that it is at."""
    rows: int | None = None
    """Of a planted layer, where the attack's own number would take too long; None for that."""


@dataclass
class Done:
    """What came of a piece."""

    piece: Piece
    ended: list[Attacked] = field(default_factory=list)
    """One for each attack, in their order."""
    round_seconds: float | None = None
    """Of a round with a model that nobody has altered; None of another one, and where there was none."""
    parameters: int | None = None
    """Of the federation's model, altered or not."""


@dataclass
class _Shared:
    """What federations of all methods have in common that have the same number."""

    plain: Trial | None = None
    """That of what defends nothing."""
    is_refused: bool = False
    """Whether there is none."""
    known: dict[bytes, Outcome | str] = field(default_factory=dict)
    """What came of searches for images."""


class PieceWorker:
    """Does pieces, one after another, in this process.

    Parameters
    ----------
    asked : of the audit.
    dataset : that it names.
    on_federation : told of each federation before it begins: method and number.

    Raises ParameterError for names that there are not.
    """

    def __init__(self, asked: Asked, dataset: Dataset, on_federation: Callable[[str, int], None]) -> None:
        self._asked, self._dataset, self._on_federation = asked, dataset, on_federation
        usable = usable_attacks(asked.attacks)
        self._on_updates = {attack.name: attack for attack in usable.on_updates}
        self._kinds = {kind.name: kind for kind in usable.on_methods}
        self._on_methods: dict[str, FederationAttack] = {}
        self._parties = tuple(party_named(name) for name in asked.parties)
        self._shared: tuple[int, _Shared] | None = None
        """Of the newest trial, with its number."""

    def do(self, piece: Piece) -> Done:
        """Do a piece. What a method refuses is written into what came of it."""
        done = Done(piece)
        if piece.trial == OWN_FEDERATIONS:
            done.ended = [self._own_federations(piece.method, name) for name in piece.attacks]
            return done
        began = time.monotonic()
        attacks = [self._on_updates[name] for name in piece.attacks]
        if piece.rows is not None:
            attacks = [
                one.with_rows(piece.rows) if isinstance(one, ModelPlantingAttack) else one for one in attacks
            ]
        try:
            trial = self._trial(piece, attacks[0])
        except ShieldError as error:
            made = time.monotonic() - began
            done.ended = [
                Attacked(piece.method, one.name, piece.trial, made / len(attacks), left_out=str(error))
                for one in attacks
            ]
            return done
        done.parameters = trial.layout.size
        planted = isinstance(attacks[0], ModelPlantingAttack)
        done.round_seconds = None if planted else trial.round_seconds
        made = 0.0 if planted else time.monotonic() - began
        searches = not planted and any(one.recovers == "images" for one in attacks)
        shared = self._of_all(piece.trial, piece.method, trial) if searches else _Shared()
        attacked = AttackedTrial(trial, self._asked.config.seed + piece.trial, shared.plain, shared.known)
        for attack in attacks:
            seconds = piece.seconds.get(attack.name)
            ends = math.inf if seconds is None else began + made + seconds
            one = self._attacked(piece, attack, attacked, ends)
            # What several attacks share is not charged to the first alone; of a planted model the attack has it all.
            one.seconds = time.monotonic() - began - made
            one.shared_seconds = made / len(attacks)
            began = time.monotonic() - made
            done.ended.append(one)
        return done

    def _of_all(self, number: int, name: str, trial: Trial) -> _Shared:
        """Return what searches for images share of a trial: what defends nothing, and what came of updates so far."""
        if self._shared is None or self._shared[0] != number:
            self._shared = number, _Shared()
        shared = self._shared[1]
        if name == UNDEFENDED:
            shared.plain = trial
        elif shared.plain is None and not shared.is_refused:
            how = self._asked.settings, self._asked.config, self._dataset, number
            try:
                shared.plain = Trial(UNDEFENDED, *how)
            except ShieldError:
                shared.is_refused = True
        return shared

    def _trial(self, piece: Piece, attack: UpdateAttack) -> Trial:
        how = self._asked.settings, self._asked.config, self._dataset, piece.trial
        self._on_federation(piece.method, piece.trial)
        if isinstance(attack, ModelPlantingAttack):
            return planted_trial(attack, piece.method, *how)
        return Trial(piece.method, *how)

    def _attacked(self, piece: Piece, attack: UpdateAttack, trial: AttackedTrial, ends: float) -> Attacked:
        ended = Attacked(piece.method, attack.name, piece.trial)
        how = f"with {piece.rows} rows, since more would have taken too long" if piece.rows else ""
        try:
            received = {party.name: trial.received(party, attack) for party in self._parties}
        except ShieldError as error:
            ended.left_out = str(error)
            return ended
        for party in self._parties:
            found = ended.found[party.name] = Found(received[party.name])
            for form, outcome in trial.outcomes(party, attack, lambda: time.monotonic() > ends):
                if isinstance(outcome, str):
                    found.join(Found(reason=outcome))
                else:
                    found.join(Found(outcomes=[(f"{form}, {how}" if how else form, outcome)]))
        return ended

    def _own_federations(self, method: str, name: str) -> Attacked:
        asked, began = self._asked, time.monotonic()
        ended = Attacked(method, name, OWN_FEDERATIONS)
        self._on_federation(method, 0)
        try:
            if name not in self._on_methods:
                self._on_methods[name] = self._kinds[name](
                    asked.config, asked.settings, self._dataset, self._parties
                )
            ended.cells = self._on_methods[name].cells(method, self._on_federation)
        except ShieldError as error:
            why = str(error)
            ended.cells = [Cell(method, name, party, "does not apply", why) for party in asked.parties]
        ended.seconds = time.monotonic() - began
        return ended
