"""Key-additive encryption as the registry has it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame
from shieldfl.errors import KeyMismatchError, WireFormatError
from shieldfl.kahe.answers import open_total
from shieldfl.kahe.encryption import Aggregator, CiphertextBatch, Encryptor, Total
from shieldfl.kahe.keys import ClientKey
from shieldfl.kahe.parameters import Parameters, PublicKey
from shieldfl.scheme.interface import Fact, FrameBody, Positions, SumNeeds
from shieldfl.scheme.ring_scheme import RingScheme

__all__ = ["SCHEME", "Kahe"]

# Of a sum key's frame, as docs/wire-format.md has it: the header, what stands before the coefficients, the checksum.
_HEADER_BYTES = 48
_SUM_KEY = struct.Struct("<IIQ32s32s")
_CHECKSUM_BYTES = 4
_MOST_CLIENTS = 2**20
_LARGEST_COEFFICIENT = 42


class Kahe(RingScheme):
    """Each client enrols once, and shares a key with the key authority; what opens a total opens that alone."""

    name = "kahe"
    Parameters = Parameters
    PublicKey = PublicKey
    ClientKey = ClientKey
    Encryptor = Encryptor
    Aggregator = Aggregator
    Total = Total
    opening = "shieldfl.kahe.opening"
    encryptions = ("kahe",)
    keys_last = True

    @property
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """Of public keys, batches, totals, requests for what opens a total, and the answers: their head alone."""
        return {
            "kahe public key": self._public_key_body,
            "kahe batch": lambda frame: self._body(_core.KaheCiphertext.batch(frame)),
            "kahe total": lambda frame: self._body(_core.KaheCiphertext.total(frame)),
            "kahe sum request": _request_body,
            "kahe sum key": _sum_key_body,
        }

    def _planned_count(self, needs: SumNeeds) -> int | None:
        """Return the most that there can be where the count is not known: rings differ by more than four to one."""
        return needs.most_count if needs.count is None else needs.count

    def _public_key_body(self, frame: bytes) -> FrameBody:
        key = _core.KahePublicKey.from_bytes(frame)
        session: dict[str, Fact] = {
            "epoch": key.epoch,
            "authority": key.authority.hex(),
            "manifest digest": key.manifest.hex(),
        }
        return replace(super()._public_key_body(frame), counts=session)

    def _body(self, ciphertext: _core.KaheCiphertext) -> FrameBody:
        body = self._ciphertext_body(ciphertext)
        return replace(body, counts=body.counts | _addressed(ciphertext))

    def encryptor(self, key: Any, threads: int | None, purpose: str) -> Any:
        """Return what encrypts under a client's own key, for this purpose."""
        return Encryptor(key, threads, purpose=purpose)

    def aggregator(
        self,
        key: Any,
        threads: int | None,
        round_number: int,
        positions: Positions,
        *,
        weighted: bool,
        purpose: str,
    ) -> Any:
        """Return an aggregator that takes batches of these positions and this purpose alone."""
        return Aggregator(
            key, threads, round=round_number, positions=positions.mask, weighted=weighted, purpose=purpose
        )

    def open_total(
        self, key: Any, total: Any, sum_key: Buffer, threads: int | None, beside: bytes = b""
    ) -> tuple[NDArray[np.float64], float | None]:
        """Open a total with the sum of its participants' one-time secrets."""
        return open_total(key, total, sum_key, beside=beside, threads=threads)

    def add(
        self,
        aggregator: Any,
        client: int,
        frame: Buffer,
        weight: int,
        clear: NDArray[np.float32] | None,
    ) -> None:
        """Add the frame that this client sent. Raises KeyMismatchError for the frame of another client."""
        batch = CiphertextBatch.from_bytes(as_frame(frame))
        if batch.client != client:
            raise KeyMismatchError(f"client {client} sent the frame of another client: it was not added")
        aggregator.add(batch)


def _addressed(frame: _core.KaheCiphertext | _core.KaheSumRequest) -> dict[str, Fact]:
    return {"purpose id": frame.purpose.hex(), "part": frame.part}


def _request_body(frame: bytes) -> FrameBody:
    request = _core.KaheSumRequest.from_bytes(frame)
    asked: dict[str, Fact] = {
        "round": request.round,
        "clients": len(request.participants),
        "values": request.count,
        "weighted": request.weighted,
        "positions id": request.mask_id.hex(),
    }
    return FrameBody(asked | _addressed(request) | {"total digest": request.total_digest.hex()})


def _sum_key_body(frame: bytes) -> FrameBody:
    """Read what stands before the coefficients: they are secret, and whether each is in range shows when they are used.

    Raises WireFormatError.
    """
    if len(frame) < _HEADER_BYTES + _SUM_KEY.size + _CHECKSUM_BYTES:
        raise WireFormatError("the sum key is too short to be one: it was altered")
    clients, degree, coefficients, _, total_digest = _SUM_KEY.unpack_from(frame, _HEADER_BYTES)
    bits = (2 * _LARGEST_COEFFICIENT * clients).bit_length()
    stated = _HEADER_BYTES + _SUM_KEY.size + (coefficients * bits + 7) // 8 + _CHECKSUM_BYTES
    if not (
        1 <= clients <= _MOST_CLIENTS and degree >= 8 and coefficients % degree == 0 and stated == len(frame)
    ):
        raise WireFormatError("the sum key states what none has: it was altered")
    return FrameBody(
        {
            "clients": clients,
            "ring degree": degree,
            "secret polynomials": coefficients // degree,
            "total digest": total_digest.hex(),
        },
        description="the sum of one-time secrets that opens one total: secret, and for whoever opens it alone",
    )


SCHEME = Kahe()
