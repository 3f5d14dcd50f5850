"""Opening totals with what key authorities answered, whatever the scheme: for whoever was granted that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_frame, as_threads
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.scheme.client_key import EnrolledClientKey
from shieldfl.scheme.enrolled_encryption import EnrolledTotal
from shieldfl.scheme.enrolled_key import EnrolledPublicKey
from shieldfl.scheme.sealed_answer import read_answer

__all__ = ["Answers", "open_answered", "open_total"]

Answers = Buffer | Sequence[Buffer]
"""Of the authority, or of each of several in the order of their group."""


def _each(answers: Answers) -> list[Buffer]:
    return list(answers) if isinstance(answers, list | tuple) else [answers]  # type: ignore[list-item]


def _check_total(total: object) -> None:
    if not isinstance(total, EnrolledTotal):
        raise PolicyError("only totals are opened, never a single client's batch: add it to an Aggregator")


def open_answered(
    total: EnrolledTotal[Any],
    answers: Answers,
    key: EnrolledClientKey[Any],
    *,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Open a total with the key authority's answer: the sums, float64 (count,), by ascending position.

    Parameters
    ----------
    total : what the aggregator gave.
    answers : what the authority answered to ``total.request()``; of several, a list in the order of their group.
    key : of a client that took the authority's grant, or each one's.
    threads : None for as many as the work is worth.

    Raises KeyMismatchError for an answer that the authority did not sign for this very total; PolicyError before a
    grant was taken; ParameterError for too few or too many answers; WireFormatError for what does not open to sums in
    range.
    """
    _check_total(total)
    public_key, given = key.public_key, _each(answers)
    authorities = public_key.authorities
    if len(given) != len(authorities):
        raise ParameterError(
            f"the session has {len(authorities)} authorities, each of which has to answer, and there are {len(given)} "
            "answers"
        )
    request = total.request()
    sum_keys = [
        read_answer(authority.verifying_key, opening_key, public_key.id, request, answer)
        for authority, opening_key, answer in zip(authorities, key.opening_keys, given, strict=True)
    ]
    return open_total(public_key, total, sum_keys, threads=threads)[0]


def open_total(
    public_key: EnrolledPublicKey[Any],
    total: EnrolledTotal[Any],
    keys: Answers,
    *,
    beside: bytes = b"",
    threads: int | None = None,
) -> tuple[NDArray[np.float64], float | None]:
    """Open a total: the sums, float64 (count,), by ascending position, and the sum of encrypted weights, if any.

    Parameters
    ----------
    public_key : of the session.
    total : what the aggregator gave.
    keys : what ``sum_key`` gave for this very total; of several authorities, a list.
    beside : what the request was made with.
    threads : None for as many as the work is worth.

    Raises KeyMismatchError for a key of another total, WireFormatError for what does not open to sums in range: the
    list of clients is not that of the ciphertexts, or one of them was altered.
    """
    _check_total(total)
    opened: tuple[NDArray[np.float64], float | None] = total.parse(threads).open(
        type(public_key).core_of(public_key),
        total.digest(beside, threads),
        [as_frame(key) for key in _each(keys)],
        as_threads(threads),
    )
    return opened
