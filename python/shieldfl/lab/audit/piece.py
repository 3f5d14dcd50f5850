"""Pieces of an audit (a federation under attack, or all those of one attack), and processes that do them.

The number of processes does not change a piece's result.
"""

from __future__ import annotations

import functools
import math
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from multiprocessing import get_context
from threading import Thread
from types import ModuleType
from typing import Any, cast

import numpy as np
import torch

from shieldfl.errors import ParameterError, ShieldError
from shieldfl.lab.audit.attack import (
    UNDEFENDED,
    Cell,
    FederationAttack,
    ModelPlantingAttack,
    OnFederation,
    Outcome,
    UpdateAttack,
    image_outcome,
    label_outcome,
    usable_attacks,
)
from shieldfl.lab.audit.attacks.labels import exposed_elsewhere, guesses
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.audit.views.view import (
    KnownChange,
    Party,
    Trial,
    first_model,
    party_named,
    why_sums_are_unread,
)
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.lab.simulation.federation import end_with_parent
from shieldfl.methods.registry import MethodSettings
from shieldfl.models.torch_bridge import flatten

OWN_FEDERATIONS = -1
"""Trial number of a piece that does all of an attack with federations of its own."""

_SERVER = party_named("aggregator")

_SEVERAL = "all that this party has is sums over several clients, in which images are not searched for"

_ALIKE = 1e-6
"""Largest squared distance, as a share of an update's squared length, that counts as rounding.

No search for images gets near enough to notice it.
"""

_AS_PLAIN = f"attacked as {UNDEFENDED}'s update, which it is up to rounding"

_SYNTHETIC = "this party received updates of rounds on synthetic data alone"


Asked = tuple[AuditConfig, Sequence[str], Sequence[str], MethodSettings]
"""An audit's configuration, the names of attacks, the names of parties, and the methods' settings."""


@dataclass(frozen=True)
class Piece:
    method: str
    trial: int
    """Number of the trial, or :data:`OWN_FEDERATIONS`."""
    attacks: tuple[str, ...]
    """Names of the attacks on one federation; several only if none of them alters its model."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time limit in seconds, by name of an attack on updates; a search that has begun by then still ends."""
    rows: int | None = None
    """Number of rows of the planted layer; None for the attack's own number.

    Fewer rows replace a number that would take too long.
    """


@dataclass
class Found:
    received: bool = False
    """Whether the party knows a value of the client's update, or of a sum that includes it."""
    reason: str = ""
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    """Form and outcome of each try, in the order of the tries."""


@dataclass
class Attacked:
    """Result of an attack on one trial of a method, or of all of an attack with federations of its own."""

    method: str
    attack: str
    trial: int
    seconds: float = 0.0
    """Seconds that this took, with the attack's part of a federation that several attacks share."""
    left_out: str | None = None
    """Why the method is left out from this trial on, or of an attack with its own federations; else None."""
    found: dict[str, Found] = field(default_factory=dict)
    """What a trial gave each party, by name of the party; empty for an attack with its own federations."""
    cells: list[Cell] = field(default_factory=list)
    """Cells of an attack with its own federations; else empty."""
    round_seconds: float | None = None
    """Seconds of a round with an unaltered model; None if the model was altered, or no federation ran."""
    parameters: int | None = None
    """Parameter count of the model; None if its planted layer has fewer rows, or no federation ran."""


class AttackedTrial:
    """Attacks on one trial; what several parties have alike is attacked once.

    Attacks on images take minutes, attacks on labels milliseconds. Images are therefore searched for in one
    client alone, in a party's first message and first sum. On sums over several clients, only attacks that
    plant a layer are tried.

    ``plain`` is the same trial of the undefended method. An update that equals the undefended one up to
    rounding is attacked as that one, without the rounding, and so once for all methods; None attacks each by
    itself. ``known`` has the results on updates of this trial so far, also of other methods; more are added.
    """

    def __init__(
        self,
        trial: Trial,
        seed: int,
        plain: Trial | None = None,
        known: dict[bytes, Outcome | str] | None = None,
    ) -> None:
        self._trial = trial
        self._seed = seed
        self._plain = plain
        self._known = {} if known is None else known

    def found(self, party: Party, attack: UpdateAttack, ends: float = math.inf, how: str = "") -> Found:
        """Return an attack's outcome on each update that a party has, by form; or why it does not apply.

        Once the clock is past ``ends``, no further attack begins.
        """
        found = Found()
        for known, changes, why in self._changes(party, attack):
            found.received = True
            found.reason = found.reason or why
            for form, observed, remark in () if why else self._forms(known, changes, attack):
                key = _digest(attack, observed, known.clients)
                if key not in self._known:
                    if time.monotonic() > ends:
                        return found
                    self._known[key] = self._attacked(attack, observed, known)
                outcome = self._known[key]
                if isinstance(outcome, str):
                    found.reason = found.reason or outcome
                else:
                    outcome = replace(outcome, remark=outcome.remark or remark)
                    found.outcomes.append((form + how, outcome))
        return found

    def _changes(
        self, party: Party, attack: UpdateAttack
    ) -> Iterator[tuple[KnownChange, list[KnownChange], str]]:
        """Yield a change that the party has of a victim, all of them, and why it is not attacked, or "".

        Of sums of one round that share clients, only the first is a try: others would say the same again.
        """
        counted: dict[str, set[int]] = {}
        images = attack.recovers == "images"
        for victim in range(1 if images else self._trial.config.clients):
            changes = list(self._trial.changes(party, victim))
            for known in changes:
                already = counted.setdefault(known.source if images else _place(known), set())
                if known.source == "sum" and (why := why_sums_are_unread(self._trial.method)):
                    yield known, changes, why
                elif known.synthetic:
                    yield known, changes, _SYNTHETIC
                elif images and len(known.clients) > 1 and not isinstance(attack, ModelPlantingAttack):
                    yield known, changes, _SEVERAL
                elif already.isdisjoint(known.clients):
                    already.update(known.clients)
                    yield known, changes, ""

    def _forms(
        self, known: KnownChange, changes: Sequence[KnownChange], attack: UpdateAttack
    ) -> Iterator[tuple[str, ObservedUpdate, str]]:
        """Yield form, update and remark of each attack.

        If images are searched for in one client's whole update, it is the same update without rounding.
        """
        observed, place, dataset = self._trial.as_update(known), _place(known), self._trial.dataset
        if attack.recovers == "images":
            # Positions that are not known are left out by such attacks themselves.
            yield self._without_rounding(known) or (place, observed, "")
            return
        public = dataset.test_features, dataset.test_labels
        for how, guess in guesses(observed, exposed_elsewhere(known, changes), public, self._seed):
            yield f"{place}, {how}", guess, ""

    def _without_rounding(self, known: KnownChange) -> tuple[str, ObservedUpdate, str] | None:
        if len(known.clients) > 1 or not known.known.all():
            return None
        for trial in (self._plain or self._trial, self._trial):
            for other in trial.changes(_SERVER, known.clients[0]):
                if (other.source, other.round) == ("message", known.round) and _is_alike(known, other):
                    return _place(known), trial.as_update(other), "" if trial is self._trial else _AS_PLAIN
        return None

    def _attacked(self, attack: UpdateAttack, observed: ObservedUpdate, known: KnownChange) -> Outcome | str:
        (features, labels), dataset = self._trial.truth(known.clients), self._trial.dataset
        try:
            if (reason := attack.inapplicable(observed)) is not None:
                return reason
            recovered = attack.recover(observed, self._seed)
            if attack.recovers == "labels":
                return label_outcome(recovered, labels, dataset.classes)
            return image_outcome(recovered, features, dataset.test_features, observed.value_range, self._seed)
        except ShieldError as error:
            return str(error)


def _is_alike(known: KnownChange, whole: KnownChange) -> bool:
    if known.start is None or whole.start is None or known.change.shape != whole.change.shape:
        return False
    most = _ALIKE * float(np.square(whole.change, dtype=np.float64).sum())
    pairs = (known.change, whole.change), (known.start, whole.start)
    apart = [one.astype(np.float64) - two for one, two in pairs]
    return bool(whole.known.all()) and all(float(one @ one) <= most for one in apart)


def _place(known: KnownChange) -> str:
    what = "update" if known.source == "message" else f"sum of {len(known.clients)}"
    return f"{what}, round {known.round}"


def _digest(attack: UpdateAttack, observed: ObservedUpdate, clients: tuple[int, ...]) -> bytes:
    hashed = sha256(attack.name.encode())
    start = flatten(observed.model)
    own = observed.change, observed.known, observed.deviation, start
    for part in (*(one.tobytes() for one in own), repr(clients).encode()):
        hashed.update(part)
    return hashed.digest()


def planted_trial(
    attack: ModelPlantingAttack,
    name: str,
    settings: MethodSettings,
    config: AuditConfig,
    dataset: Dataset,
    number: int,
) -> Trial:
    """Run a federation whose first model is the attacker's, until a round is on clients' own data."""
    run = config.run_config(number)
    plain = first_model(run, dataset)
    for rounds in range(1, config.rounds + 1):
        planting = attack if rounds == 1 else attack.lasting()
        model = planting.planted(plain, dataset.feature_shape, dataset.test_features, run.seed)
        trial = Trial(name, settings, replace(config, rounds=rounds), dataset, number, model)
        if not all(one.synthetic for one in trial.record.disclosures.values()):
            break
    return trial


class PieceWorker:
    """Does pieces in this process; ``on_federation`` is told of an attack's own federations."""

    def __init__(
        self,
        asked: Asked,
        dataset: Dataset,
        on_federation: OnFederation = lambda method, number: None,
    ) -> None:
        self._config, attacks, parties, self._settings = asked
        self._dataset, self._on_federation = dataset, on_federation
        self._attacks = {attack.name: attack for attack in usable_attacks(attacks)[0]}
        self._on_methods: dict[str, FederationAttack] = {}
        self._parties = tuple(party_named(name) for name in parties)
        self._plain: dict[int, Trial | None] = {}
        """Undefended trial by its number, for the last number with a search for images; None if refused."""
        self._known: dict[bytes, Outcome | str] = {}
        """Outcome of each search for images in trials of that number, or why it does not apply, by digest."""

    def do(self, piece: Piece) -> list[Attacked]:
        if piece.trial == OWN_FEDERATIONS:
            return [self._own_federations(piece.method, name) for name in piece.attacks]
        began = time.monotonic()
        attacks = [cast(UpdateAttack, self._attacks[name]) for name in piece.attacks]
        ended = [Attacked(piece.method, one.name, piece.trial) for one in attacks]
        if piece.rows is not None:
            attacks = [replace(cast(Any, attacks[0]), rows=piece.rows)]
        planting = attacks[0] if isinstance(attacks[0], ModelPlantingAttack) else None
        how = piece.method, self._settings, self._config, self._dataset, piece.trial
        try:
            trial = Trial(*how) if planting is None else planted_trial(planting, *how)
        except ShieldError as error:
            for one in ended:
                one.seconds, one.left_out = (time.monotonic() - began) / len(attacks), str(error)
            return ended
        # Time that several attacks share is not charged to the first alone; a planting attack shares none.
        made = 0.0 if planting is not None else time.monotonic() - began
        searches = planting is None and any(one.recovers == "images" for one in attacks)
        shared = (self._plain_of(piece, trial), self._known) if searches else ()
        attacked = AttackedTrial(trial, self._config.seed + piece.trial, *shared)
        with_rows = f", with {piece.rows} rows, since more would have taken too long" if piece.rows else ""
        for one, attack in zip(ended, attacks, strict=True):
            ends = began + made + piece.seconds.get(attack.name, math.inf)
            try:
                for party in self._parties:
                    one.found[party.name] = attacked.found(party, attack, ends, with_rows)
            except ShieldError as error:
                one.found, one.left_out = {}, str(error)
            one.seconds = time.monotonic() - began - made + made / len(attacks)
            began = time.monotonic() - made
            one.round_seconds = trial.round_seconds if planting is None else None
            one.parameters = trial.layout.size if piece.rows is None else None
        return ended

    def _plain_of(self, piece: Piece, trial: Trial) -> Trial | None:
        if piece.trial not in self._plain:
            how = UNDEFENDED, self._settings, self._config, self._dataset, piece.trial
            self._plain, self._known = {piece.trial: None}, {}
            with suppress(ShieldError):
                self._plain[piece.trial] = trial if piece.method == UNDEFENDED else Trial(*how)
        return self._plain[piece.trial]

    def _own_federations(self, method: str, name: str) -> Attacked:
        began = time.monotonic()
        ended = Attacked(method, name, OWN_FEDERATIONS)
        try:
            if name not in self._on_methods:
                kind = cast(type[FederationAttack], self._attacks[name])
                self._on_methods[name] = kind(self._config, self._settings, self._dataset, self._parties)
            ended.cells = self._on_methods[name].cells(method, self._on_federation)
        except ShieldError as error:
            ended.cells = [
                Cell(method, name, party.name, "does not apply", str(error)) for party in self._parties
            ]
        ended.seconds = time.monotonic() - began
        return ended


_ENDED = "the process that attacked it ended by itself: is there enough memory?"


_Process = tuple[ProcessPoolExecutor, Future[int]]
"""A pool with one process, and a future that tells whether the process has begun.

One pool each lets the other processes continue where one ends.
"""


def _begun() -> _Process:
    with _no_script():
        # No copies of this process, whose libraries have threads.
        pool = ProcessPoolExecutor(1, get_context("spawn"), _begin)
        return pool, pool.submit(os.getpid)


def _stop(process: _Process) -> None:
    pool, _ = process
    for one in list((pool._processes or {}).values()):
        one.kill()
    pool.shutdown()


class Processes:
    """A number of fresh processes, each with one piece at a time.

    The process that began them handles Ctrl-C, and stops them. A process may end by itself, for example if
    memory runs out. The result of its piece then says so, and another process takes its place.
    """

    def __init__(self, count: int, asked: Asked) -> None:
        # Plain pickles: torch would have tensors passed on by open files.
        self._frame = pickle.dumps(asked)
        self.idle = [_begun() for _ in range(count)]
        self.running: dict[Future[bytes], tuple[_Process, Piece]] = {}

    def begin(self, piece: Piece) -> None:
        process = self.idle.pop()
        self.running[process[0].submit(_do, self._frame, piece)] = process, piece

    def wait(self) -> list[Attacked]:
        """Wait until a piece has ended. Raises ParameterError where processes cannot be begun."""
        ended: list[Attacked] = []
        for future in wait(self.running, return_when=FIRST_COMPLETED).done:
            process, piece = self.running.pop(future)
            try:
                ended += pickle.loads(future.result())  # of a process of our own making
            except BrokenProcessPool:
                if process[1].exception() is not None:
                    raise ParameterError(
                        "another process could not be begun here: do all in one, by workers = 1 (--workers 1)"
                    ) from None
                ended += [
                    Attacked(piece.method, name, piece.trial, left_out=_ENDED) for name in piece.attacks
                ]
                _stop(process)
                process = _begun()
            self.idle.append(process)
        return ended

    def stop(self) -> None:
        for process in (*self.idle, *(process for process, _ in self.running.values())):
            _stop(process)


@contextmanager
def _no_script() -> Iterator[None]:
    """Keep processes begun within from running this process's script, which may have no guard for it.

    They also take no modules from the current folder before they have this process's path.
    """
    script, safe_path = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if safe_path is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe_path


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=end_with_parent, daemon=True).start()


@functools.cache
def _worker(frame: bytes) -> PieceWorker:
    asked: Asked = pickle.loads(frame)
    config = asked[0]
    torch.set_num_threads(config.threads or 1)
    return PieceWorker(asked, load_dataset(config.dataset, config.data_dir))


def _do(frame: bytes, piece: Piece) -> bytes:
    return pickle.dumps(_worker(frame).do(piece))
