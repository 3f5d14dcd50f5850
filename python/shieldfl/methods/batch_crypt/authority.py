"""The key authority of BatchCrypt."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.masks import Mask
from shieldfl.methods.batch_crypt.quantisation import Quantisation, dequantise
from shieldfl.methods.encrypted_sum.mixed_total import MixedTotal
from shieldfl.methods.masked_average.authority import MaskedAverageAuthority
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener

__all__ = ["BatchCryptAuthority"]


class BatchCryptAuthority(MaskedAverageAuthority):
    """Opens whole numbers, and only then makes an update of them."""

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        keys: RoundSigner,
        zone: Mask,
        quantisation: Quantisation,
    ) -> None:
        super().__init__(context, initial, keys, zone, sends_rest=False)
        self._quantisation = quantisation

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        agreed = self._quantisation
        bounds = agreed.read_bounds(message)
        claim.check_weights(1)
        sums = claim.union.scatter(keys.open(claim.total))
        opened = dequantise(sums, agreed.offsets, bounds, agreed.width, agreed.parties)
        return opened / claim.total.clients
