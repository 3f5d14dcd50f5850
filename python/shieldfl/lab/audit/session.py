"""Runs an audit: what each party gets of each method's federations is attacked with every attack."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attack import UpdateAttack
from shieldfl.lab.audit.attacks.offered import usable_attacks
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.figures import FIGURES, bootstrap_interval
from shieldfl.lab.audit.piece import OWN_FEDERATIONS, Asked, Attacked, Found, Piece, PieceWorker
from shieldfl.lab.audit.result import UNDEFENDED, AuditResult, Cell, Outcome, in_words
from shieldfl.lab.audit.schedule import Processes, Schedule
from shieldfl.lab.audit.views.trial import model_kind
from shieldfl.lab.audit.views.view import party_named
from shieldfl.lab.audit.written_audit import WrittenAudit, audit_identity
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.lab.simulation.runner import describe_environment
from shieldfl.lab.simulation.training_device import torch_threads
from shieldfl.methods.discovery import checked_methods
from shieldfl.methods.settings import MethodSettings

_ALONE = 10.0
"""Seconds after which an audit is worth other processes, which take some to begin."""
_MOST_WORKERS = 8
"""By default: each has torch and the data in memory."""


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

    The budget is shared out evenly among attacks; what one does not need is given to others. After some seconds other
    processes go on with it, as many as the configuration says.

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
    try:
        with torch_threads(config.threads or 1):
            session.attack()
    except KeyboardInterrupt as error:
        session.result.notes.append(
            "the audit was interrupted: what it had not come to is marked as not attacked"
        )
        raise AuditInterrupted(session.finished()) from error
    return session.finished()


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
        self._began = time.monotonic()
        self._config, self._on_trial = config, on_trial
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
        self._dataset = load_dataset(config.dataset, config.data_dir)
        self._written: WrittenAudit | None = None
        if config.folder is not None:
            identity = audit_identity(config, self._names, attacks, parties, settings, self._dataset)
            self._written = WrittenAudit(Path(config.folder), identity, resume=config.resume)
        made = [*(one.name for one in self._on_updates), *(kind.name for kind in self._on_methods)]
        self._asked = Asked(config, tuple(made), tuple(parties), settings)
        self._workers = min(config.workers or min(_cores(), _MOST_WORKERS), len(self._names) * len(made))
        self._schedule = Schedule(
            self._names,
            self._on_updates,
            [kind.name for kind in self._on_methods],
            config.trials,
            60 * config.budget_minutes * self._workers,
            self._workers,
        )
        self._earlier = 0.0
        """Seconds that earlier processes have spent."""
        self._ended: defaultdict[tuple[str, str], dict[int, Attacked]] = defaultdict(dict)
        """By method and attack: what has ended, by trial."""
        self.result = AuditResult(
            asdict(config), describe_environment(), self._dataset.description, model_kind(config)
        )
        self.result.notes += left_out
        if "aggregator" not in parties:
            self.result.notes.append(
                f"what the aggregator gets of {UNDEFENDED} was not asked for: without it no cell is marked all"
            )

    def attack(self) -> None:
        """Do pieces until all are done, or the time is over; take over what an earlier process has ended."""
        for one in () if self._written is None else self._written.ended:
            self._earlier += (one.seconds + one.shared_seconds) / self._workers
            self._take_in(one)
        worker = PieceWorker(self._asked, self._dataset, self._on_trial)
        while self._workers == 1 or time.monotonic() - self._began <= _ALONE:
            piece = self._next()
            if piece is None:
                return
            self._keep(worker.do(piece))
        others = Processes(self._workers, self._asked)
        try:
            while True:
                while others.idle and (piece := self._next()) is not None:
                    others.begin(piece)
                if not others.running:
                    return
                self._keep(others.wait())
        finally:
            others.stop()

    def _next(self) -> Piece | None:
        spent = self._earlier + time.monotonic() - self._began
        piece = self._schedule.next((60 * self._config.budget_minutes - spent) * self._workers)
        if piece is not None:
            self._on_trial(piece.method, max(piece.trial, 0))
        return piece

    def _keep(self, ended: Sequence[Attacked]) -> None:
        for one in ended:
            self._take_in(one)
        if self._written is not None:
            self._written.add(ended)

    def _take_in(self, one: Attacked) -> None:
        self._schedule.take_in(one)
        self._ended[one.method, one.attack][one.trial] = one

    def finished(self) -> AuditResult:
        """Return the result, with a cell for everything that was asked for."""
        result = self.result
        result.notes += self._notes_of_left_out()
        for attack in self._on_updates:
            for name in self._names:
                result.cells += self._cells(name, attack)
        for kind in self._on_methods:
            for name in self._names:
                ended = self._ended[name, kind.name].get(OWN_FEDERATIONS)
                cells = {} if ended is None else {cell.party: cell for cell in ended.cells}
                result.cells += [
                    cells.get(party.name) or self._not_reached(name, kind.name, party.name)
                    for party in self._parties
                ]
        told = {kind.name for kind in self._on_methods if kind.is_told}
        result.notes += in_words([cell for cell in result.cells if cell.attack in told])
        result.seconds = self._earlier + time.monotonic() - self._began
        if self._written is not None:
            self._written.finish(result)
        return result

    def _cells(self, method: str, attack: UpdateAttack) -> list[Cell]:
        ended = [one for _, one in sorted(self._ended[method, attack.name].items())]  # whichever ended first
        return [
            _cell(method, attack, party.name, found, self._config.seed)
            if (found := [one.found[party.name] for one in ended if party.name in one.found])
            else self._not_reached(method, attack.name, party.name)
            for party in self._parties
        ]

    def _left_out(self, method: str, attack: str) -> Attacked | None:
        """Return the first trial in which a method refused what an attack's federations are."""
        failed = [one for one in self._ended[method, attack].values() if one.left_out is not None]
        return min(failed, key=lambda one: one.trial, default=None)

    def _notes_of_left_out(self) -> list[str]:
        """Return a line for each method that was left out: once for all attacks that share its federations."""
        notes: dict[str, None] = {}
        for name in self._names:
            for attack in self._on_updates:
                one = self._left_out(name, attack.name)
                if one is not None:
                    under = f" under {attack.name}" if attack.name in self._schedule.planting else ""
                    notes[f"{name}: left out{under} from trial {one.trial + 1} on: {one.left_out}"] = None
        return list(notes)

    def _not_reached(self, method: str, attack: str, party: str) -> Cell:
        why = "the audit ended before this method's turn"
        if (method, attack) in self._schedule.too_long:
            why = "one federation of it would have taken longer than what was left of this attack's time"
        every = [self._left_out(method, name) for name in (attack, *self._schedule.honest)]
        failed = [one for one in every if one is not None]
        return Cell(method, attack, party, "not attacked", str(failed[0].left_out) if failed else why)


def _cores() -> int:
    """Return how many this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _cell(method: str, attack: UpdateAttack, party: str, every: Sequence[Found], seed: int) -> Cell:
    """Return what came of several trials: the form with the highest mean."""
    forms: dict[str, list[Outcome]] = {}
    for one in every:
        for form, outcome in one.outcomes:
            forms.setdefault(form, []).append(outcome)
    if not forms:
        if reason := next((one.reason for one in every if one.reason), ""):
            return Cell(method, attack.name, party, "does not apply", reason)
        if not any(one.received for one in every):
            why = "no value of a client's update, and no sum with it, came to this party"
            return Cell(method, attack.name, party, "nothing received", why)
        return Cell(method, attack.name, party, "not attacked", "the audit ended before the first try")
    means = {form: float(np.mean([one.figure for one in found])) for form, found in forms.items()}
    form = max(means, key=lambda name: means[name])
    found = forms[form]
    interval = bootstrap_interval([one.figure for one in found], "mean", seed)
    remarks = Counter(one.remark for one in found if one.remark)
    return Cell(
        method,
        attack.name,
        party,
        "attacked",
        measured_by=FIGURES[attack.recovers],
        figure=means[form],
        low=interval.low,
        high=interval.high,
        chance=float(np.mean([one.chance for one in found])),
        tries=len(found),
        form=form
        + "".join(f"; {remark}, in {count} of {len(found)} tries" for remark, count in remarks.items()),
        others={
            name: float(np.mean([one.others[name] for one in found if name in one.others]))
            for name in sorted({name for one in found for name in one.others})
        },
        example=next((one.example for one in found if one.example is not None), None),
    )
