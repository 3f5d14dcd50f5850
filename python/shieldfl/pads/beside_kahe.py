"""From how many values on key-additive encryption is the better choice: the answer's bytes, the authority's time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import shieldfl._core as _core

__all__ = ["BesideKahe"]

# kFrameHeaderBytes and kFrameTrailerBytes of cpp/common/wire.h, SumKeyHead::kBytes of cpp/enrolled/sum_key_head.h.
ANSWER_HEAD_BYTES = 48 + 4 + 80
# The default ring of kahe, kMaxSample of cpp/kahe/frame_secret.h.
_RING_DEGREE = 4096
_LARGEST_COEFFICIENT = 42
# Of key stream, on average, for a client's secret. An authority takes as long for a byte of it, sampling included, as
# for one that pads are: bench/pads_beside_kahe.py measures that, docs/pads.md has what it printed.
_SECRET_STREAM_BYTES = 32 * _RING_DEGREE / 3


@dataclass(frozen=True)
class BesideKahe:
    """An authority of one-time pads beside one of ``kahe``, default ring, for sums of the same clients and values."""

    clients: int
    block_values: int
    block_bytes: int
    """Of a block in an answer."""
    block_stream_bytes: int
    """Of key stream, for a block of one client."""
    secret_values: int
    """Values of ``kahe``'s ciphertexts that share a secret."""

    @classmethod
    def of(
        cls, core: _core.KaheParameters, *, block_values: int, block_bytes: int, block_stream_bytes: int
    ) -> BesideKahe:
        """Compare with what key-additive encryption takes for these parameters of it."""
        facts = core.facts
        secret_values = core.ciphertexts_per_secret * int(facts["values_per_ciphertext"])
        return cls(int(facts["max_clients"]), block_values, block_bytes, block_stream_bytes, secret_values)

    @property
    def _secret_bytes(self) -> int:
        return _RING_DEGREE * (2 * _LARGEST_COEFFICIENT * self.clients).bit_length() // 8

    def _blocks(self, count: int) -> int:
        return math.ceil(count / self.block_values)

    def _secrets(self, count: int) -> int:
        return math.ceil(count / self.secret_values)

    def kahe_answer_bytes(self, count: int) -> int:
        """Return how long the other's answer to a sum of all clients is."""
        return ANSWER_HEAD_BYTES + self._secrets(count) * self._secret_bytes

    def kahe_is_shorter(self, count: int) -> bool:
        """Say whether the other's answer is the shorter one."""
        return self._secrets(count) * self._secret_bytes < self._blocks(count) * self.block_bytes

    def kahe_is_quicker(self, count: int) -> bool:
        """Say whether the other's authority takes less time, which does not depend on how many clients there are."""
        return self._secrets(count) * _SECRET_STREAM_BYTES < self._blocks(count) * self.block_stream_bytes

    @property
    def kahe_shorter_from(self) -> int:
        """The fewest values from which on ``kahe_is_shorter``."""
        return self._secret_bytes // self.block_bytes * self.block_values + 1

    @property
    def kahe_quicker_from(self) -> int:
        """The fewest values from which on ``kahe_is_quicker``."""
        return math.floor(_SECRET_STREAM_BYTES / self.block_stream_bytes) * self.block_values + 1

    def describe(self, count: int | None) -> tuple[str, ...]:
        """Say in lines which one is better for so many values, None for many, and from where on it is ``kahe``."""
        return (
            f"  beside kahe {self._verdict(count)};",
            f"              kahe has the shorter answer from {self.kahe_shorter_from:,} values on, the quicker "
            f"authority from about {_about(self.kahe_quicker_from):,} on",
        )

    def _verdict(self, count: int | None) -> str:
        if count is None:
            return "for many values kahe is better, by the answer's bytes and the authority's time"
        shorter = "kahe" if self.kahe_is_shorter(count) else "pads"
        quicker = "kahe" if self.kahe_is_quicker(count) else "pads"
        answer = f"answer (kahe's: {self.kahe_answer_bytes(count):,} bytes)"
        if shorter == quicker:
            return f"for {count:,} values {shorter} is better, by the {answer} and the authority's time"
        return f"for {count:,} values {shorter} is better by the {answer}, {quicker} by the authority's time"


def _about(count: int) -> int:
    """Return two digits of it."""
    step = int(10 ** max(math.floor(math.log10(count)) - 1, 0))
    return round(count / step) * step
