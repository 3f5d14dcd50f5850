"""A training that needs no data and no torch: what is tried of a protocol does not depend on what clients learn."""

from __future__ import annotations

import numpy as np

from shieldfl.training.local_update import LocalUpdate, PrivateSteps, StartingPoint

__all__ = ["contraction"]


def contraction(round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
    """Go a tenth of the way to a target that is the client's own in this round; random scores up to 1."""
    generator = np.random.default_rng([round_number, client])
    vectors = (start.parameters, start.buffers)
    targets = [generator.normal(0.0, 1.0, one.size).astype(np.float32) for one in vectors]
    scores = generator.random(start.parameters.size, dtype=np.float32)
    step = np.float32(0.1)
    return start.trained(
        start.parameters + step * (targets[0] - start.parameters),
        start.buffers + step * (targets[1] - start.buffers),
        scores,
        None if start.noise is None else PrivateSteps(steps=2, sample_rate=0.5),
    )
