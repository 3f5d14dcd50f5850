"""What a client does with its own CKKS frames, beside what an audit does with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encryption.wire_twin import reseal
from shieldfl.encryption import ckks
from shieldfl.lab.audit.protocol.ckks_frames import BatchFrame


def with_weight(
    encryptor: ckks.Encryptor, honest: bytes, values: NDArray[np.float32], weight: float
) -> bytes:
    """Return a batch with the head of an honest, weighted one, but any values (count,) and any encrypted weight.

    The weight is one more value, which the header alone calls a weight: a batch of count + 1 values gets the other
    header.
    """
    parameters = encryptor.public_key.parameters
    head = BatchFrame(honest, parameters)
    assert head.weighted
    assert values.size == head.count
    made = bytearray(encryptor.encrypt(np.append(values, np.float32(weight))).to_bytes())
    # Round, positions, number of values, flags.
    begin, end = head.values_at - 24, head.values_at + 12
    made[begin:end] = honest[begin:end]
    return reseal(bytes(made))
