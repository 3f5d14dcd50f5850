"""One trial under attack: every party's updates, with every guess for what is hidden, the same ones once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from shieldfl.audit.attack import ModelPlantingAttack, UpdateAttack
from shieldfl.audit.attacker.guesses import exposed_elsewhere, guesses
from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.result import UNDEFENDED
from shieldfl.audit.scores.outcome import Outcome, image_outcome, label_outcome
from shieldfl.audit.views.observed_update import FloatVector, ObservedUpdate
from shieldfl.audit.views.parties import Party, party_named
from shieldfl.audit.views.trial import Trial, model_kind
from shieldfl.audit.views.view import KnownChange
from shieldfl.errors import ShieldError
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.data import Dataset
from shieldfl.torch_bridge import flatten
from shieldfl.training.models import build_model

__all__ = ["AttackedTrial", "planted_trial"]


_SERVER = party_named("aggregator")

_SEVERAL = "all that this party has is sums over several clients, in which images are not searched for"

_ALIKE = 1e-6
"""Of an update's square length: what rounding takes off it, and no search for images gets near enough to feel."""

_AS_PLAIN = f"attacked as {UNDEFENDED}'s update, which it is up to rounding"

_SYNTHETIC = "what this party has of a client's update is of rounds on synthetic data alone"


class AttackedTrial:
    """One trial, attacked: what is the same to several parties is attacked once.

    Attacks on images take minutes where those on labels take milliseconds: they are tried on one client, of a party's
    messages and of its sums on the first each. On sums over several clients those alone are tried that plant a layer.

    Parameters
    ----------
    trial : a method's.
    seed : of the attacks.
    plain : the same trial of what defends nothing. An update that is that one's up to rounding is attacked as it is
        there, without what was rounded, and so once for all methods. None attacks each by itself.
    known : what came of updates of this trial before, also of other methods'; more is added.
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
                plain = self._without_rounding(known) if attack.recovers == "images" else None
                forms = self._forms(known, changes, attack) if plain is None else [plain[:2]]
                for form, observed in forms:
                    key = _digest(attack, observed, known.clients)
                    if key not in self._known and is_over():
                        return
                    outcome = self._outcome(key, attack, observed, known)
                    if isinstance(outcome, Outcome) and plain is not None:
                        outcome = replace(outcome, remark=outcome.remark or plain[2])
                    yield form, outcome

    def _without_rounding(self, known: KnownChange) -> tuple[str, ObservedUpdate, str] | None:
        """Return what is attacked in the place of one client's update, with its form and a remark; None for itself."""
        if len(known.clients) > 1 or known.start is None or not known.known.all():
            return None
        own = (self._trial, "")
        plain = [] if self._plain is None else [(self._plain, _AS_PLAIN)]
        for trial, remark in [own] if self._trial.method.name == UNDEFENDED else [*plain, own]:
            for other in trial.changes(_SERVER, known.clients[0]):
                if other.source != "message" or other.round != known.round or other.start is None:
                    continue
                pairs = (known.change, other.change), (known.start, other.start)
                if other.known.all() and all(_is_alike(one, two, other.change) for one, two in pairs):
                    return _place(known), trial.as_update(other), remark
        return None

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


def _is_alike(one: FloatVector, two: FloatVector, change: FloatVector) -> bool:
    if one.shape != two.shape:
        return False
    apart = one.astype(np.float64) - two
    return float(apart @ apart) <= _ALIKE * float(np.square(change, dtype=np.float64).sum())


def _place(known: KnownChange) -> str:
    """Say of what, and of which round, a change is known."""
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
