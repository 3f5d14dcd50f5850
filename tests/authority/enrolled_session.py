"""An authority and clients that enrolled with it, for tests."""

from __future__ import annotations

import numpy as np

import shieldfl as sf
from encryption.enrolled_clients import total_of
from shieldfl.encryption import kahe, pads
from shieldfl.encryption.registry import scheme_of

__all__ = ["OF_SCHEMES", "PARAMETERS", "SIZE", "Session", "updates"]

PARAMETERS = kahe.Parameters(max_clients=8, ring_degree=2048)
OF_SCHEMES = {"kahe": PARAMETERS, "pads": pads.Parameters(max_clients=8)}
SIZE = 300
NAMES = ("clinic-1", "clinic-2", "clinic-3", 4)


def updates():
    return np.random.default_rng(5).integers(-1000, 1000, (len(NAMES), SIZE)).astype(np.float32) / 1024


class Session:
    """An authority, and clients that it enrolled."""

    def __init__(self, names=NAMES, parameters=PARAMETERS, **options):
        self.scheme = scheme_of(parameters)
        self.authority = sf.KeyAuthority(parameters, **options)
        self.keys = [self.authority.enrol(name) for name in names]

    def frame(self, index, round=1, values=None, **options):
        made = {name: options.pop(name) for name in ("purpose", "part") if name in options}
        encryptor = self.scheme.Encryptor(self.keys[index], 1, **made)
        return encryptor.encrypt(
            updates()[index] if values is None else values, round=round, **options
        ).to_bytes()

    def total(self, clients=(0, 1, 2, 3), round=1, frames=None, **options):
        frames = frames or [self.frame(client, round, **options) for client in clients]
        return total_of(self.authority.public_key, frames, threads=1, **options)
