"""Encryption of everything that leaves a client: of a whole update, or of its last layer, where no other is trained.

With noise on sums, ``full-he`` is what ``ddp-fedavg`` is, by the same steps; ``top-2`` is so on its last layer.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.average import NoisySumAverage
from shieldfl.methods.distributed_noise.settings import FullEncryptionSettings
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan

if TYPE_CHECKING:
    from torch import nn


class FullEncryption(NoisySumAverage):
    """Everything is encrypted: ``full-he`` by any scheme, ``plain-he`` with a Paillier ciphertext for each value."""

    names = (
        NamedMethod(
            "full-he",
            "everything encrypted",
            "hiding single updates; the default choice",
            "what papers on selective encryption compare with",
            FullEncryptionSettings(),
            masks="everything",
        ),
        NamedMethod(
            "plain-he",
            "everything encrypted, a Paillier ciphertext for each value",
            "a baseline of SenseCrypt and BatchCrypt",
            "SenseCrypt, section 4.1",
            FullEncryptionSettings(encryption="paillier-single"),
            masks="everything",
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts, their number, and weights"
    hides_all = True

    def __init__(self, name: str, settings: FullEncryptionSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan, Mask.full(plan.update_size))


class LastLayerEncryption(NoisySumAverage):
    """``top-2``: the last layer's weight and bias alone are trained and shared, encrypted (DictPFL's FedHE-Top2).

    Training leaves the other parameters as they are, and nothing of them is sent. Batch statistics are no parameters:
    those in front of the last layer still follow the data.
    """

    names = (
        NamedMethod(
            "top-2",
            "the last layer, encrypted; nothing else is trained",
            "a baseline of DictPFL",
            "DictPFL, the baseline FedHE-Top2",
            FullEncryptionSettings(),
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts of the last layer, their number, and weights"
    hides_all = True

    def __init__(self, name: str, settings: FullEncryptionSettings, plan: FederationPlan) -> None:
        offsets = plan.offsets
        if len(offsets) < 3:
            raise ParameterError("top-2 needs a model whose last layer has a weight and a bias")
        zone = Mask.empty(offsets[-3]).resized(plan.update_size, chosen=True)
        super().__init__(name, settings, plan, zone, sends_rest=False)
        self.trained = zone.resized(plan.parameters)

    @classmethod
    def adapted(cls, model: nn.Module, settings: Any) -> nn.Module:
        """Return a copy in which only the last layer's weight and bias are trained.

        Raises ParameterError where the last two parameters are not the weight and the bias of one layer.
        """
        copy = deepcopy(model)
        named = list(copy.named_parameters())
        last = [name.rpartition(".") for name, _ in named[-2:]]
        if [attribute for _, _, attribute in last] != ["weight", "bias"] or last[0][0] != last[1][0]:
            raise ParameterError(
                "top-2 is a method that needs a bias where there is none: give the model's last layer a weight and a "
                "bias"
            )
        for _, parameter in named[:-2]:
            parameter.requires_grad_(False)
        return copy
