"""How to read a method's epsilon: whose presence it hides, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PrivacyReading", "privacy_reading"]


@dataclass(frozen=True)
class PrivacyReading:
    """What one method's figures say."""

    unit: str | None
    """``"client"``: with all that it sends; ``"sample"``: of one client; None for a method without noise."""
    meaning: str
    """A sentence for the reader."""


_IN_THE_CLEAR = PrivacyReading(
    None, "updates leave in the clear and without noise: no ε bounds what they tell"
)
_SUMS = "what the opened sums, and with them the global model, tell is not counted"
_ENCRYPTED = PrivacyReading(
    None,
    "ε is 0 where all that depends on the data is encrypted, and ∞ where some of it leaves in the clear; it is against "
    f"the aggregator alone: {_SUMS}",
)
_BY_DP_SGD = PrivacyReading(
    "sample",
    "ε is for one sample of one client, by DP-SGD, the largest of all clients; ∞ where real values leave in the clear "
    "without noise",
)
_BY_DP_SGD_AND_ENCRYPTION = PrivacyReading(
    "sample", f"{_BY_DP_SGD.meaning}, as does a mask made of their gradients; {_SUMS}"
)
_READINGS = {
    "fedavg": _IN_THE_CLEAR,
    "selective-shield": PrivacyReading(
        "client",
        "ε counts the noise zone alone, by the paper's eq. 22 with a noise of σ; each client really adds σ·√K, which "
        f"the second figure counts; what masks in the clear tell is not counted; of the encrypted zone, {_SUMS}",
    ),
    "dp-fedavg": PrivacyReading(
        "client",
        "ε is against the aggregator, which sees every update with its noise of σ; the second figure is against who "
        "sees models alone, with the noise of all K updates",
    ),
    "sense-crypt": PrivacyReading(
        "client",
        "ε is ∞ where values or masks leave in the clear; where there are none, it counts the one upload for "
        "clustering, and "
        f"{_SUMS}",
    ),
    "dp-sgd": _BY_DP_SGD,
    "alt-fl-si-dp": _BY_DP_SGD,
    "alt-fl-pi": _BY_DP_SGD_AND_ENCRYPTION,
    "alt-fl-si-he": _BY_DP_SGD_AND_ENCRYPTION,
    "alt-fl-mp": _BY_DP_SGD_AND_ENCRYPTION,
}


def privacy_reading(method: str) -> PrivacyReading:
    """Return how to read the figures of the method of this name."""
    return _READINGS.get(method, _ENCRYPTED)
