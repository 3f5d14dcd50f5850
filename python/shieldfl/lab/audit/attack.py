"""What an attack is, on one update or on a method; which attacks there are.

And what comes of them: cells, a result.

A package offers an attack of its own by an entry point of the group ``shieldfl.attacks``: the attack's name,
and where its class is. That of an attack on updates is called without arguments; that of others is a
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
"""Plain averaging: what every audit runs beside the methods that it is asked for."""

FEWEST_TRIES = 5
"""Below which no interval is believed: the bootstrap draws from nothing but the tries that there are."""

Status = Literal["attacked", "nothing received", "does not apply", "not attacked"]
NOT_TRIED = ("does not apply", "not attacked")

Verdict = Literal["chance", "some", "all", "too few trials", "not attacked"]


@dataclass(frozen=True)
class Example:
    """Images beside the true ones that they are paired with: float32 (k, *sample_shape) of one range."""

    recovered: Tensor
    true: Tensor
    neighbour: Tensor
    """Of the public images the nearest to the true one: no success, for who does not know it."""
    value_range: tuple[float, float]


@dataclass(frozen=True)
class Outcome:
    figure: float
    """In [0, 1]."""
    chance: float
    """The same figure for who guesses without the update."""
    others: dict[str, float]
    remark: str
    example: Example | None = None
    """What there is to look at; None where no image was recovered."""


@dataclass(frozen=True)
class Cell:
    """What one attack got of one method's clients for one party, at its strongest.

    An attack is tried on every round, message and sum, and with every guess for what is hidden; the form with
    the highest mean is the cell's. So its figure is a maximum, and lies above chance by chance as well.
    """

    method: str
    attack: str
    party: str
    status: Status
    reason: str = ""
    measured_by: str = ""
    figure: float = math.nan
    """Mean over the tries."""
    low: float = -math.inf
    high: float = math.inf
    """Of the mean, 95 %, by bootstrap over tries."""
    chance: float = math.nan
    """What a guess without the update has, mean over the same tries."""
    tries: int = 0
    form: str = ""
    """What the strongest attack was on: the round, the message or sum, the guess for hidden positions."""
    others: Mapping[str, float] = field(default_factory=dict)
    example: Example | None = None
    """Images of the first try of that form, where there are any; they are not part of the JSON."""

    def verdict(self, undefended: Cell | None) -> Verdict:
        """Say what was got, beside the same attack on an undefended update; ``chance`` is never ``safe``.

        ``all``: no less than of the undefended one, by intervals that overlap. A status without a figure is
        read alike for whoever looks at colours: a party that received nothing has what chance has.
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
    """What a reader must know: methods of which no trial was had, and why."""

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
"""Is told of each federation before it begins: method and number."""


@dataclass(frozen=True)
class Recovered:
    """What an attack believes that a client trained on."""

    label_counts: Counts | None = None
    """How many samples of each class, (classes,); None where the attack says nothing of labels."""
    images: Tensor | None = None
    """Samples, float32 (m, *sample_shape), in any order; m may be 0.

    None where the attack says nothing of samples.
    """
    remark: str = ""
    """What a reader of its figure must know, such as why there are no samples."""


class UpdateAttack(ABC):
    """An attack on one client's update of one round.

    An attack is stateless: the same update and seed give the same result.
    """

    name: ClassVar[str]
    """As in tables and on the command line."""
    recovers: ClassVar[Literal["labels", "images"]]
    source: ClassVar[str]
    """The paper, with its equation or algorithm."""

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Say in one sentence why this attack cannot be tried on such an update; by default None, it can."""
        return None

    @abstractmethod
    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Attack an update. Values that are not ``known`` are guesses that others have filled in."""


class ModelPlantingAttack(UpdateAttack):
    """An attack of a server that chooses the model which clients train from."""

    rows: int = 0
    """Of the planted layer; 0 where there is no saying.

    Under methods under which each parameter takes long there are fewer, at least 2: the attack is a dataclass
    then."""

    @abstractmethod
    def planted(
        self, model: nn.Module, sample_shape: tuple[int, ...], public: Tensor, seed: int
    ) -> nn.Module:
        """Return a model with the trap in it, to be sent in the place of ``model``.

        ``public`` are samples that the server has of its own, float32 (n, *sample_shape), of a like
        distribution.
        """

    def lasting(self) -> ModelPlantingAttack:
        """Return the attack with a layer that outlives rounds of training, to be read off in a later one.

        Where clients' first rounds are not on their own data. By default it is this attack itself.
        """
        return self


class FederationAttack(ABC):
    """An attack on a method, which runs the federations that it takes.

    Parameters
    ----------
    config : of the audit.
    settings : of the methods.
    dataset : that clients' samples are drawn from.
    parties : that are asked about.
    """

    name: str
    """As in tables and on the command line."""
    source: str
    measured_by: str
    """The name of its figure."""
    is_told = False
    """Whether each reader is told the forms of its cells: they say in words what the attack came to."""

    def __init__(
        self, config: AuditConfig, settings: MethodSettings, dataset: Dataset, parties: Sequence[Party]
    ) -> None:
        self._config, self._settings = config, settings
        self._dataset, self._parties = dataset, tuple(parties)

    @abstractmethod
    def cells(self, method: str, on_federation: OnFederation) -> list[Cell]:
        """Attack a method, and return a cell for each party; ``on_federation`` is told of each federation.

        Raises ParameterError where the attack does not apply to the method, and what the method refuses.
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
    """Raises ParameterError where there are several of that name, or the one cannot be made."""
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
    """Return attacks, those on updates first, and a line for each that cannot be made: which, and why.

    Raises ParameterError for none that can be made, an unknown name, and one that is given twice.
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
    """Return the peak signal-to-noise ratio of each image (m, ...), dB (m,), by the width of the range."""
    error = (images - true).double().square().flatten(1).mean(dim=1)
    return 10 * torch.log10((value_range[1] - value_range[0]) ** 2 / error)


def matched(images: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Pair recovered images (m, ...) with true ones (n, ...) so that the sum of squared distances is least.

    Each is in one pair at most, and there are min(m, n) pairs: positions of the recovered ones in ascending
    order, and of their true ones.
    """
    rows, columns = linear_sum_assignment(_squared_distances(images, true).numpy())
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _squared_distances(images: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(images.flatten(1).double(), others.flatten(1).double()).square()


LabelScores = tuple[float, float]


def label_scores(guessed: Counts, true: Counts) -> LabelScores:
    """Compare counts of labels (classes,) with the client's: shares, in [0, 1], of classes that are right.

    First LeAcc, whether a class is there, mean of 1[(k^ > 0) = (k > 0)], then LnAcc, how many samples are of
    it, mean of 1[k^ = k] (SenseCrypt, section 5).
    """
    return float(np.mean((guessed > 0) == (true > 0))), float(np.mean(guessed == true))


def bootstrap_interval(
    values: Sequence[float], seed: int, statistic: Callable[..., Any] = np.mean, resamples: int = 9999
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of 95 % confidence, which has no ends for one value."""
    if len(values) == 1:
        return -math.inf, math.inf
    found = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        statistic,
        n_resamples=resamples,
        batch=1000,
        confidence_level=0.95,
        # The others divide by the spread, which is zero where all values are the same.
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


FIGURES = {"labels": "LnAcc", "images": "IIP"}
"""By what an attack recovers: the figure that it is judged by."""

_SHOWN = 8
_POOL = 100
"""Images among which the nearest to a recovered one is looked for, the client's among them."""


def label_outcome(recovered: Recovered, labels: Tensor, classes: int) -> Outcome:
    """Judge counts of labels by LnAcc, beside the best one number that can be said of every class.

    That number is the best in hindsight: nobody who says the same of all classes does better without the
    update.
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
    """Judge images by IIP, the share whose nearest in a pool is one of the client's; 0 where there are none.

    The pool has the client's samples and public ones, 100 together or twice the client's, in a random order.
    Beside it: the median PSNR in dB of the images that are paired with the client's so that distances are
    least.
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
