"""The key authority of methods whose clients agree on a mask by their scores."""

from __future__ import annotations

import numpy as np

from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions
from shieldfl.methods.masked_average.authority import MaskedAverageAuthority
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.scheme.registry import scheme_of
from shieldfl.selection import positions_in_budget, top_k

__all__ = ["AgreedMaskAuthority"]


class AgreedMaskAuthority(MaskedAverageAuthority):
    """Opens the mean of the scores alone, takes the highest, and sends the mask with every model."""

    def __init__(self, context: RoleContext, initial: GlobalModel, keys: RoundSigner, ratio: float) -> None:
        super().__init__(context, initial, keys, None)
        self._ratio = ratio

    def _purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        return (
            ("update", "scores") if self.context.encrypts("scores") and "zone" not in model else ("update",)
        )

    def _keeps(self, model: Message) -> bool:
        # What is agreed on comes after the model of the rounds before it.
        zone = {} if self.zone is None or "zone" not in model else {"zone": self.zone.to_bytes()}
        return model == Message({**self.model.to_message(), **zone})

    def _decide(self, phase: str, message: Message) -> Message:
        if phase == "scores":
            size = self.context.plan.parameters
            total = scheme_of(self.context.keys.parameters["scores"]).Total.from_bytes(message["total"])
            stated, most = message.number("weight"), self.context.most_weight
            if not total.is_of(Mask.full(size)) or total.round != message.number("round"):
                raise WireFormatError(
                    "the total is of another round, or has not one score for each parameter"
                )
            if not total.weighted or not total.clients <= stated <= total.clients * most:
                raise WireFormatError(
                    f"the weights of the scores are missing, or not between 1 and {most} for each client"
                )
            self._check_runs(total.round)
            # Where it is known, scores of a round that was given up were opened: the mask stays, and nothing is opened.
            if self.zone is None:
                keys = self.keys.authority(total.round, "scores")
                mean = np.maximum(keys.open_mean(total, stated_weight=stated / most), 0.0)
                chosen = top_k(mean, positions_in_budget(self._ratio, size), self.context.threads)
                self.zone = encrypted_positions(chosen, self.context.plan.buffers)
            return Message({"zone": self.zone.to_bytes()})
        answer = super()._decide(phase, message)
        return answer if self.zone is None else Message({**answer, "zone": self.zone.to_bytes()})

    def _zone_of(self, round_number: int) -> Mask:
        if self.zone is None:
            raise PolicyError("no mask has been agreed on: send the scores first")
        return self.zone
