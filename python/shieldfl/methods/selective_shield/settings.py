"""SelectiveShield's settings, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from shieldfl.encryption.registry import DEFAULT_ENCRYPTION
from shieldfl.errors import ParameterError
from shieldfl.methods.encryption_settings import FixedPoint, WeighedEncryption
from shieldfl.settings import Delta, NotNegative, Positive, Share, about

_LEAST_DISCRETE_MULTIPLIER = 2.0**-29
"""Below it, the clipping norm would be more steps of the grid than the core computes with (2^50)."""

_Threshold = Annotated[float, Meta(le=1.0)]


@dataclass(frozen=True)
class SelectiveShieldSettings(FixedPoint):
    """Settings of SelectiveShield. Raises ParameterError for those that contradict each other too."""

    encryption: WeighedEncryption = DEFAULT_ENCRYPTION
    threshold: Annotated[
        _Threshold | Annotated[tuple[_Threshold, ...], Meta(min_length=1)],
        about(
            "Sensitivity above which a client selects a position (eq. 14), one for all clients or one for each. A "
            "negative one chooses every position.",
            symbol="tau",
            options=("--tau", "--threshold"),
        ),
    ] = 0.05
    consensus: Annotated[
        Share,
        about(
            "Share of the clients that must select a position for it to be encrypted (eq. 16); 1 is the intersection.",
            symbol="rho",
            options=("--rho", "--consensus"),
        ),
    ] = 0.5
    noise_multiplier: Annotated[
        NotNegative, about("Of the noise zone (eq. 21); 0 sends it in the clear.", symbol="sigma")
    ] = 0.0
    noise_distribution: Annotated[
        Literal["gaussian", "discrete-gaussian"],
        about(
            "gaussian: floating-point noise. discrete-gaussian: drawn exactly, on a grid that the noise's standard "
            "deviation decides, so that the privacy proof speaks of the numbers sent; slower."
        ),
    ] = "gaussian"
    clip_norm: Annotated[
        Positive,
        about("L2 norm of the noise zone's update (eq. 20). Clips only where there is noise.", symbol="C"),
    ] = 1.0
    adaptive_clip: Annotated[
        bool, about("Clip to the client's own recent norms. Not private: the norms themselves are data.")
    ] = False
    target_epsilon: Annotated[
        Positive | None,
        about(
            "Instead of a noise multiplier: what the noise of all rounds together may be charged (by eq. 22). It "
            "bounds the noise alone. What holds is infinite where masks follow from the data or a sum opened without "
            "noise came before."
        ),
    ] = None
    delta: Annotated[Delta, about("Delta of every stated epsilon.")] = 1e-5
    divisor: Annotated[
        Literal["contributors", "participants"],
        about("Of a position's sum: the clients that sent it, or all of the round (eq. 26)."),
    ] = "contributors"
    negotiation: Annotated[
        Literal["clear", "encrypted"],
        about(
            "clear: the aggregator sees every mask, as in the paper. encrypted: only whoever opens sums sees tallies."
        ),
    ] = "clear"
    hide_personalised: Annotated[
        bool,
        about(
            "Send noise on personalised positions, so that an upload does not tell which they are. Needs encrypted "
            "negotiation."
        ),
    ] = False
    buffers: Annotated[
        Literal["local", "encrypted"],
        about(
            "BatchNorm statistics stay local to each client (FedBN), or are averaged in the encrypted zone."
        ),
    ] = "local"
    sensitivity: Annotated[
        Literal["full-batch", "batch", "per-sample"],
        about(
            "full-batch: the squared gradient of all local data at the start of the round (eq. 12). batch: the squared "
            "gradient accumulated over the round's mini-batches. per-sample: the mean of squares (eq. 3)."
        ),
    ] = "full-batch"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_epsilon is not None and self.noise_multiplier != 0.0:
            raise ParameterError("give noise_multiplier or target_epsilon, not both")
        if self.has_discrete_noise and self.noise_multiplier < _LEAST_DISCRETE_MULTIPLIER:
            raise ParameterError(
                "noise_multiplier (sigma) must be at least 2^-29 for discrete-gaussian noise"
            )
        if self.hide_personalised and self.negotiation != "encrypted":
            raise ParameterError(
                "hide_personalised needs encrypted negotiation: in a clear one the aggregator sees the masks"
            )
        if self.hide_personalised and self.noise_multiplier == 0.0 and self.target_epsilon is None:
            raise ParameterError(
                "hide_personalised needs noise: without it the hidden positions would be zeros"
            )

    @property
    def has_discrete_noise(self) -> bool:
        """Whether discrete noise is added; while a target epsilon is not resolved to a multiplier, it is not."""
        return self.noise_distribution == "discrete-gaussian" and self.noise_multiplier > 0.0

    def threshold_of(self, client: int) -> float:
        return self.threshold[client] if isinstance(self.threshold, tuple) else self.threshold
