"""The aggregator of a measured fleet: one group's sum in one round, and whether it was opened rightly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import RangeError
from shieldfl.masks import Mask
from shieldfl.paillier import UnionOrder
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.schemes import scheme_of

__all__ = ["GroupSum"]


class GroupSum:
    """Adds updates as they arrive: ciphertexts, and plain numbers in float64.

    Parameters
    ----------
    number : the round that the clients encrypt for.
    union : positions in which the sum is encrypted.
    order : in which clients with different masks pack them, or None where all encrypt the union.
    """

    def __init__(
        self,
        authority: KeyAuthority,
        number: int,
        union: Mask,
        order: UnionOrder | None,
        threads: int,
    ) -> None:
        self._authority = authority
        self._union = union
        self._order = order
        self._threads = threads
        in_order = {} if order is None else {"order": order}
        self._encrypted = scheme_of(authority.public_key).Aggregator(
            authority.public_key, threads=threads, round=number, **in_order
        )
        # Of the positions that nobody encrypts, or of all where masks differ.
        self._clear = np.zeros(union.size - union.count if order is None else union.size, dtype=np.float64)
        self._fraction_bits = authority.public_key.parameters.fraction_bits
        self.clients = 0
        self._opened: NDArray[np.float64] = np.zeros(0, dtype=np.float64)

    def add(self, parts: Mapping[str, bytes], mask: Mask) -> None:
        """Add what one client sent; errors as the scheme's aggregator."""
        clear = np.frombuffer(parts.get("clear", b""), dtype=np.float32)
        if self._order is None:
            if self._union.count:
                self._encrypted.add(parts["frame"])
            if clear.size:
                np.add(self._clear, clear, out=self._clear)
        else:
            dense = np.zeros(mask.size, dtype=np.float32)
            (~mask).scatter(clear, dense, threads=self._threads)
            self._encrypted.add(parts["frame"], clear=dense[self._order.positions])
            np.add(self._clear, dense, out=self._clear)
        self.clients += 1

    def total(self) -> Any:
        """Return the encrypted total, or None where nothing was encrypted."""
        return self._encrypted.total() if self._union.count else None

    def open_model(self, total: Any) -> bytes:
        """Let the key authority open the total, and return the mean update, float32, as it is sent to clients."""
        self._opened = np.zeros(0) if total is None else self._authority.open(total)
        return (self._dense() / self.clients).astype(np.float32).tobytes()

    def check(self, updates: list[NDArray[np.float32]]) -> None:
        """Compare the opened sum with that of the plain updates of all clients in it: in every bit.

        Raises RangeError where they differ.
        """
        step = 2.0**self._fraction_bits
        plain = np.sum([update.astype(np.float64) for update in updates], axis=0)
        rounded = np.sum([np.rint(update.astype(np.float64) * step) for update in updates], axis=0) / step
        encrypted = self._union.to_bool()
        dense = self._dense()
        if not (
            np.array_equal(dense[encrypted], rounded[encrypted])
            and np.allclose(dense[~encrypted], plain[~encrypted], rtol=0.0, atol=1e-9)
        ):
            raise RangeError("a sum was opened wrongly: this build cannot be relied on")

    def _dense(self) -> NDArray[np.float64]:
        if self._order is not None:
            dense = self._clear.copy()
            return self._order.scatter(self._opened, dense)
        dense = np.zeros(self._union.size, dtype=np.float64)
        if self._union.count:
            self._union.scatter(self._opened, dense)
        if self._clear.size:
            (~self._union).scatter(self._clear, dense)
        return dense
