"""Runs in a process of its own: prints digests of what the kernels make from fixed inputs and randomness.

Its argument is a file of the keys: public frames and secrets in hexadecimal digits, by the names of their settings.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import shieldfl as sf
from shieldfl import _core, _testing
from shieldfl.masks import negotiate_zones, split_zones

SETTINGS = {
    "exact, one prime": {"ring_degree": 2048, "max_clients": 5},
    "exact, two primes": {"ring_degree": 4096, "max_clients": 5},
    "exact, five in a coefficient": {"max_clients": 20, "value_bits": 2, "fraction_bits": 0},
    "slots": {"packing": "slots", "max_clients": 5},
}


def of_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encryption(public_frame: bytes, secret: bytes) -> dict[str, str]:
    public_key = sf.ckks.PublicKey.from_bytes(public_frame)
    decryptor = _core.CkksDecryptor.import_secret(public_key._core, secret)
    rng = np.random.default_rng(1)
    size = 10_007
    chosen = rng.random(size) < 0.6
    aggregator = sf.ckks.Aggregator(public_key, threads=2)
    batches = []
    for seed in range(3):
        update = rng.uniform(-1, 1, size)
        batches.append(
            _testing.encrypt_insecure(
                public_frame, update, seed=seed, mask_bools=chosen.tobytes(), weight=1.0, threads=2
            )
        )
        aggregator.add(batches[-1])
    total = aggregator.total()
    sums, _ = decryptor.open(total.parsed)
    return {
        "frames": of_bytes(b"".join(batches)),
        "total": of_bytes(total.to_bytes()),
        "residues": of_bytes(_testing.ciphertext_residues(total.to_bytes(), True).tobytes()),
        "opened": of_bytes(sums.tobytes()),
    }


def ring() -> dict[str, str]:
    rng = np.random.default_rng(2)
    outputs = {
        "ternary": of_bytes(_testing.sample_ternary(3, 1, 100_001).tobytes()),
        "error": of_bytes(_testing.sample_error(3, 1, 100_001).tobytes()),
    }
    for degree, prime in ((2048, 1125899906826241), (4096, 1099511390209), (64, 12289)):
        values = rng.integers(0, prime, degree, dtype=np.uint64)
        transformed = _testing.transform(values, prime, False)
        outputs[f"transform {degree}"] = of_bytes(transformed.tobytes())
        outputs[f"inverse {degree}"] = of_bytes(_testing.transform(values, prime, True).tobytes())
    return outputs


def masks() -> dict[str, str]:
    rng = np.random.default_rng(3)
    size = 100_003
    ballots = [sf.Mask.from_bool(rng.random(size) < share) for share in np.linspace(0.01, 0.9, 21)]
    encrypted, zones = negotiate_zones(ballots, 0.4, threads=2)
    votes = sf.Votes(size)
    for ballot in ballots:
        votes.add(ballot)
    values = rng.normal(size=size)
    dense = np.zeros(size)
    ballots[5].scatter(ballots[5].gather(values), dense)
    ballots[9].scatter_add(ballots[9].gather(values), dense)
    return {
        "frames": of_bytes(b"".join(ballot.to_bytes() for ballot in ballots)),
        "negotiated": of_bytes(sf.negotiate(ballots, 0.4).to_bytes()),
        "zones": of_bytes(b"".join(mask.to_bytes() for client in zones for mask in client)),
        "split": of_bytes(b"".join(mask.to_bytes() for mask in split_zones(ballots[3], encrypted))),
        "counts": of_bytes(votes.counts().tobytes()),
        "algebra": of_bytes(((~ballots[0] & ballots[9]) | (ballots[5] - ballots[3])).to_bytes()),
        "gathered": of_bytes(ballots[7].gather(values).tobytes()),
        "gathered float32": of_bytes(ballots[7].gather(values.astype(np.float32)).tobytes()),
        "scattered": of_bytes(dense.tobytes()),
    }


def clipping() -> dict[str, str]:
    values = np.random.default_rng(4).normal(size=100_003).astype(np.float32)
    clipped, norm, _ = _core.clip_and_add_gaussian(values, 1.5, 0.0)
    return {"clipped": of_bytes(clipped.tobytes()), "norm": norm.hex()}


def noise() -> dict[str, str]:
    values = np.random.default_rng(5).normal(size=20_011).astype(np.float32)
    continuous, _, _ = _testing.clip_and_add_gaussian_insecure(values, 1000.0, 0.7, seed=6, threads=2)
    discrete, _, _ = _testing.clip_and_add_discrete_gaussian_insecure(
        values, 1000.0, 12, int((0.7 * 2**12) ** 2), 1, seed=7, threads=2
    )
    return {"continuous": of_bytes(continuous.tobytes()), "discrete": of_bytes(discrete.tobytes())}


if __name__ == "__main__":
    keys = json.loads(Path(sys.argv[1]).read_text())
    print(
        json.dumps(
            {
                "instruction set": sf.build_info()["instruction_set"],
                "outputs": {
                    **{name: encryption(*map(bytes.fromhex, keys[name])) for name in SETTINGS},
                    "ring": ring(),
                    "masks": masks(),
                    "clipping": clipping(),
                    "noise": noise(),
                },
            }
        )
    )
