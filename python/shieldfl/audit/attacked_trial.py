"""One trial under attack: every party's updates, with every guess for what is hidden, the same ones once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from shieldfl.audit.attack import ModelPlantingAttack, UpdateAttack
from shieldfl.audit.attacker.guesses import exposed_elsewhere, guesses
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.scores.outcome import Outcome, image_outcome, label_outcome
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.audit.views.parties import Party
from shieldfl.audit.views.trial import Trial, model_kind
from shieldfl.audit.views.view import KnownChange
from shieldfl.errors import ShieldError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset
from shieldfl.training.models import build_model

__all__ = ["AttackedTrial", "planted_trial"]


_SEVERAL = "all that this party has is sums over several clients, in which images are not searched for"

_SYNTHETIC = "what this party has of a client's update is of rounds on synthetic data alone"


class AttackedTrial:
    """One trial, attacked: what is the same to several parties is attacked once.

    Attacks on images take minutes where those on labels take milliseconds: they are tried on one client, of a party's
    messages and of its sums on the first each. On sums over several clients those alone are tried that plant a layer.
    """

    def __init__(self, trial: Trial, seed: int) -> None:
        self._trial = trial
        self._seed = seed
        self._known: dict[bytes, Outcome | str] = {}

    def _victims(self, attack: UpdateAttack) -> range:
        return range(self._trial.config.clients if attack.recovers == "labels" else 1)

    def received(self, party: Party, attack: UpdateAttack) -> bool:
        """Say whether the party knows a value of an update of those that are attacked, or of a sum with it."""
        return any(True for victim in self._victims(attack) for _ in self._trial.changes(party, victim))

    def outcomes(
        self, party: Party, attack: UpdateAttack, is_over: Callable[[], bool]
    ) -> Iterator[tuple[str, Outcome | str]]:
        """Yield what an attack came to on each update that a party has, by form; or why it does not apply.

        Of sums of one round that share clients the first alone is a try: others would say the same again. It ends
        early, before an attack that has not been done yet, where time is over.
        """
        counted: dict[str, set[int]] = {}
        for victim in self._victims(attack):
            changes = list(self._trial.changes(party, victim))
            sources: set[str] = set()
            for known in changes:
                if known.synthetic:
                    yield "", _SYNTHETIC
                    continue
                if attack.recovers == "images":
                    if len(known.clients) > 1 and not isinstance(attack, ModelPlantingAttack):
                        yield "", _SEVERAL
                        continue
                    if known.source in sources:
                        continue
                    sources.add(known.source)
                already = counted.setdefault(_place(known), set())
                if not already.isdisjoint(known.clients):
                    continue
                already.update(known.clients)
                for form, observed in self._forms(known, changes, attack):
                    key = _digest(attack, observed, known)
                    if key not in self._known and is_over():
                        return
                    yield form, self._outcome(key, attack, observed, known)

    def _forms(
        self, known: KnownChange, changes: Sequence[KnownChange], attack: UpdateAttack
    ) -> Iterator[tuple[str, ObservedUpdate]]:
        observed = self._trial.as_update(known)
        if attack.recovers == "images":
            # Positions that are not known are left out by such attacks themselves.
            yield _place(known), observed
            return
        dataset = self._trial.dataset
        public = dataset.test_features, dataset.test_labels
        for how, guess in guesses(observed, exposed_elsewhere(known, changes), public, self._seed):
            yield f"{_place(known)}, {how}", guess

    def _outcome(
        self, key: bytes, attack: UpdateAttack, observed: ObservedUpdate, known: KnownChange
    ) -> Outcome | str:
        if key not in self._known:
            try:
                self._known[key] = attack.inapplicable(observed) or self._attacked(attack, observed, known)
            except ShieldError as error:
                self._known[key] = str(error)
        return self._known[key]

    def _attacked(self, attack: UpdateAttack, observed: ObservedUpdate, known: KnownChange) -> Outcome:
        recovered = attack.recover(observed, self._seed)
        truth, dataset = self._trial.truth(known.clients), self._trial.dataset
        if attack.recovers == "labels":
            return label_outcome(recovered, truth, dataset.classes)
        return image_outcome(recovered, truth, dataset.test_features, observed.value_range, self._seed)


def _place(known: KnownChange) -> str:
    """Say of what, and of which round, a change is known."""
    what = "update" if known.source == "message" else f"sum of {len(known.clients)}"
    return f"{what}, round {known.round}"


def _digest(attack: UpdateAttack, observed: ObservedUpdate, known: KnownChange) -> bytes:
    hashed = sha256(attack.name.encode())
    start = b"" if known.start is None else known.start.tobytes()
    for part in (observed.change.tobytes(), observed.known.tobytes(), start, repr(known.clients).encode()):
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
    """Run a federation whose first model is the attacker's: whoever sets a federation up chooses that.

    It has as many rounds as it takes for one on clients' own data, at most the configuration's. How many these are
    everybody knows, so that the attacker plants what outlives those before.
    """
    run = config.run_config(number)
    kind = model_kind(config)
    plain = build_model(kind, dataset.feature_shape, dataset.classes, run.seed)
    for rounds in range(1, config.rounds + 1):
        planting = attack if rounds == 1 else attack.lasting()
        model = planting.planted(plain, dataset.feature_shape, dataset.test_features, run.seed)
        trial = Trial(name, settings, replace(config, rounds=rounds), dataset, number, model)
        if not trial.all_synthetic:
            break
    return trial
