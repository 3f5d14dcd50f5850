"""What travels: a client's batch, a round's total."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.scheme.ciphertext import SchemeBatch, SchemeTotal

__all__ = ["CiphertextBatch", "Total"]


class CiphertextBatch(SchemeBatch[_core.CkksCiphertext]):
    """One client's encrypted update. Reading one checks every field and every residue."""

    __slots__ = ()
    _read = staticmethod(_core.CkksCiphertext.batch)


class Total(SchemeTotal[_core.CkksCiphertext]):
    """The encrypted sum of a round, for the key authority. Reading one checks every field and every residue."""

    __slots__ = ()
    _read = staticmethod(_core.CkksCiphertext.total)
