"""From updates to batches to a total: nothing here opens anything."""

# What each is, its base says; help() finds it there.
# ruff: noqa: D101

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.kahe.keys import ClientKey
from shieldfl.kahe.parameters import PublicKey
from shieldfl.scheme.enrolled_encryption import (
    EnrolledAggregator,
    EnrolledBatch,
    EnrolledEncryptor,
    EnrolledTotal,
)

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Total"]


class CiphertextBatch(EnrolledBatch[_core.KaheCiphertext]):
    __slots__ = ()
    _read = staticmethod(_core.KaheCiphertext.batch)


class Total(EnrolledTotal[_core.KaheCiphertext]):
    __slots__ = ()
    _read = staticmethod(_core.KaheCiphertext.total)
    _core_request = _core.KaheSumRequest


class Encryptor(EnrolledEncryptor[CiphertextBatch]):
    _batch_class = CiphertextBatch
    _client_key_class = ClientKey
    _core_encryptor = _core.KaheEncryptor


class Aggregator(EnrolledAggregator[_core.KaheAggregator, Total]):
    _public_key_class = PublicKey
    _core_aggregator = _core.KaheAggregator
    _core_ciphertext = _core.KaheCiphertext
    _total_type = Total
