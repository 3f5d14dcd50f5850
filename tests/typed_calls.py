"""What a type checker says of code that uses the library: `make lint` has mypy read this, and nobody runs it.

An error is expected in the lines that ignore one: mypy finds those that ignore none.
"""

from __future__ import annotations

from typing import assert_type

import numpy as np
import torch

import shieldfl as sf
from shieldfl.authority.key_authority import SumKeyAuthority
from shieldfl.encryption.ckks import PublicKey as CkksPublicKey
from shieldfl.encryption.kahe import PublicKey as KahePublicKey
from shieldfl.encryption.paillier import PublicKey as PaillierPublicKey

authority = sf.KeyAuthority(sf.ckks.Parameters())
assert_type(authority.public_key, CkksPublicKey)
assert_type(sf.KeyAuthority(sf.paillier.Parameters()).public_key, PaillierPublicKey)
assert_type(
    sf.KeyAuthority(sf.kahe.Parameters(max_clients=8), most_values=1000), SumKeyAuthority[KahePublicKey]
)
sf.KeyAuthority(sf.pads.Parameters(max_clients=8)).enrol("clinic")
authority.enrol("clinic")  # type: ignore[attr-defined]
encryptor = sf.ckks.Encryptor(authority.public_key)
encryptor.encrypt(np.zeros(3, dtype=np.float32))
encryptor.encrypt(np.zeros(3))
encryptor.encrypt(torch.zeros(3))
encryptor.encrypt([torch.zeros(3), np.zeros(2, dtype=np.float32)])
encryptor.encrypt("oops")  # type: ignore[arg-type]
encryptor.encrypt([0.0])  # type: ignore[list-item]
