"""Runs an audit: federations of each method, one after another, attacked by every party with every attack."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from shieldfl.audit.attack import ModelPlantingAttack, UpdateAttack
from shieldfl.audit.attacked_trial import AttackedTrial, planted_trial
from shieldfl.audit.attacks.offered import usable_attacks
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.result import UNDEFENDED, AuditResult, Cell, in_words
from shieldfl.audit.tries import Found, Tries
from shieldfl.audit.views.parties import party_named
from shieldfl.audit.views.trial import Trial, model_kind
from shieldfl.audit.written_audit import Attacked, WrittenAudit, audit_identity
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.methods.discovery import checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import load_dataset
from shieldfl.simulation.driver import describe_environment
from shieldfl.simulation.torch_threads import torch_threads

__all__ = ["AuditInterrupted", "run_audit"]


_SLOW = 10.0
"""So many times as long as the usual round of a method."""


class AuditInterrupted(KeyboardInterrupt):
    """Ctrl-C during an audit: what was attacked by then is in ``result``."""

    def __init__(self, result: AuditResult) -> None:
        super().__init__("the audit was interrupted")
        self.result = result


def run_audit(
    config: AuditConfig,
    methods: Sequence[str],
    attacks: Sequence[str],
    parties: Sequence[str],
    settings: MethodSettings | None = None,
    on_trial: Callable[[str, int], None] = lambda method, trial: None,
) -> AuditResult:
    """Attack what each party gets under each method, and return what the attacks got beside chance.

    The budget is shared out evenly among attacks; what one does not need is not given to others.

    Parameters
    ----------
    config : data, federation and effort.
    methods : by name; plain averaging, which defends nothing, is attacked beside them.
    attacks, parties : by name.
    settings : of the methods; None for their defaults.
    on_trial : told, before it begins, of each federation: method and number.

    Raises ParameterError for unknown names and what methods refuse, DataError, AuditInterrupted. A method of which a
    trial fails is left out from there on, and a note says why.

    With a folder, what has ended is written down there, and the same audit goes on from it where the config says so.
    Raises what :class:`WrittenAudit` does.
    """
    session = _Session(config, methods, attacks, parties, settings or MethodSettings(), on_trial)
    began = time.monotonic()
    try:
        with torch_threads(config.threads or 1):
            session.attack_updates()
            session.attack_methods()
    except KeyboardInterrupt as error:
        session.result.notes.append(
            "the audit was interrupted: what it had not come to is marked as not attacked"
        )
        raise AuditInterrupted(session.finished(time.monotonic() - began)) from error
    return session.finished(time.monotonic() - began)


class _Session:
    """An audit under way. Raises ParameterError for names that there are not."""

    def __init__(
        self,
        config: AuditConfig,
        methods: Sequence[str],
        attacks: Sequence[str],
        parties: Sequence[str],
        settings: MethodSettings,
        on_trial: Callable[[str, int], None],
    ) -> None:
        self._config, self._settings, self._on_trial = config, settings, on_trial
        self._names = checked_methods(dict.fromkeys([UNDEFENDED, *methods]))
        if not attacks:
            raise ParameterError("name an attack at least")
        if len(set(parties)) < len(parties) or len(set(attacks)) < len(attacks):
            raise ParameterError(
                "name each party and each attack once: what is tried twice would count as two tries"
            )
        self._on_updates, self._on_methods, left_out = usable_attacks(attacks)
        self._parties = tuple(party_named(name) for name in parties)
        if not self._parties:
            raise ParameterError("name a party at least: nobody has a view otherwise")
        self._share = 60 * config.budget_minutes / len(attacks)
        self._dataset = load_dataset(config.dataset, config.data_dir)
        self._written: WrittenAudit | None = None
        if config.folder is not None:
            identity = audit_identity(config, self._names, attacks, parties, settings, self._dataset)
            self._written = WrittenAudit(Path(config.folder), identity, resume=config.resume)
        self._earlier: defaultdict[str, float] = defaultdict(float)
        """By attack: seconds that an earlier process has spent on it."""
        self._tries: dict[tuple[str, str, str], Tries] = {}
        self._cells: dict[tuple[str, str, str], Cell] = {}
        """By method, attack and party: of the attacks that are not on updates."""
        self._left_out: dict[tuple[str, str], str] = {}
        """Methods that failed in a trial, by the attack that chose its model, "" for none, and why."""
        self._too_long: set[tuple[str, str]] = set()
        """Methods and attacks of which a federation would have taken more than what was left of the time."""
        self._seconds: dict[str, float] = {}
        """By method: of a round with a model that nobody has altered."""
        self._parameters: dict[str, int] = {}
        """By method: of such a model."""
        self._making = 0.0
        """Seconds that went into a federation which several attacks share, of the attack under way."""
        self._sizes: dict[str, int] = {}
        """Parameters of the models that an attack has altered, by its name."""
        self.result = AuditResult(
            asdict(config), describe_environment(), self._dataset.description, model_kind(config)
        )
        self.result.notes += left_out
        if "aggregator" not in parties:
            self.result.notes.append(
                f"what the aggregator gets of {UNDEFENDED} was not asked for: without it no cell is marked all"
            )

    def attack_updates(self) -> None:
        """Run federations and attack them, until each attack has had its share of the time, or all trials."""
        left = dict.fromkeys(self._on_updates, self._share)
        sharing = [one for one in self._on_updates if not _model_of(one)]
        for number in range(self._config.trials):
            honest: dict[str, AttackedTrial] = {}
            for attack in self._on_updates:
                for name in self._quick_first(number):
                    if not self._is_to_be_attacked(name, number, attack, left[attack]):
                        continue
                    ends = time.monotonic() + left[attack]

                    def is_over(ends: float = ends) -> bool:
                        return time.monotonic() - self._making > ends

                    ended = self._attack(name, number, attack, honest, is_over)
                    left[attack] -= ended.seconds
                    for one in sharing:  # what all of them attack is not charged to the first alone
                        left[one] -= ended.shared_seconds / len(sharing)

    def _is_to_be_attacked(self, name: str, number: int, attack: UpdateAttack, left: float) -> bool:
        """Say whether a trial is, with so many seconds left: what an earlier process has ended always is taken over."""
        if (name, _model_of(attack)) in self._left_out:
            return False
        if self._has_ended(name, attack.name, number):
            return True
        if left > 0 and self._expected(name, attack) > left:
            self._too_long.add((name, attack.name))
            return False
        return left > 0

    def _quick_first(self, number: int) -> list[str]:
        """Return the methods: what defends nothing, then another one first in each trial, since time may end amid one.

        Last are those whose rounds take as long as many others'.
        """
        turn = 1 + number % max(1, len(self._names) - 1)
        usual = float(np.median([*self._seconds.values()] or [math.inf]))
        others = (*self._names[turn:], *self._names[1:turn])
        return [
            self._names[0],
            *sorted(others, key=lambda name: self._seconds.get(name, 0.0) > _SLOW * usual),
        ]

    def _expected(self, name: str, attack: UpdateAttack) -> float:
        """Return how many seconds a federation with an altered model will take; 0 for others, and where nobody knows.

        What takes long is to encrypt every parameter, so that it is guessed by how many there are.
        """
        if name not in self._seconds:
            return 0.0
        return self._seconds[name] * self._sizes.get(_model_of(attack), 0) / self._parameters[name]

    def _attack(
        self,
        name: str,
        number: int,
        attack: UpdateAttack,
        honest: dict[str, AttackedTrial],
        is_over: Callable[[], bool],
    ) -> Attacked:
        """Attack one federation of a method; one of its own where the attack chooses the first model."""
        ended = self._ended(name, attack.name, number)
        if ended is not None:
            for whose, kept in ended.found.items():
                self._tries_of(name, attack, whose).add(kept)
        else:
            began, self._making = time.monotonic(), 0.0
            ended = Attacked(name, attack.name, number)
            try:
                trial = self._trial(name, number, attack, honest)
                received = {party: trial.received(party, attack) for party in self._parties}
            except ShieldError as error:
                ended.left_out = str(error)
            else:
                for party in self._parties:
                    found = ended.found[party.name] = Found(received[party])
                    tries = self._tries_of(name, attack, party.name)
                    tries.add(found)
                    for form, outcome in trial.outcomes(party, attack, is_over):
                        one = (
                            Found(reason=outcome)
                            if isinstance(outcome, str)
                            else Found(outcomes=[(form, outcome)])
                        )
                        found.join(one)
                        tries.add(one)
            self._keep(ended, began)
        if ended.left_out is not None:
            self._left_out[name, _model_of(attack)] = ended.left_out
            under = f" under {attack.name}" if _model_of(attack) else ""
            self.result.notes.append(f"{name}: left out{under} from trial {number + 1} on: {ended.left_out}")
        return ended

    def _tries_of(self, method: str, attack: UpdateAttack, party: str) -> Tries:
        return self._tries.setdefault((method, attack.name, party), Tries())

    def _has_ended(self, method: str, attack: str, trial: int = -1) -> bool:
        return self._written is not None and self._written.ended(method, attack, trial) is not None

    def _ended(self, method: str, attack: str, trial: int = -1) -> Attacked | None:
        """Return what an earlier process has ended, and count its time; None for what is still to do."""
        ended = None if self._written is None else self._written.ended(method, attack, trial)
        if ended is not None:
            self._earlier[attack] += ended.seconds + ended.shared_seconds
        return ended

    def _keep(self, ended: Attacked, began: float) -> None:
        ended.seconds, ended.shared_seconds = time.monotonic() - began - self._making, self._making
        if self._written is not None:
            self._written.add(ended)

    def _trial(
        self, name: str, number: int, attack: UpdateAttack, honest: dict[str, AttackedTrial]
    ) -> AttackedTrial:
        how = self._settings, self._config, self._dataset, number
        seed = self._config.seed + number
        if isinstance(attack, ModelPlantingAttack):
            self._on_trial(name, number)
            planted = planted_trial(attack, name, *how)
            # Nearly the same for all methods: only what they make of layers differs.
            self._sizes[attack.name] = planted.layout.size
            return AttackedTrial(planted, seed)
        if name not in honest:
            self._on_trial(name, number)
            began = time.monotonic()
            trial = Trial(name, *how)
            self._making = time.monotonic() - began
            self._seconds[name], self._parameters[name] = trial.round_seconds, trial.layout.size
            honest[name] = AttackedTrial(trial, seed)
        return honest[name]

    def attack_methods(self) -> None:
        """Run the attacks that have federations of their own; a method that is begun in time is ended."""
        for kind in self._on_methods:
            attack = kind(self._config, self._settings, self._dataset, self._parties)
            began = time.monotonic()
            for name in self._quick_first(0):
                spent = self._earlier[kind.name] + time.monotonic() - began
                if spent > self._share and not self._has_ended(name, kind.name):
                    continue
                ended = self._ended(name, kind.name)
                if ended is None:
                    ended = Attacked(name, kind.name, -1)
                    begins, self._making = time.monotonic(), 0.0
                    self._on_trial(name, 0)
                    try:
                        ended.cells = attack.cells(name, self._on_trial)
                    except ShieldError as error:
                        why = str(error)
                        ended.cells = [
                            Cell(name, kind.name, party.name, "does not apply", why)
                            for party in self._parties
                        ]
                    self._keep(ended, begins)
                self._cells |= {(name, kind.name, cell.party): cell for cell in ended.cells}

    def finished(self, seconds: float) -> AuditResult:
        """Return the result, with a cell for everything that was asked for."""
        result = self.result
        for attack in self._on_updates:
            for name in self._names:
                for party in self._parties:
                    tries = self._tries.get((name, attack.name, party.name))
                    result.cells.append(
                        self._not_reached(name, attack.name, party.name)
                        if tries is None
                        else tries.cell(name, attack, party.name, self._config.seed)
                    )
        result.cells += [
            self._cells.get((name, kind.name, party.name)) or self._not_reached(name, kind.name, party.name)
            for kind in self._on_methods
            for name in self._names
            for party in self._parties
        ]
        told = [
            cell
            for cell in result.cells
            if cell.attack in {kind.name for kind in self._on_methods if kind.is_told}
        ]
        result.notes += in_words(told)
        result.seconds = seconds + sum(self._earlier.values())
        if self._written is not None:
            self._written.finish(result)
        return result

    def _not_reached(self, method: str, attack: str, party: str) -> Cell:
        over = "the audit ended before this method's turn"
        if (method, attack) in self._too_long:
            over = "one federation of it would have taken longer than what was left of this attack's time"
        own = self._left_out.get((method, attack), over)
        why = self._left_out.get((method, ""), own)
        return Cell(method, attack, party, "not attacked", why)


def _model_of(attack: UpdateAttack) -> str:
    """Return which federations an attack is on: its own by name, or "" for those whose model nobody has altered."""
    return attack.name if isinstance(attack, ModelPlantingAttack) else ""
