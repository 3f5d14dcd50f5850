"""Who encrypts how much under each method: the part of a round that methods decide.

No model is trained here: a curve stands for its scores, and says what mask SenseCrypt's constraints ask for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from math import inf
from statistics import NormalDist
from typing import Annotated, get_args

import numpy as np
from numpy.typing import ArrayLike

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_model import SchemeProfile
from shieldfl.lab.fleet.fleet import Fleet, FloatVector, IntVector
from shieldfl.masks import sense_crypt_budgets
from shieldfl.methods.registry import named_method
from shieldfl.rounds.method import Masks, NamedMethod
from shieldfl.settings import NotNegative, Positive, Probability, Settings, Share, about

# Of the grid on which curves are kept: fine where few positions hold much.
_POINTS = 2049
_SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class SensitivityCurve:
    """Cumulated share of the sensitivity over the share of positions, most sensitive first; both from 0 to 1."""

    position_shares: tuple[float, ...]
    sensitivity_shares: tuple[float, ...]

    @classmethod
    def log_normal(cls, deviation: float = 2.0) -> SensitivityCurve:
        """Return the curve of log-normal scores; ``deviation`` is that of the natural logarithm, 0 for equal scores.

        The share of the top q is Phi(deviation - z) with Phi(z) = 1 - q.
        """
        normal, fine = NormalDist(), np.geomspace(_SMALLEST_SHARE, 1.0, _POINTS - 1)
        at = np.concatenate(([0.0], fine[:-1], [1.0]))
        inner = [normal.cdf(deviation - normal.inv_cdf(1.0 - share)) for share in at[1:-1].tolist()]
        return cls(tuple(at.tolist()), (0.0, *inner, 1.0))

    def least_ratio(self, sensitivity_share: ArrayLike) -> FloatVector:
        """Return the smallest share of positions that holds these shares of the sensitivity."""
        # Each sensitivity share once, with the fewest positions that reach it.
        held, first = np.unique(np.asarray(self.sensitivity_shares), return_index=True)
        wanted = np.asarray(sensitivity_share, dtype=np.float64)
        ratios: FloatVector = np.interp(wanted, held, np.asarray(self.position_shares)[first])
        return ratios

    def best_ratio(self, cost_weight: float = 1.0) -> float:
        """Return the share of positions whose gain exceeds their cost: what eq. 9 chooses without constraints."""
        widths, gains = np.diff(self.position_shares), np.diff(self.sensitivity_shares)
        return float(widths[gains > cost_weight * widths].sum()) if math.isfinite(cost_weight) else 0.0


@dataclass(frozen=True)
class MaskSettings(Settings):
    """What decides the sizes of masks.

    A client must encrypt the share 1 - C exp(-B alpha) of the sensitivity (SenseCrypt, eq. 7). The defaults of C and B
    are the paper's for FMNIST; for CIFAR-10 it has C = 0.5 and B = 2 (section 4.1).
    """

    exposed_share: Annotated[
        Probability, about("Of sense-crypt: what a client without any budget may leave exposed.", symbol="C")
    ] = 0.7
    exposure_decay: Annotated[
        NotNegative, about("Of sense-crypt: how fast that falls as the budget grows.", symbol="B")
    ] = 1.3
    uniform_ratio: Annotated[
        Share | None,
        about(
            "Share of the parameters that mask-crypt and fedml-he encrypt at every client; default: as many as the "
            "union of sense-crypt's masks over the whole fleet, at which its paper compares (section 4.2)."
        ),
    ] = None
    mask_overlap: Annotated[
        Probability,
        about(
            "Where the union of sense-crypt's masks lies between the largest one (1: nested masks, as equal scores "
            "give) and that of independent ones (0)."
        ),
    ] = 0.5
    """Clients with equal splits of MNIST and CIFAR-10 show 0.5 to 0.7 (bench/experiments/heterogeneity.py); see also
    :func:`packed_fields`."""
    cost_weight: Annotated[
        Positive,
        about(
            "Of sense-crypt: what a position costs over what it protects (eq. 9); inf to encrypt as little as the "
            "constraints allow.",
            symbol="beta_1 / beta_2",
            words={"inf": inf},
        ),
    ] = 1.0
    leakage_ratio: Annotated[
        Probability,
        about("Share of the positions that sense-crypt's bound on mutual information asks for (eq. 8)."),
    ] = 0.0
    curve: SensitivityCurve = field(default_factory=SensitivityCurve.log_normal)

    def mask_ratios(self, budgets: FloatVector) -> tuple[FloatVector, FloatVector]:
        """Return the share of positions that each client encrypts, and by how much its budget, alpha, falls short.

        The share is the best one (eq. 9), raised to what security asks for (eqs. 7 and 8), up to the budget (eq. 6).
        """
        floors = 1.0 - self.exposed_share * np.exp(-self.exposure_decay * budgets)
        needed = np.maximum(self.curve.least_ratio(floors), self.leakage_ratio)
        wanted = np.maximum(needed, self.curve.best_ratio(self.cost_weight))
        return np.minimum(wanted, budgets), np.maximum(needed - budgets, 0.0)


@dataclass(frozen=True)
class EncryptionPlan:
    """What each client encrypts in a round, and which steps it takes for it."""

    method: str
    values: IntVector  # encrypted by each client, (K,)
    fields: IntVector
    """In the ciphertexts of each client, (K,): its values, and zeros in positions that only others selected."""
    groups: IntVector  # which clients are summed together, from 0, (K,)
    union_values: IntVector  # positions in which a group's total is encrypted, (G,)
    scores: bool
    selects: bool
    sends_mask: bool
    budget_shortfall: FloatVector  # by how much each client's budget is below what its constraints ask for


def simulated_method(name: str) -> NamedMethod:
    """Return what a method's class says. Raises ParameterError where that is not how much its clients encrypt."""
    stated = named_method(name)
    if stated.masks not in get_args(Masks):
        raise ParameterError(
            f"{name} cannot be simulated: its class does not say how much clients encrypt, one of "
            f"{', '.join(get_args(Masks))}"
        )
    return stated


def plan_encryption(
    method: str, fleet: Fleet, scheme: SchemeProfile, settings: MaskSettings | None = None
) -> EncryptionPlan:
    """Say what each client of a fleet encrypts under a method, by the ``masks`` that its class states.

    Budgets are those of SenseCrypt (section 3.2), with masks (eqs. 6 to 9) of each cluster; clients of a scheme whose
    ciphertexts take no plain numbers encrypt their cluster's union instead. One share is for all, of a mask that they
    agree on. Raises ParameterError as :func:`simulated_method` does.
    """
    stated = simulated_method(method)
    chosen = settings or MaskSettings()
    parameters = fleet.model.parameters
    if stated.masks == "budgets":
        ratios, shortfall = chosen.mask_ratios(fleet_budgets(fleet))
        groups, union_values = fleet.clusters, _positions(_unions(fleet, ratios, chosen), parameters)
        values = _positions(ratios, parameters) if scheme.adds_clear_values else union_values[groups]
        fields = packed_fields(values, union_values[groups], scheme, chosen.mask_overlap)
    else:
        if stated.masks in ("nothing", "everything"):
            share = 1.0 if stated.masks == "everything" else 0.0
        elif chosen.uniform_ratio is not None:
            share = chosen.uniform_ratio
        else:
            share = float(_unions(fleet, chosen.mask_ratios(fleet_budgets(fleet))[0], chosen).max())
        union_values = np.atleast_1d(_positions(share, parameters))
        values = fields = np.full(fleet.size, union_values[0])
        groups, shortfall = np.zeros(fleet.size, dtype=np.int64), np.zeros(fleet.size)
    each = stated.masks_each_round
    return EncryptionPlan(method, values, fields, groups, union_values, each, each, each, shortfall)


def fleet_budgets(fleet: Fleet) -> FloatVector:
    """Return alpha of each client; ciphertexts go up (Algorithm 3), so the way up is the bandwidth that counts."""
    return sense_crypt_budgets(fleet.upload_bytes_per_second, fleet.cores * fleet.core_rate, fleet.clusters)


def union_ratio(ratios: FloatVector, overlap: float) -> float:
    independent = 1.0 - float(np.prod(1.0 - ratios))
    return overlap * float(ratios.max()) + (1.0 - overlap) * independent


def packed_fields(values: IntVector, unions: IntVector, scheme: SchemeProfile, overlap: float) -> IntVector:
    """Estimate the fields of the ciphertexts that clients send when they pack in the order of their union.

    A share ``overlap`` of a client's is taken to be its first ones, the others to lie at random in the rest.
    """
    first = overlap * values
    rest = unions - first
    chance = np.divide(values - first, rest, out=np.zeros(values.size), where=rest > 0.0)
    hit = 1.0 - (1.0 - np.minimum(chance, 1.0)) ** scheme.values_per_ciphertext
    fields: IntVector = np.ceil(first + rest * hit - 1e-6).astype(np.int64)
    return np.clip(fields, values, unions)


def _unions(fleet: Fleet, ratios: FloatVector, settings: MaskSettings) -> FloatVector:
    clusters = range(len(fleet.cluster_names))
    return np.array([union_ratio(ratios[fleet.clusters == one], settings.mask_overlap) for one in clusters])


def _positions(shares: float | FloatVector, parameters: int) -> IntVector:
    # Rounded up, so that a mask holds the share that is asked for; the epsilon takes back rounding alone.
    whole: IntVector = np.ceil(np.asarray(shares) * parameters - 1e-6).astype(np.int64)
    return np.clip(whole, 0, parameters)
