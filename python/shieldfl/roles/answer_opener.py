"""Opens totals with answers of the key authority, for whoever was granted them: a client, as a rule."""

from __future__ import annotations

from typing import Any

from shieldfl.array_view import Buffer, as_frame
from shieldfl.errors import PolicyError
from shieldfl.roles.message import piece_of_each
from shieldfl.roles.total_opener import Answer, TotalOpener
from shieldfl.scheme.answers import open_total, read_answer

__all__ = ["AnswerOpener"]


class AnswerOpener(TotalOpener[Any]):
    """Opens those totals that the authority has answered for, and no others; holds no client's key.

    Parameters
    ----------
    public_key : of the session, with the authority's identity.
    opening_key : what the authority granted, 32 bytes for each; secret.
    min_clients, weight_bounds, threads, purpose : as for :class:`TotalOpener`.
    """

    _why_uncopied = "holds what opens answers and is neither copied nor pickled"

    def __init__(
        self,
        public_key: Any,
        opening_key: bytes,
        min_clients: int,
        weight_bounds: tuple[float, float],
        threads: int | None = None,
        *,
        purpose: str | None = None,
    ) -> None:
        super().__init__(public_key, min_clients, weight_bounds, threads, purpose)
        self._opening_key = opening_key
        self._given: Buffer | None = None
        self._beside = b""
        self.request = b""
        """What the total that was opened last was asked for with."""
        self._opened: set[bytes] = set()

    def take(self, answer: Buffer, beside: bytes = b"") -> None:
        """Take the answer to the total that is opened next, of several authorities one after the other.

        ``beside`` is what its request was made with.
        """
        self._given, self._beside = answer, beside

    def has_opened(self, total: Any) -> bool:
        """Say whether this total was opened here."""
        return total.digest() in self._opened

    def checked_request(self, total: Any) -> bytes:
        """Return what a total was asked for with. Raises KeyMismatchError unless the answer is the one to it."""
        _, request = self._sum_keys(total)
        return request

    def _sum_keys(self, total: Any) -> tuple[list[bytes], bytes]:
        if self._given is None:
            raise PolicyError("there is no answer to this total: ask the key authority with total.request()")
        key = self._public_key
        request = total.request(self._beside)
        members = key.identity.members
        pieces = (
            piece_of_each(joined, len(members))
            for joined in (self._opening_key, bytes(as_frame(self._given)))
        )
        sum_keys = [
            read_answer(member.verifying_key, bytes(opening_key), key.id, request, answer)
            for member, opening_key, answer in zip(members, *pieces, strict=True)
        ]
        return sum_keys, request

    def _answer(self, total: Any) -> Answer:
        key = self._public_key
        sum_keys, request = self._sum_keys(total)
        answer = Answer(*open_total(key, total, sum_keys, beside=self._beside, threads=self._threads or None))
        self._opened.add(total.digest())
        self.request = request
        return answer
