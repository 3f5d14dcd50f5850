"""From updates to batches to a total: nothing here opens anything."""

# What each is, its base says; help() finds it there.
# ruff: noqa: D101

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.pads.keys import ClientKey
from shieldfl.pads.parameters import PublicKey
from shieldfl.scheme.enrolled_encryption import (
    EnrolledAggregator,
    EnrolledBatch,
    EnrolledEncryptor,
    EnrolledTotal,
)

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Total"]


class CiphertextBatch(EnrolledBatch[_core.PadsCiphertext]):
    __slots__ = ()
    _read = staticmethod(_core.PadsCiphertext.batch)


class Total(EnrolledTotal[_core.PadsCiphertext]):
    __slots__ = ()
    _read = staticmethod(_core.PadsCiphertext.total)
    _core_request = _core.PadsSumRequest


class Encryptor(EnrolledEncryptor[CiphertextBatch]):
    _batch_class = CiphertextBatch
    _client_key_class = ClientKey
    _core_encryptor = _core.PadsEncryptor


class Aggregator(EnrolledAggregator[_core.PadsAggregator, Total]):
    _public_key_class = PublicKey
    _core_aggregator = _core.PadsAggregator
    _core_ciphertext = _core.PadsCiphertext
    _total_type = Total
