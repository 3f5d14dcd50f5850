"""SenseCrypt's settings, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shieldfl.array_view import as_real, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.methods.encrypted_sum.update_parameters import ENCRYPTIONS
from shieldfl.selection import SelectionLimits

__all__ = ["SenseCryptSettings"]


@dataclass(frozen=True)
class SenseCryptSettings:
    """Settings of SenseCrypt. Raises ParameterError for values out of range or that contradict each other."""

    encryption: str = "paillier-dense"
    """``"paillier-single"``: a ciphertext for each value, as in the paper. ``"paillier-dense"``: many, in the order of
    the cluster's union. ``"ckks"``: every client encrypts the union."""
    key_bits: int = 3072
    """Of the Paillier modulus. The paper has 2048, which are 112 bits of security."""
    clustering: str = "affinity-propagation"
    """``"affinity-propagation"`` of the clients' sensitivities, or ``"none"``: one cluster."""
    clustering_epsilon: float | None = None
    """Noise on the sensitivities that are uploaded for clustering, once; None for none."""
    clustering_delta: float = 1e-5
    """Delta of that noise."""
    clustering_clip_norm: float = 1e-3
    """G of algorithm 2: the L2 norm that sensitivities are clipped to, with and without noise. Below every client's own
    norm it does not matter how far: directions are compared then, which tell what data a client has; lengths tell how
    far it has trained."""
    least_silhouette: float = 0.25
    """A clustering with a lower mean silhouette counts as none: all clients form one cluster. -1 keeps any."""
    least_budget: float = 0.1
    """Budgets below count as this one: a client that reports great speed lowers those of all others."""
    bandwidths: tuple[float, ...] = (1.0,)
    """Of the clients, in any unit. Several kinds are dealt out in turn: client i is of kind i modulo their number."""
    compute_speeds: tuple[float, ...] = (1.0,)
    """Likewise."""
    exposed_share: float = SelectionLimits.exposed_share
    """C of eq. 7."""
    exposure_decay: float = SelectionLimits.exposure_decay
    """B of eq. 7."""
    information_bits: float = SelectionLimits.information_bits
    """eta_MI of eq. 8; infinite for no bound."""
    cost_weight: float = SelectionLimits.cost_weight
    """beta_1, with beta_2 = 1: how much a position costs against what it protects."""
    value_bits: int = 24
    """Of an encrypted value."""
    fraction_bits: int = 20
    """Of an encrypted value, behind the binary point."""

    def __post_init__(self) -> None:
        """Check what no other part checks before the first round."""
        for name, choices in (
            ("encryption", ENCRYPTIONS),
            ("clustering", ("affinity-propagation", "none")),
        ):
            if getattr(self, name) not in choices:
                raise ParameterError(f"{name} must be one of {', '.join(choices)}")
        for name in ("bandwidths", "compute_speeds"):
            values = getattr(self, name)
            if not values or not all(math.isfinite(as_real(value, name)) and value > 0.0 for value in values):
                raise ParameterError(f"{name} must be positive and finite, at least one of them")
        self._check_clustering()
        if not 0.0 < self.least_budget <= 1.0:
            raise ParameterError("least_budget must be above 0 and at most 1")
        if not (0.0 < self.exposed_share <= 1.0 and 0.0 < self.exposure_decay < math.inf):
            raise ParameterError(
                "exposed_share (C) must be above 0 and at most 1, exposure_decay (B) positive"
            )
        if not (self.information_bits >= 0.0 and self.cost_weight > 0.0):
            raise ParameterError("information_bits must not be negative, cost_weight must be positive")
        if as_unsigned(self.key_bits, "key_bits") not in (2048, 3072, 4096):
            raise ParameterError("key_bits must be 2048, 3072 or 4096")
        for name in ("value_bits", "fraction_bits"):
            as_unsigned(getattr(self, name), name)

    def _check_clustering(self) -> None:
        epsilon = self.clustering_epsilon
        if epsilon is not None and not 1e-6 <= as_real(epsilon, "clustering_epsilon") <= 1e9:
            raise ParameterError("clustering_epsilon must be between 1e-6 and 1e9")
        if not 0.0 < self.clustering_delta < 1.0:
            raise ParameterError("clustering_delta must lie between 0 and 1")
        if not 2.0**-100 <= self.clustering_clip_norm <= 2.0**100:
            raise ParameterError("clustering_clip_norm must be between 2^-100 and 2^100")
        if not -1.0 <= self.least_silhouette <= 1.0:
            raise ParameterError("least_silhouette must lie in [-1, 1]")

    def limits(self, budget: float) -> SelectionLimits:
        """Return what a client with this budget has to keep to."""
        return SelectionLimits(
            budget=budget,
            exposed_share=self.exposed_share,
            exposure_decay=self.exposure_decay,
            information_bits=self.information_bits,
            cost_weight=self.cost_weight,
        )
