"""Paillier as the registry has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer
from shieldfl.masks import Mask
from shieldfl.paillier.encryption import Aggregator, Encryptor, Total
from shieldfl.paillier.parameters import Parameters, PublicKey
from shieldfl.paillier.union_order import UnionOrder
from shieldfl.scheme.interface import Fact, FrameBody, KeyBits, Scheme, SumNeeds, Vector

__all__ = ["SCHEME", "Paillier"]


class Paillier(Scheme):
    """Its pairs take seconds to make, and no honest or forged ciphertext tells anything of them: they serve all rounds.

    Clients with different masks share ciphertexts in a :class:`UnionOrder`.
    """

    name = "paillier"
    Parameters = Parameters
    PublicKey = PublicKey
    Encryptor = Encryptor
    Aggregator = Aggregator
    Total = Total
    opening = "shieldfl.paillier.opening"
    encryptions = ("paillier-dense", "paillier-single")
    key_sizes = get_args(KeyBits)
    keys_last = True
    adds_clear_values = True
    integer_weights = True
    has_pool = True
    is_slow = True
    positions_part = "order"

    @property
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """Of public keys, batches, totals and orders of a union."""
        return {
            "union order": _order_body,
            "paillier public key": lambda frame: _body(
                {}, _core.PaillierPublicKey.from_bytes(frame).parameters
            ),
            "paillier batch": _batch_body,
            "paillier total": _total_body,
        }

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return the default ones of this packing and key size."""
        return self.Parameters(key_bits=key_bits, packing=_packing(encryption))

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return those whose fields have room for integer weights.

        Nobody can see whether a client encrypts where it also sends a plain number, so where those come,
        fields have room for both.
        """
        self.check_key_bits(needs.key_bits)
        return self.Parameters(
            key_bits=needs.key_bits,
            packing=_packing(encryption),
            max_clients=2 * needs.clients if needs.takes_clear_values else needs.clients,
            value_bits=needs.value_bits,
            fraction_bits=needs.fraction_bits,
            max_weight=needs.most_weight,
        )

    def positions_of(self, masks: list[Mask], threads: int | None) -> UnionOrder:
        """Return the order of the masks' union."""
        return UnionOrder.from_masks(masks, threads)

    def read_positions(self, frame: Buffer, size: int) -> UnionOrder:
        """Read an order."""
        return UnionOrder.from_bytes(frame, size)

    def encrypt(
        self,
        encryptor: Any,
        update: Vector,
        own: Mask,
        positions: Any,
        weight: float | None,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt the client's own positions, in the union's order; the aggregator gives the weight."""
        return encryptor.encrypt_in_union(update, positions, own, round_number).to_bytes(), own

    def aggregator(
        self,
        key: Any,
        threads: int | None,
        round_number: int,
        positions: Any,
        *,
        weighted: bool,
        purpose: str,
    ) -> Any:
        """Return an aggregator of batches in this order."""
        return self.Aggregator(key, threads, round=round_number, order=positions)

    def add(
        self, aggregator: Any, client: int, frame: Buffer, weight: int, clear: NDArray[np.float32] | None
    ) -> None:
        """Add a frame so many times, with what its client sent in the clear."""
        aggregator.add(frame, weight, clear if clear is not None and clear.any() else None)


def _packing(encryption: str) -> str:
    return encryption.removeprefix("paillier-")


def _order_body(frame: bytes) -> FrameBody:
    order = UnionOrder.from_bytes(frame)
    return FrameBody({"positions": order.size, "in union": order.count, "positions id": order.id.hex()})


def _batch_body(frame: bytes) -> FrameBody:
    batch = _core.PaillierCiphertext.batch(frame)
    present = {"ciphertexts present": batch.present_ciphertexts}
    return _body(FrameBody.counts_of(batch) | present, batch.parameters)


def _total_body(frame: bytes) -> FrameBody:
    total = _core.PaillierCiphertext.total(frame)
    return _body(FrameBody.counts_of(total) | {"total weight": total.total_weight}, total.parameters)


def _body(counts: dict[str, Fact], parameters: _core.PaillierParameters) -> FrameBody:
    return FrameBody(counts, FrameBody.spaced(parameters.facts), Parameters._wrap(parameters).describe())


SCHEME = Paillier()
