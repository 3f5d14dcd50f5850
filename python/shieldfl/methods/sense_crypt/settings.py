"""SenseCrypt's settings, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

from msgspec import Meta

from shieldfl.encryption.registry import encryptions
from shieldfl.masks import SelectionLimits
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.settings import Delta, NotNegative, Positive, Share, about

_Kinds = Annotated[tuple[Positive, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class SenseCryptSettings(EncryptionSettings):
    """Settings of SenseCrypt."""

    encryption: Annotated[
        str,
        about(
            "paillier-single: a ciphertext for each value, as in the paper. paillier-dense: many, in the order of the "
            "cluster's union. Else every client encrypts the union.",
            choices=encryptions,
        ),
    ] = "paillier-dense"
    clustering: Annotated[
        Literal["affinity-propagation", "none"],
        about("Of the clients by their sensitivities; none: one cluster."),
    ] = "affinity-propagation"
    clustering_epsilon: Annotated[
        Annotated[float, Meta(ge=1e-6, le=1e9)] | None,
        about("Noise on the sensitivities that are uploaded for clustering, once; None for none."),
    ] = None
    clustering_delta: Annotated[Delta, about("Delta of that noise.")] = 1e-5
    clustering_clip_norm: Annotated[
        float,
        Meta(ge=2.0**-100, le=2.0**100),
        about(
            "The L2 norm that sensitivities are clipped to, with and without noise (algorithm 2). Below every client's "
            "own norm it does not matter how far: directions are compared then, which tell what data a client has; "
            "lengths tell how far it has trained.",
            symbol="G",
        ),
    ] = 1e-3
    least_silhouette: Annotated[
        float,
        Meta(ge=-1.0, le=1.0),
        about(
            "A clustering with a lower mean silhouette counts as none: all clients form one cluster. -1 keeps any."
        ),
    ] = 0.25
    least_budget: Annotated[
        Share,
        about(
            "Budgets below count as this one: a client that reports great speed lowers those of all others."
        ),
    ] = 0.1
    bandwidths: Annotated[
        _Kinds,
        about(
            "Of the clients, in any unit. Several kinds are dealt out in turn: client i is of kind i modulo their "
            "number."
        ),
    ] = (1.0,)
    compute_speeds: Annotated[_Kinds, about("Of the clients' processors, likewise.")] = (1.0,)
    exposed_share: Annotated[Share, about("Of eq. 7.", symbol="C")] = SelectionLimits.exposed_share
    exposure_decay: Annotated[Positive, about("Of eq. 7.", symbol="B")] = SelectionLimits.exposure_decay
    information_bits: Annotated[
        NotNegative,
        about(
            "The most mutual information that is left (eq. 8); inf for no bound.",
            symbol="eta",
            words={"inf": inf},
        ),
    ] = SelectionLimits.information_bits
    information_bins: Annotated[
        int, Meta(ge=1, le=65_536), about("Of the histogram that estimates it; the paper states none.")
    ] = SelectionLimits.bins
    objective: Annotated[
        Literal["normalised", "printed"],
        about(
            "What eq. 9 makes small: normalised, with the bars of section 3.3, or its difference as it is printed, "
            "without: no more is encrypted then than security and leakage ask for."
        ),
    ] = "normalised"
    cost_weight: Annotated[
        Positive,
        about("With beta_2 = 1: how much a position costs against what it protects.", symbol="beta_1"),
    ] = SelectionLimits.cost_weight

    def limits(self, budget: float) -> SelectionLimits:
        return SelectionLimits(
            budget=budget,
            exposed_share=self.exposed_share,
            exposure_decay=self.exposure_decay,
            information_bits=self.information_bits,
            bins=self.information_bins,
            normalised=self.objective == "normalised",
            cost_weight=self.cost_weight,
        )
