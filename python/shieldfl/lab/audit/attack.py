"""Attacks on an update or on a method, the attacks that there are, and their results.

A package offers an attack of its own by an entry point of the group ``shieldfl.attacks``: the attack's name,
and where its class is. The class of an attack on updates is called without arguments; any other class is a
FederationAttack.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import bootstrap
from torch import Tensor, nn

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.observed_update import Counts, ObservedUpdate
from shieldfl.lab.audit.views.view import Party
from shieldfl.lab.simulation.data import Dataset
from shieldfl.methods.registry import MethodSettings

__all__ = ["FederationAttack", "ModelPlantingAttack", "Recovered", "UpdateAttack"]

UNDEFENDED = "fedavg"
"""Plain averaging, the method without protection that every audit runs beside the requested ones."""

FEWEST_TRIES = 5
"""Fewest tries from which an interval is believed, since the bootstrap resamples only these tries."""

Status = Literal["attacked", "nothing received", "does not apply", "not attacked"]
NOT_TRIED = ("does not apply", "not attacked")

Verdict = Literal["chance", "some", "all", "too few trials", "not attacked"]


@dataclass(frozen=True)
class Example:
    """Recovered images with the true ones that they are paired with, float32 (k, *sample_shape)."""

    recovered: Tensor
    true: Tensor
    neighbour: Tensor
    """Public image nearest to each true one; a reader may mistake it for a successful recovery."""
    value_range: tuple[float, float]


@dataclass(frozen=True)
class Outcome:
    figure: float
    """The attack's figure, in [0, 1]."""
    chance: float
    """Figure that a guess without the update reaches, in [0, 1]."""
    others: dict[str, float]
    remark: str
    example: Example | None = None
    """Recovered images to show; None if no image was recovered."""


@dataclass(frozen=True)
class Cell:
    """Result of one attack on one method's clients for one party, in the attack's strongest form.

    An attack is tried on every round, message and sum, and with every guess for what is hidden. The cell has
    the form with the highest mean. Its figure is a maximum, and so lies above chance by chance as well.
    """

    method: str
    attack: str
    party: str
    status: Status
    reason: str = ""
    measured_by: str = ""
    figure: float = math.nan
    """The attack's figure, for most attacks a mean over the tries; NaN if nothing was attacked."""
    low: float = -math.inf
    high: float = math.inf
    """Ends ``low`` and ``high`` of the 95 % interval, by bootstrap for most attacks; infinite without one."""
    chance: float = math.nan
    """Figure that a guess without the update reaches; NaN if nothing was attacked."""
    tries: int = 0
    form: str = ""
    """What the strongest attack used, in words: round, message or sum, and guess at hidden positions."""
    others: Mapping[str, float] = field(default_factory=dict)
    example: Example | None = None
    """Images of the first try in that form that has some, else None; they are not part of the JSON."""

    def verdict(self, undefended: Cell | None) -> Verdict:
        """Judge the figure beside the same attack on an undefended update; ``chance`` is never ``safe``.

        ``all`` means no less than on the undefended update, by intervals that overlap. Colours show verdicts,
        so statuses without a figure have one too: a party that received nothing has ``chance``.
        """
        if self.status == "nothing received":
            return "chance"
        if self.status != "attacked":
            return "not attacked"
        if self.tries < FEWEST_TRIES:
            return "too few trials"
        if self.low <= self.chance:
            return "chance"
        if undefended is not None and self.high >= undefended.low:
            return "all"
        return "some"

    def to_json(self) -> dict[str, Any]:
        facts = _without_infinities(vars(self)) | {"others": _without_infinities(self.others)}
        del facts["example"]
        return facts


def _without_infinities(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(one, float) and not math.isfinite(one) else one
        for name, one in facts.items()
    }


@dataclass
class AuditResult:
    config: dict[str, Any]
    environment: dict[str, Any]
    dataset: str
    model: str
    cells: list[Cell] = field(default_factory=list)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    """Remarks that readers need, such as the methods that were left out and why."""

    def undefended(self, attack: str) -> Cell | None:
        wanted = UNDEFENDED, attack, "aggregator", "attacked"
        of_it = (one for one in self.cells if (one.method, one.attack, one.party, one.status) == wanted)
        return next(of_it, None)

    def verdict(self, cell: Cell) -> Verdict:
        return cell.verdict(self.undefended(cell.attack))

    def to_json(self) -> dict[str, Any]:
        cells = [cell.to_json() | {"verdict": self.verdict(cell)} for cell in self.cells]
        return {name: one for name, one in vars(self).items() if name != "cells"} | {"cells": cells}


class AuditInterrupted(KeyboardInterrupt):
    def __init__(self, what: str, result: Any) -> None:
        super().__init__(f"the {what} was interrupted")
        self.result = result


def in_words(cells: Sequence[Cell]) -> list[str]:
    methods: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        if cell.status == "attacked":
            methods.setdefault((cell.attack, cell.form, cell.party), []).append(cell.method)
    parties: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (attack, form, party), names in methods.items():
        parties.setdefault((attack, form, tuple(names)), []).append(party)
    return [
        f"{attack} on {', '.join(names)}, for {' and '.join(who)}: {form}"
        for (attack, form, names), who in parties.items()
    ]


OnFederation = Callable[[str, int], None]
"""Callback before each federation, with the method's name and the federation's number."""


@dataclass(frozen=True)
class Recovered:
    """What an attack believes that a client trained on."""

    label_counts: Counts | None = None
    """Number of samples of each class, int64 (classes,); None if the attack recovers no labels."""
    images: Tensor | None = None
    """Recovered samples, float32 (m, *sample_shape), in any order; m may be 0.

    None if the attack recovers labels alone.
    """
    remark: str = ""
    """What a reader of the figure must know, such as why there are no samples; empty if nothing."""


class UpdateAttack(ABC):
    """An attack on one client's update of one round.

    An attack is stateless: the same update and seed give the same result.
    """

    name: ClassVar[str]
    """Name of the attack in tables and on the command line."""
    recovers: ClassVar[Literal["labels", "images"]]
    source: ClassVar[str]
    """The paper, with its equation or algorithm."""

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Return in one sentence why this attack cannot be tried on the update; by default None, it can."""
        return None

    @abstractmethod
    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Attack an update. Values where ``known`` is false are guesses that others have filled in."""


class ModelPlantingAttack(UpdateAttack):
    """An attack of a server that chooses the model which clients train from."""

    rows: int = 0
    """Number of rows of the planted layer; 0 if it cannot be chosen.

    The audit asks for fewer rows, at least 2, under methods that are slow for each parameter. The attack
    must then be a dataclass.
    """

    @abstractmethod
    def planted(
        self, model: nn.Module, sample_shape: tuple[int, ...], public: Tensor, seed: int
    ) -> nn.Module:
        """Return a model with the trap in it, to be sent instead of ``model``.

        ``public`` are the server's own samples, float32 (n, *sample_shape), of a similar distribution.
        """

    def lasting(self) -> ModelPlantingAttack:
        """Return the attack with a layer that outlives rounds of training and is read in a later round.

        It is used if clients' first rounds are not on their own data. By default it is this attack itself.
        """
        return self


class FederationAttack(ABC):
    """An attack on a method, which runs the federations that it needs.

    Parameters
    ----------
    config : the audit's configuration.
    settings : the methods' settings.
    dataset : the data that clients' samples are drawn from.
    parties : the parties that get a cell each.
    """

    name: str
    """Name of the attack in tables and on the command line."""
    source: str
    measured_by: str
    """Name of the figure that the attack's cells have."""
    is_told = False
    """Whether the audit's notes repeat the forms of the cells, which say in words what was achieved."""

    def __init__(
        self, config: AuditConfig, settings: MethodSettings, dataset: Dataset, parties: Sequence[Party]
    ) -> None:
        self._config, self._settings = config, settings
        self._dataset, self._parties = dataset, tuple(parties)

    @abstractmethod
    def cells(self, method: str, on_federation: OnFederation) -> list[Cell]:
        """Attack a method and return a cell for each party; ``on_federation`` is called before federations.

        Raises ParameterError if the attack does not apply to the method, and the errors of what it refuses.
        """


GROUP = "shieldfl.attacks"
BUILT_IN = {
    "ilrg": "shieldfl.lab.audit.attacks.labels:Ilrg",
    "dlg": "shieldfl.lab.audit.attacks.searches:Dlg",
    "idlg": "shieldfl.lab.audit.attacks.searches:Idlg",
    "inverting": "shieldfl.lab.audit.attacks.searches:Inverting",
    "robbing-the-fed": "shieldfl.lab.audit.attacks.planted_layers:RobbingTheFed",
    "curious-abandon-honesty": "shieldfl.lab.audit.attacks.planted_layers:CuriousAbandonHonesty",
    "label-distribution": "shieldfl.lab.audit.attacks.membership:LabelDistributionAudit",
    "membership": "shieldfl.lab.audit.attacks.membership:MembershipAudit",
    "lone-total": "shieldfl.lab.audit.protocol.lies:LoneTotal",
    "few-total": "shieldfl.lab.audit.protocol.lies:FewTotal",
    "second-total": "shieldfl.lab.audit.protocol.lies:SecondTotal",
    "late-total": "shieldfl.lab.audit.protocol.lies:LateTotal",
    "invented-clients": "shieldfl.lab.audit.protocol.lies:InventedClients",
    "tampered-ciphertext": "shieldfl.lab.audit.protocol.lies:TamperedCiphertext",
}


Attack = UpdateAttack | type[FederationAttack]


def _made(name: str, offers: list[EntryPoint]) -> Attack:
    """Load the only offer. Raises ParameterError for several offers, or one that cannot be loaded."""
    if len(offers) > 1:
        places = " and ".join(one.value for one in offers)
        raise ParameterError(f"there is more than one attack {name!r}, {places}: uninstall all but one")
    whose = f"the attack {name!r}, {offers[0].value},"
    try:
        kind = offers[0].load()
        if isinstance(kind, type) and issubclass(kind, FederationAttack):
            return kind
        attack = kind()
    except Exception as error:
        raise ParameterError(f"{whose} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(attack, UpdateAttack):
        raise ParameterError(f"{whose} is neither an UpdateAttack nor a FederationAttack")
    return attack


def usable_attacks(names: Iterable[str]) -> tuple[list[Attack], list[str]]:
    """Return attacks, first those on updates, and a line about each that cannot be loaded, with the reason.

    Raises ParameterError if none can be loaded, for an unknown name, and for a name that is given twice.
    """
    offers: dict[str, list[EntryPoint]] = {}
    for one in (*(EntryPoint(*own, GROUP) for own in BUILT_IN.items()), *sorted(entry_points(group=GROUP))):
        offers.setdefault(one.name, []).append(one)
    made: list[Attack] = []
    left_out: list[str] = []
    for name in names:
        if name not in offers:
            raise ParameterError(f"unknown attack {name!r}: choose from {', '.join(offers)}")
        try:
            made.append(_made(name, offers[name]))
        except ParameterError as error:
            left_out.append(f"left out: {error}")
    if not made or len({one.name for one in made}) < len(made):
        what = f"name one attack or several, each once: {', '.join(offers)}"
        raise ParameterError("; ".join([*left_out, what]))
    return sorted(made, key=lambda one: isinstance(one, type)), left_out


def psnr(images: Tensor, true: Tensor, value_range: tuple[float, float]) -> Tensor:
    """Return each image's peak signal-to-noise ratio in dB, (m,), with the range's width as the peak."""
    error = (images - true).double().square().flatten(1).mean(dim=1)
    return 10 * torch.log10((value_range[1] - value_range[0]) ** 2 / error)


def matched(images: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Pair recovered images (m, ...) with true ones (n, ...) so that the sum of squared distances is least.

    Each image is in one pair at most. Returns the positions of the min(m, n) recovered images in ascending
    order, and the positions of their true ones.
    """
    rows, columns = linear_sum_assignment(_squared_distances(images, true).numpy())
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _squared_distances(images: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(images.flatten(1).double(), others.flatten(1).double()).square()


LabelScores = tuple[float, float]


def label_scores(guessed: Counts, true: Counts) -> LabelScores:
    """Return LeAcc and LnAcc of guessed label counts (classes,): shares of right classes, in [0, 1].

    LeAcc asks whether a class is there: the mean of 1[(k^ > 0) = (k > 0)]. LnAcc asks how many samples it
    has: the mean of 1[k^ = k] (SenseCrypt, section 5).
    """
    return float(np.mean((guessed > 0) == (true > 0))), float(np.mean(guessed == true))


def bootstrap_interval(
    values: Sequence[float], seed: int, statistic: Callable[..., Any] = np.mean, resamples: int = 9999
) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval; its ends are infinite for one value."""
    if len(values) == 1:
        return -math.inf, math.inf
    found = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        statistic,
        n_resamples=resamples,
        batch=1000,
        confidence_level=0.95,
        # Other methods divide by the spread, which is zero if all values are the same.
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


FIGURES = {"labels": "LnAcc", "images": "IIP"}
"""Name of the figure that judges an attack, by what the attack recovers."""

_SHOWN = 8
_POOL = 100
"""Images in the pool that recovered images are looked up in; twice the client's images if that is more."""


def label_outcome(recovered: Recovered, labels: Tensor, classes: int) -> Outcome:
    """Judge counts of labels by LnAcc; chance is the best single count for all classes.

    That count is the best in hindsight: no other equal count for all classes does better without the update.
    """
    true: Counts = np.bincount(labels.numpy(), minlength=classes).astype(np.int64)
    counts = np.zeros_like(true) if recovered.label_counts is None else recovered.label_counts
    existence, number = label_scores(counts, true)
    constant = max(float(np.mean(true == number)) for number in np.unique(true))
    return Outcome(number, constant, {"LeAcc": existence}, recovered.remark)


def image_outcome(
    recovered: Recovered,
    features: Tensor,
    public: Tensor,
    value_range: tuple[float, float],
    seed: int,
) -> Outcome:
    """Judge images by IIP, the share whose nearest image in a pool is the client's; 0 without images.

    The pool has the client's samples and public ones in a random order: 100, or twice the client's if that is
    more. A further figure is the median PSNR, in dB, of the images that :func:`matched` pairs.
    """
    count = len(features)
    pool = torch.cat([features, public[: max(_POOL - count, count)]])
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
    places = torch.empty_like(order)
    places[order] = torch.arange(len(pool))
    images = recovered.images
    if images is None or not len(images):
        return Outcome(0.0, count / len(pool), {"images": 0.0}, recovered.remark)
    found = torch.isin(_squared_distances(images, pool[order]).argmin(dim=1), places[:count])
    rows, columns = matched(images, features)
    decibels = psnr(images[rows], features[columns], value_range)
    true = features[columns][:_SHOWN]
    nearest = _squared_distances(true, public).argmin(dim=1)
    return Outcome(
        int(found.sum()) / len(images),
        count / len(pool),
        {"images": float(len(images)), "PSNR": float(decibels.clamp(max=100.0).median())},
        recovered.remark,
        Example(images[rows][:_SHOWN], true, public[nearest], value_range),
    )
