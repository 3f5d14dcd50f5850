"""Runs an audit: federations of each method, one after another, attacked by every party with every attack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256

import numpy as np

from shieldfl.audit.attack import ModelPlantingAttack, UpdateAttack
from shieldfl.audit.attacks.offered import attacks_named
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.guesses import exposed_elsewhere, guesses
from shieldfl.audit.intervals import bootstrap_interval
from shieldfl.audit.observed_update import ObservedUpdate
from shieldfl.audit.outcome import FIGURES, Outcome, image_outcome, label_outcome
from shieldfl.audit.parties import Party, party_named
from shieldfl.audit.result import UNDEFENDED, AuditResult, Cell
from shieldfl.audit.trial import Trial
from shieldfl.audit.views import KnownChange
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.methods.discovery import checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset, load_dataset
from shieldfl.simulation.driver import describe_environment
from shieldfl.simulation.torch_threads import torch_threads
from shieldfl.training.models import build_model, default_model

__all__ = ["run_audit"]


@dataclass
class _Tries:
    """What came of one method, attack and party so far."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    """By form."""
    reason: str = ""
    """Why the attack did not apply, where it did not."""
    received: bool = False
    """Whether the party ever knew a value of the client's update, or of a sum with it."""

    def cell(self, method: str, attack: UpdateAttack, party: str, seed: int) -> Cell:
        """Return what came of it: the form with the highest mean."""
        if not self.outcomes:
            if self.reason:
                return Cell(method, attack.name, party, "does not apply", self.reason)
            if not self.received:
                why = "no value of a client's update, and no sum with it, came to this party"
                return Cell(method, attack.name, party, "nothing received", why)
            return Cell(
                method, attack.name, party, "not attacked", "the budget was over before the first try"
            )
        means = {form: float(np.mean([one.figure for one in found])) for form, found in self.outcomes.items()}
        form = max(means, key=lambda name: means[name])
        found = self.outcomes[form]
        interval = bootstrap_interval([one.figure for one in found], "mean", seed)
        names = sorted({name for one in found for name in one.others})
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
            form=form,
            others={
                name: float(np.mean([one.others[name] for one in found if name in one.others]))
                for name in names
            },
            example=next((one.example for one in found if one.example is not None), None),
        )


class _Attacked:
    """One trial, attacked: what is the same to several parties is attacked once.

    Attacks on images take minutes where those on labels take milliseconds: they are tried on one client, and of a
    party's messages and of its sums on the first each.
    """

    def __init__(self, trial: Trial, seed: int) -> None:
        self._trial = trial
        self._seed = seed
        self._known: dict[bytes, Outcome | str] = {}

    def outcomes(self, party: Party, attack: UpdateAttack) -> Iterator[tuple[str, Outcome | str]]:
        """Yield what an attack came to on each update that a party has, by form; or why it does not apply."""
        clients = self._trial.config.clients
        tried: set[bytes] = set()
        for victim in range(clients if attack.recovers == "labels" else 1):
            changes = [known for known, _ in self._trial.observed(party, victim)]
            sources: set[str] = set()
            for known in changes:
                if attack.recovers == "images" and known.source in sources:
                    continue
                sources.add(known.source)
                for form, observed in self._forms(known, changes, attack):
                    key = _digest(attack, observed, known)
                    if key in tried:  # a sum that several victims are in is one try
                        continue
                    tried.add(key)
                    yield form, self._outcome(key, attack, observed, known)

    def _forms(
        self, known: KnownChange, changes: Sequence[KnownChange], attack: UpdateAttack
    ) -> Iterator[tuple[str, ObservedUpdate]]:
        observed = self._trial.as_update(known)
        what = "update" if known.source == "message" else f"sum of {len(known.clients)}"
        if attack.recovers == "images":
            # Positions that are not known are left out by such attacks themselves.
            yield f"{what}, round {known.round}", observed
            return
        dataset = self._trial.dataset
        public = dataset.test_features, dataset.test_labels
        for how, guess in guesses(observed, exposed_elsewhere(known, changes), public, self._seed):
            yield f"{what}, round {known.round}, {how}", guess

    def _outcome(
        self, key: bytes, attack: UpdateAttack, observed: ObservedUpdate, known: KnownChange
    ) -> Outcome | str:
        if key not in self._known:
            self._known[key] = attack.inapplicable(observed) or self._attacked(attack, observed, known)
        return self._known[key]

    def _attacked(self, attack: UpdateAttack, observed: ObservedUpdate, known: KnownChange) -> Outcome:
        recovered = attack.recover(observed, self._seed)
        truth, dataset = self._trial.truth(known.clients), self._trial.dataset
        if attack.recovers == "labels":
            return label_outcome(recovered, truth, dataset.classes)
        return image_outcome(recovered, truth, dataset.test_features, observed.value_range, self._seed)


def _digest(attack: UpdateAttack, observed: ObservedUpdate, known: KnownChange) -> bytes:
    hashed = sha256(attack.name.encode())
    start = b"" if known.start is None else known.start.tobytes()
    for part in (observed.change.tobytes(), observed.known.tobytes(), start, repr(known.clients).encode()):
        hashed.update(part)
    return hashed.digest()


def run_audit(
    config: AuditConfig,
    methods: Sequence[str],
    attacks: Sequence[str],
    parties: Sequence[str],
    settings: MethodSettings | None = None,
    on_trial: Callable[[str, int], None] = lambda method, trial: None,
) -> AuditResult:
    """Attack what each party gets under each method, and return what the attacks got beside chance.

    Parameters
    ----------
    config : data, federation and effort.
    methods : by name; plain averaging, which defends nothing, is attacked beside them.
    attacks, parties : by name.
    settings : of the methods; None for their defaults.
    on_trial : told, before it begins, of each federation: method and number.

    Raises ParameterError for unknown names and what methods refuse, DataError. A method of which a trial fails is left
    out from there on, and a note says why.
    """
    names = checked_methods(dict.fromkeys([UNDEFENDED, *methods]))
    tried, looking = attacks_named(attacks), tuple(party_named(name) for name in parties)
    if not looking:
        raise ParameterError("name a party at least: nobody has a view otherwise")
    settings = settings or MethodSettings()
    dataset = load_dataset(config.dataset, config.data_dir)
    kind = config.model or default_model(dataset.name)
    result = AuditResult(asdict(config), describe_environment(), dataset.description, kind)
    began = time.monotonic()
    tries: dict[tuple[str, str, str], _Tries] = {}
    running = list(names)
    with torch_threads(config.threads or 1):
        for number in range(config.trials):
            for name in tuple(running):
                if time.monotonic() - began > config.budget_minutes * 60:
                    running.clear()
                    break
                on_trial(name, number)
                try:
                    _attack_once(name, number, config, settings, dataset, tried, looking, tries)
                except ShieldError as error:
                    running.remove(name)
                    result.notes.append(f"{name}: left out from trial {number + 1} on: {error}")
    for name in names:
        for attack in tried:
            for party in looking:
                found = tries.get((name, attack.name, party.name))
                if found is None:
                    why = "no federation of this method was had within the budget"
                    result.cells.append(Cell(name, attack.name, party.name, "not attacked", why))
                else:
                    result.cells.append(found.cell(name, attack, party.name, config.seed))
    result.seconds = time.monotonic() - began
    return result


def _attack_once(
    name: str,
    number: int,
    config: AuditConfig,
    settings: MethodSettings,
    dataset: Dataset,
    attacks: Sequence[UpdateAttack],
    parties: Sequence[Party],
    tries: dict[tuple[str, str, str], _Tries],
) -> None:
    """Run one federation, and one more for each attack that chooses the model, and try everything on it."""
    honest: _Attacked | None = None
    for attack in attacks:
        if isinstance(attack, ModelPlantingAttack):
            attacked = _Attacked(
                _planted(attack, name, number, config, settings, dataset), config.seed + number
            )
        else:
            honest = honest or _Attacked(Trial(name, settings, config, dataset, number), config.seed + number)
            attacked = honest
        for party in parties:
            found = tries.setdefault((name, attack.name, party.name), _Tries())
            for form, outcome in attacked.outcomes(party, attack):
                found.received = True
                if isinstance(outcome, str):
                    found.reason = outcome
                else:
                    found.outcomes.setdefault(form, []).append(outcome)


def _planted(
    attack: ModelPlantingAttack,
    name: str,
    number: int,
    config: AuditConfig,
    settings: MethodSettings,
    dataset: Dataset,
) -> Trial:
    """Run a federation whose first model is the attacker's: whoever sets a federation up chooses that."""
    run = config.run_config(number)
    kind = run.model or default_model(dataset.name)
    plain = build_model(kind, dataset.feature_shape, dataset.classes, run.seed)
    model = attack.planted(plain, dataset.feature_shape, dataset.test_features, run.seed)
    return Trial(name, settings, replace(config, rounds=1), dataset, number, model)
