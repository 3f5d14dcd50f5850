"""What the registry knows of every scheme in which clients enrol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_frame
from shieldfl.scheme.described_scheme import DescribedScheme
from shieldfl.scheme.enrolled_opening import open_total
from shieldfl.scheme.interface import Fact, FrameBody, Positions

__all__ = ["EnrolledScheme"]


class EnrolledScheme(DescribedScheme):
    """Each client enrols once, and shares a key with the key authority; what opens a total opens that alone."""

    keys_last = True
    has_sum_bits = True
    _core_ciphertext: ClassVar[Any]
    _core_request: ClassVar[Any]

    @property
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """Of public keys, batches, totals, requests for what opens a total, and the answers: their head alone."""
        return {
            f"{self.name} public key": self._session_body,
            f"{self.name} batch": lambda frame: self._body(self._core_ciphertext.batch(frame)),
            f"{self.name} total": lambda frame: self._body(self._core_ciphertext.total(frame)),
            f"{self.name} sum request": self._request_body,
            f"{self.name} sum key": self._sum_key_body,
        }

    def _session_body(self, frame: bytes) -> FrameBody:
        core = self.PublicKey.from_bytes(frame)._core
        session: dict[str, Fact] = {
            "epoch": core.epoch,
            "authority": core.authority.hex(),
            "manifest digest": core.manifest.hex(),
        }
        return replace(self._public_key_body(frame), counts=session)

    def _body(self, ciphertext: Any) -> FrameBody:
        body = self._ciphertext_body(ciphertext)
        return replace(body, counts=body.counts | _addressed(ciphertext))

    def _request_body(self, frame: bytes) -> FrameBody:
        request = self._core_request.from_bytes(frame)
        asked: dict[str, Fact] = {
            "round": request.round,
            "clients": len(request.participants),
            "values": request.count,
            "weighted": request.weighted,
            "positions id": request.mask_id.hex(),
        }
        return FrameBody(asked | _addressed(request) | {"total digest": request.total_digest.hex()})

    def _sum_key_body(self, frame: bytes) -> FrameBody:
        """Read what stands before the numbers: they are secret, and whether each is in range shows when they are used.

        Raises WireFormatError.
        """
        head = self._core_request.head_of_sum_key(frame)
        stated = self._sum_key_facts(head["unit"], head["count"])
        return FrameBody(
            {"clients": head["clients"], **stated, "total digest": head["total_digest"].hex()},
            description="the sum of one-time secrets that opens one total: secret, and for whoever opens it alone",
        )

    def _sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        """Return what a sum key's unit, and the count of its numbers, are to whoever reads them."""
        raise NotImplementedError

    def encryptor(self, key: Any, threads: int | None, purpose: str) -> Any:
        """Return what encrypts under a client's own key, for this purpose."""
        return self.Encryptor(key, threads, purpose=purpose)

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
        return self.Aggregator(
            key, threads, round=round_number, positions=positions.mask, weighted=weighted, purpose=purpose
        )

    def open_total(
        self,
        key: Any,
        total: Any,
        sum_keys: Sequence[Buffer],
        threads: int | None,
        beside: bytes = b"",
    ) -> tuple[NDArray[np.float64], float | None]:
        """Open a total with the sum of its participants' one-time secrets, of those with each authority."""
        return open_total(key, total, sum_keys, beside=beside, threads=threads)

    def add(
        self,
        aggregator: Any,
        client: int,
        frame: Buffer,
        weight: int,
        clear: NDArray[np.float32] | None,
    ) -> None:
        """Add the frame that this client sent. Raises KeyMismatchError for the frame of another client."""
        aggregator.add(as_frame(frame), client)


def _addressed(frame: Any) -> dict[str, Fact]:
    return {"purpose id": frame.purpose.hex(), "part": frame.part}
