"""What the key authority alone imports: what opens a total, of all who are in it."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.scheme.enrolled_encryption import purpose_id
from shieldfl.scheme.sum_keys import sum_key

__all__ = ["SumRequest", "purpose_id", "sum_key"]

SumRequest = _core.KaheSumRequest
