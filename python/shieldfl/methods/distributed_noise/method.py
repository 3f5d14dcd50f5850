"""``ddp-fedavg``: the encrypted sum of a round has noise, of which each client adds a share before it encrypts.

Sources: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (ICML 2021); Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated
Learning" (NeurIPS 2021). There a sum wraps around a modulus of secure aggregation; here it has room for whatever is
drawn, and buffers stay with the client.
"""

from __future__ import annotations

from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.average import OF_NOISY_SUMS, NoisySumAverage
from shieldfl.methods.distributed_noise.settings import DdpFedAvgSettings
from shieldfl.methods.protocol.named_method import NamedMethod
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.privacy.sum_noise import SumNoise

__all__ = ["DdpFedAvg"]


class DdpFedAvg(NoisySumAverage):
    """Averaging of clipped updates under encryption, with noise on the sum; all clients count alike.

    Parameters
    ----------
    name, plan : as for :class:`Method`.
    settings : of clipping, noise and encryption.

    Raises as :class:`NoisySumAverage` does.
    """

    names = (
        NamedMethod(
            "ddp-fedavg",
            "everything encrypted, clipped, with a share of the noise that the sum has",
            "a bound for whole clients that costs little accuracy",
            "Kairouz, Liu and Steinke 2021; Agarwal, Kairouz and Liu 2021",
            DdpFedAvgSettings(),
        ),
    )
    privacy_reading = OF_NOISY_SUMS
    aggregator_sees = "ciphertexts and their number"
    hides_all = True

    weighs_all_alike = True
    noise: SumNoise

    def __init__(self, name: str, settings: DdpFedAvgSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan, Mask.full(plan.update_size))
