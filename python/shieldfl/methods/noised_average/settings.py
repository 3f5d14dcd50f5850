"""Settings of averages of noised updates: noise in every step of training, or on the whole update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shieldfl.settings import Delta, NotNegative, Positive, Settings, about


@dataclass(frozen=True)
class DpSgdSettings(Settings):
    """How clients train by DP-SGD."""

    noise_multiplier: Annotated[
        NotNegative,
        about(
            "The noise on a batch's summed gradients over the norm that each is clipped to; 0 for none.",
            symbol="sigma",
        ),
    ] = 1.0
    max_grad_norm: Annotated[
        Positive,
        about("What the gradient of every sample is clipped to; the default is Alt-FL's.", symbol="C"),
    ] = 4.7
    delta: Annotated[
        Delta | None, about("Of the stated epsilon; None for 1/N, N the samples of all clients.")
    ] = None


@dataclass(frozen=True)
class DpFedAvgSettings(Settings):
    """How clients noise their updates."""

    noise_multiplier: Annotated[
        NotNegative,
        about(
            "The noise that each client adds, over the norm that its update is clipped to; 0 for none.",
            symbol="sigma",
        ),
    ] = 1.0
    target_epsilon: Annotated[
        Positive | None,
        about(
            "Instead of sigma: what a client that takes part in every round may spend against the aggregator."
        ),
    ] = None
    clip_norm: Annotated[
        Positive, about("The L2 norm that a client's whole update is clipped to.", symbol="C")
    ] = 1.0
    delta: Annotated[Delta, about("Of both stated epsilons.")] = 1e-5
