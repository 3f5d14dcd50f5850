"""Runs an audit: the order of its pieces, the results so far, in a folder or not, and the cells from them."""

from __future__ import annotations

import base64
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from shieldfl.build_info import build_info, machine_facts
from shieldfl.errors import DataError, ParameterError, PolicyError, WireFormatError
from shieldfl.lab.audit.attack import (
    FEWEST_TRIES,
    FIGURES,
    UNDEFENDED,
    Attack,
    AuditInterrupted,
    AuditResult,
    Cell,
    ModelPlantingAttack,
    OnFederation,
    Outcome,
    UpdateAttack,
    bootstrap_interval,
    in_words,
    usable_attacks,
)
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.piece import OWN_FEDERATIONS, Asked, Attacked, Found, Piece, PieceWorker, Processes
from shieldfl.lab.audit.views.view import party_named
from shieldfl.lab.report.output_files import LineFile, write_whole
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.lab.simulation.federation import torch_threads
from shieldfl.lab.simulation.runner import describe_environment
from shieldfl.lab.simulation.written_run import commit_facts, digest_of, json_text
from shieldfl.methods.registry import MethodSettings, checked_methods
from shieldfl.settings import plain_settings

_SLOW = 10.0
"""Factor above which a method is slow: its round takes this many times the median round."""
_FEWEST_ROWS = 16
_LONGEST = 0.1
"""Share of the time limit for one federation with a planted layer; a slower one gets fewer rows."""


class Schedule:
    """Decides which piece is done next.

    First every attack is tried on every method: on one trial, or with its own federations. Then trials follow
    up to the fewest from which an interval is believed, and more of them in the time that is left. In each
    stage attacks have equal shares of the time; what one does not need is divided among the others. A piece
    that waits for a method's first federation holds up no other: pieces of later stages begin meanwhile.

    ``methods`` begins with the undefended one. Each of the ``processes`` has ``seconds``, and one of them
    does a piece.
    """

    def __init__(
        self,
        methods: Sequence[str],
        attacks: Sequence[Attack],
        trials: int,
        seconds: float,
        processes: int = 1,
    ) -> None:
        self._methods, self._trials = tuple(methods), trials
        self._seconds, self._processes = seconds, processes
        self._on_methods = [one.name for one in attacks if isinstance(one, type)]
        self.honest = tuple(one.name for one in attacks if not isinstance(one, (type, ModelPlantingAttack)))
        """Names of the attacks that share federations whose model nobody has altered."""
        self.planting = {one.name: one for one in attacks if isinstance(one, ModelPlantingAttack)}
        """Attacks that plant a layer, by name; each trial of each one has its own federation."""
        self._rounds: dict[str, tuple[float, int]] = {}
        """Seconds of a round with an unaltered model, and that model's number of parameters, by method."""
        self._sizes: dict[str, int] = {}
        """Number of parameters of the model with all of the planted rows, by name of the attack."""
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._begun: set[tuple[str, str, int]] = set()
        self._running: set[str] = set()
        """Methods whose first honest federation is under way, so that its duration is not known yet."""
        self._left_out: set[tuple[str, str]] = set()
        self.too_long: set[tuple[str, str]] = set()
        """Pairs of a method and an attack whose federation would have taken longer than the time left."""

    def next(self, seconds_left: float) -> Piece | None:
        """Return the next piece to begin, or None; ``seconds_left`` is the time of all processes together."""
        if seconds_left <= 0:
            return None
        waiting: set[str] = set()
        """Attacks with a piece that begins only when the duration of its method is known."""
        for pieces in self._stages():
            wanting = waiting.union(*(piece.attacks for piece in pieces))
            waiting.update(one.attacks[0] for one in pieces if self._waits(one))
            # Each attack that still wants time may use it up to the level that all of them can have.
            level = (seconds_left + sum(self._spent[one] for one in wanting)) / max(1, len(wanting))
            for most in (level,) if waiting else (level, math.inf):
                for piece in pieces:
                    own = tuple(one for one in piece.attacks if self._spent[one] < most)
                    fitting = self._fitting(piece, own, seconds_left / self._processes, level)
                    if fitting is not None:
                        self._begun |= {(piece.method, one, piece.trial) for one in own}
                        if own[0] in self.honest and piece.method not in self._rounds:
                            self._running.add(piece.method)
                        return fitting
        return None

    def _stages(self) -> Iterator[list[Piece]]:
        together = [one for one in (self.honest, *((name,) for name in self.planting)) if one]
        slow, fewest = self._slow(), min(self._trials, FEWEST_TRIES)
        for numbers in (range(1), range(1, fewest), range(fewest, self._trials)):
            tries = [(number, attacks) for number in numbers for attacks in together]
            if not numbers.start:
                tries += [(OWN_FEDERATIONS, (name,)) for name in self._on_methods]
            pieces = [
                Piece(method, number, left)
                for number, attacks in tries
                for method in self._by_turns(max(number, 0))
                if (
                    left := tuple(
                        one
                        for one in attacks
                        if (method, one, number) not in self._begun and (method, one) not in self._left_out
                    )
                )
            ]
            # Every cell once, then slow methods last.
            yield sorted(pieces, key=lambda one: numbers.start > 0 and one.method in slow)

    def _waits(self, piece: Piece) -> bool:
        return piece.attacks[0] in self.planting and piece.method in self._running

    def _fitting(self, piece: Piece, attacks: tuple[str, ...], left: float, level: float) -> Piece | None:
        """Return a piece for these of its attacks; None without attacks, or if it waits or is too long."""
        if not attacks or self._waits(piece):
            return None
        seconds = {
            one: min(left, level - self._spent[one]) if level > self._spent[one] else left for one in attacks
        }
        name, fewer = attacks[0], None
        if name in self.planting.keys() & self._sizes.keys() and piece.method in self._rounds:
            # Encryption of every parameter takes long, so the time is estimated by their number.
            round_seconds, parameters = self._rounds[piece.method]
            expected, rows = round_seconds * self._sizes[name] / parameters, self.planting[name].rows
            longest = _LONGEST * self._seconds
            if expected > longest and rows > _FEWEST_ROWS:
                fewer = max(_FEWEST_ROWS, 2 ** int(math.log2(max(rows * longest / expected, 1.0))))
                expected *= fewer / rows
            if expected > left:
                self.too_long.add((piece.method, name))
                return None
        return Piece(piece.method, piece.trial, attacks, seconds, fewer)

    def _slow(self) -> set[str]:
        usual = float(np.median([one for one, _ in self._rounds.values()] or [math.inf]))
        return self._running.union(name for name, (one, _) in self._rounds.items() if one > _SLOW * usual)

    def _by_turns(self, number: int) -> list[str]:
        """Return the undefended method, then the others, each trial from another one on: time may end."""
        turn = 1 + number % max(1, len(self._methods) - 1)
        return [UNDEFENDED, *self._methods[turn:], *self._methods[1:turn]]

    def take_in(self, one: Attacked) -> None:
        """Learn from a result how long things take, and what a method refuses, which is not asked again."""
        self._begun.add((one.method, one.attack, one.trial))
        self._spent[one.attack] += one.seconds
        sharing = self.honest if one.attack in self.honest else (one.attack,)
        if one.left_out is not None:
            self._left_out |= {(one.method, attack) for attack in sharing}
        if one.attack in self.honest:
            self._running.discard(one.method)
        if one.round_seconds is not None and one.parameters is not None:
            self._rounds.setdefault(one.method, (one.round_seconds, one.parameters))
        elif one.parameters is not None:
            self._sizes[one.attack] = one.parameters


_SETTINGS, _LINES, _RESULT = "settings.json", "attacked.jsonl", "result.json"
_FORMAT = "shieldfl audit 2"
# Settings that say where and how an audit is run; data count by their digest instead.
_PLACES = ("data_dir", "folder", "resume", "workers")


class WrittenAudit:
    """An audit's folder, with settings and results.

    Raises PolicyError for another audit's folder, DataError for no access, WireFormatError for damage.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
        self._folder = folder
        self._lines = LineFile(folder / _LINES)
        self.ended: list[Attacked] = []
        settings = folder / _SETTINGS
        if resume and not settings.exists():
            raise DataError(f"there is no audit in {folder}: begin it without --resume (resume = true)")
        if settings.exists() and not resume:
            raise PolicyError(
                f"there is an audit in {folder}, or a run: resume an audit by --resume (resume = true), or "
                "name another folder"
            )
        with self._on_disk():
            if resume:
                self._check(settings, identity)
                self.ended = [self._read(*line) for line in enumerate(self._lines.whole_lines(), start=1)]
                return
            folder.mkdir(parents=True, exist_ok=True)
            facts = {"environment": describe_environment(), "machine": machine_facts(), **commit_facts()}
            write_whole(settings, json_text({"format": _FORMAT, "audit": dict(identity), **facts}))

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"the audit's folder {self._folder} cannot be read or written: free some space, or name "
                "another"
            ) from error

    def _check(self, path: Path, identity: Mapping[str, Any]) -> None:
        try:
            read = json.loads(path.read_bytes())
            if read["format"] != _FORMAT:
                raise ValueError
            began: dict[str, Any] = dict(read["audit"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WireFormatError(
                f"{path} is damaged, or belongs to no audit of this version: begin the audit anew in "
                "another folder"
            ) from error
        other = [name for name in dict.fromkeys((*began, *identity)) if began.get(name) != identity.get(name)]
        if other:
            raise PolicyError(
                f"the audit in {self._folder} differs in {', '.join(other)}: a resumed audit keeps its "
                "settings; name another folder for another audit"
            )

    def _read(self, number: int, line: bytes) -> Attacked:
        try:
            # Not strict: numbers that JSON does not have are strings.
            return msgspec.convert(json.loads(line), Attacked, strict=False, dec_hook=_tensor)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise WireFormatError(
                f"line {number} of {self._lines.path} is damaged: delete the line, and --resume repeats "
                "its attacks"
            ) from error

    def add(self, ended: Sequence[Attacked]) -> None:
        with self._on_disk():
            for one in ended:
                self._lines.add(json.dumps(_plain(msgspec.to_builtins(one, enc_hook=_text)), allow_nan=False))

    def finish(self, result: AuditResult) -> None:
        with self._on_disk():
            write_whole(self._folder / _RESULT, json_text(result.to_json()))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _text(images: torch.Tensor) -> tuple[list[int], str]:
    array = np.ascontiguousarray(images.numpy(), dtype="<f4")
    return list(array.shape), base64.b64encode(array.tobytes()).decode()


def _tensor(kind: type, text: Any) -> torch.Tensor:
    shape, values = msgspec.convert(text, tuple[list[int], str])
    array = np.frombuffer(base64.b64decode(values, validate=True), "<f4").reshape(shape)
    return torch.from_numpy(array.astype(np.float32))


_ALONE = 10.0
"""Seconds after which an audit begins other processes, whose start takes some seconds."""
_MOST_WORKERS = 8
"""Most processes by default, since each has torch and the data in memory."""


def run_audit(
    config: AuditConfig,
    methods: Sequence[str],
    attacks: Sequence[str],
    parties: Sequence[str],
    settings: MethodSettings | None = None,
    on_trial: OnFederation = lambda method, trial: None,
) -> AuditResult:
    """Attack what each party gets under each method, and return what the attacks got beside chance.

    The budget is divided evenly among attacks; what one does not need goes to others. After some seconds
    other processes take over, as many as the configuration says. Plain averaging, which defends nothing, is
    attacked besides the methods. A method is left out from its first failed trial on, and a note says why.
    ``on_trial`` is called before each federation with its method and number. With a folder, results are
    written there as they end, and the same audit resumes from it if the configuration says so.

    Raises ParameterError for unknown names and what methods refuse, DataError, AuditInterrupted, and the
    errors of :class:`WrittenAudit`.
    """
    session = _Session(config, methods, attacks, parties, settings or MethodSettings(), on_trial)
    try:
        with torch_threads(config.threads or 1):
            session.attack()
    except KeyboardInterrupt as error:
        session.result.notes.append(
            "the audit was interrupted: what it had not reached is marked as not attacked"
        )
        raise AuditInterrupted("audit", session.finished()) from error
    return session.finished()


class _Session:
    def __init__(
        self,
        config: AuditConfig,
        methods: Sequence[str],
        attacks: Sequence[str],
        parties: Sequence[str],
        settings: MethodSettings,
        on_trial: OnFederation,
    ) -> None:
        self._began = time.monotonic()
        self._config, self._on_trial = config, on_trial
        self._names = checked_methods(dict.fromkeys([UNDEFENDED, *methods]))
        self._attacks, left_out = usable_attacks(attacks)
        self._parties = tuple(party_named(name) for name in parties)
        if not parties or len(set(parties)) < len(parties):
            raise ParameterError("name one party or several, each once")
        self._dataset = load_dataset(config.dataset, config.data_dir)
        self._written: WrittenAudit | None = None
        if config.folder is not None:
            data = self._dataset
            tensors = data.train_features, data.test_features, data.train_labels, data.test_labels
            found = {
                **{name: one for name, one in plain_settings(config).items() if name not in _PLACES},
                "method": list(self._names),
                "attack": list(attacks),
                "party": list(parties),
                **{f"the settings of {name}": plain_settings(settings.of(name)) for name in self._names},
                "the data": digest_of(*tensors),
            }
            identity = json.loads(json.dumps(found))  # as it is read again
            self._written = WrittenAudit(Path(config.folder), identity, resume=config.resume)
        made = [one.name for one in self._attacks]
        self._asked: Asked = config, tuple(made), tuple(parties), settings
        most = config.workers or min(build_info()["threads"], _MOST_WORKERS)
        self._workers = min(most, len(self._names) * len(made))
        self._schedule = Schedule(
            self._names,
            self._attacks,
            config.trials,
            60 * config.budget_minutes,
            self._workers,
        )
        self._earlier = 0.0
        self._ended: defaultdict[tuple[str, str], dict[int, Attacked]] = defaultdict(dict)
        self.result = AuditResult(
            asdict(config), describe_environment(), self._dataset.description, str(config.run_config(0).model)
        )
        self.result.notes += left_out
        if "aggregator" not in parties:
            self.result.notes.append(
                f"what the aggregator gets of {UNDEFENDED} was not asked for: without it no cell is marked "
                "all"
            )

    def attack(self) -> None:
        """Take in an earlier process's results, then do pieces until all are done or the time is over."""
        for one in () if self._written is None else self._written.ended:
            self._earlier += one.seconds / self._workers
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
        result = self.result
        result.notes += self._notes_of_left_out()
        for attack in self._attacks:
            for name in self._names:
                result.cells += self._cells(name, attack)
        told = {one.name for one in self._attacks if isinstance(one, type) and one.is_told}
        result.notes += in_words([cell for cell in result.cells if cell.attack in told])
        result.seconds = self._earlier + time.monotonic() - self._began
        if self._written is not None:
            self._written.finish(result)
        return result

    def _cells(self, method: str, attack: Attack) -> Iterator[Cell]:
        ended = [one for _, one in sorted(self._ended[method, attack.name].items())]  # whichever ended first
        made = {cell.party: cell for one in ended for cell in one.cells}
        for party in self._parties:
            found = [one.found[party.name] for one in ended if party.name in one.found]
            if isinstance(attack, UpdateAttack) and found:
                yield _cell(method, attack, party.name, found, self._config.seed)
            else:
                yield made.get(party.name) or self._not_reached(method, attack.name, party.name)

    def _left_out(self, method: str, attack: str) -> Attacked | None:
        failed = [one for one in self._ended[method, attack].values() if one.left_out is not None]
        return min(failed, key=lambda one: one.trial, default=None)

    def _notes_of_left_out(self) -> list[str]:
        notes: dict[str, None] = {}
        for name in self._names:
            for attack in (*self._schedule.honest, *self._schedule.planting):
                one = self._left_out(name, attack)
                if one is not None:
                    under = f" under {attack}" if attack in self._schedule.planting else ""
                    notes[f"{name}: left out{under} from trial {one.trial + 1} on: {one.left_out}"] = None
        return list(notes)

    def _not_reached(self, method: str, attack: str, party: str) -> Cell:
        why = "the audit ended before this method's turn"
        if (method, attack) in self._schedule.too_long:
            why = "one federation of it would have taken longer than what was left of this attack's time"
        every = [self._left_out(method, name) for name in (attack, *self._schedule.honest)]
        failed = [one for one in every if one is not None]
        return Cell(method, attack, party, "not attacked", str(failed[0].left_out) if failed else why)


def _cell(method: str, attack: UpdateAttack, party: str, every: Sequence[Found], seed: int) -> Cell:
    forms: dict[str, list[Outcome]] = {}
    for one in every:
        for form, outcome in one.outcomes:
            forms.setdefault(form, []).append(outcome)
    if not forms:
        if reason := next((one.reason for one in every if one.reason), ""):
            return Cell(method, attack.name, party, "does not apply", reason)
        if not any(one.received for one in every):
            why = "this party received no value of a client's update, and no sum that contains it"
            return Cell(method, attack.name, party, "nothing received", why)
        return Cell(method, attack.name, party, "not attacked", "the audit ended before the first try")
    means = {form: float(np.mean([one.figure for one in found])) for form, found in forms.items()}
    form = max(means, key=lambda name: means[name])
    found = forms[form]
    low, high = bootstrap_interval([one.figure for one in found], seed)
    remarks = Counter(one.remark for one in found if one.remark)
    noted = "".join(f"; {remark}, in {count} of {len(found)} tries" for remark, count in remarks.items())
    return Cell(
        method,
        attack.name,
        party,
        "attacked",
        measured_by=FIGURES[attack.recovers],
        figure=means[form],
        low=low,
        high=high,
        chance=float(np.mean([one.chance for one in found])),
        tries=len(found),
        form=form + noted,
        others={
            name: float(np.mean([one.others[name] for one in found if name in one.others]))
            for name in sorted({name for one in found for name in one.others})
        },
        example=next((one.example for one in found if one.example is not None), None),
    )
