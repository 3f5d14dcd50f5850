"""How much slower clients are that share a machine than one that has it for itself.

Hardware threads share the units of a core, cores share caches and memory, and a process that is kept from running finds
its caches cold. Clients on machines of their own know nothing of that, so a simulation that is compared with clients on
one machine has to be told: each client measures the same steps as calibration does, all of them at the same time and
under their limits.
"""

from __future__ import annotations

import time

import numpy as np

from shieldfl.fleet.costs.cost_model import CostModel, speedup
from shieldfl.fleet.fleet import Fleet, FloatVector
from shieldfl.fleet.measure.client_processes import ClientProcesses

__all__ = ["measure_slowdown"]

_PROBE_SECONDS = 1.0
_PATIENCE_SECONDS = 120.0


def measure_slowdown(processes: ClientProcesses, fleet: Fleet, costs: CostModel) -> dict[str, FloatVector]:
    """Return factors for the stages train and encrypt, each of shape (K,): 1 for what takes as long as calibrated.

    Processor time is compared, which does not count what limits keep a client from. A client that has gone gets the
    mean of the others, or 1 where nobody answers.
    """
    # What calibration says that all threads of a client spend on a sample and a ciphertext.
    expected = {
        "train": costs.train_seconds_per_sample * _threads_cost(fleet, costs.train_serial_share),
        "encrypt": costs.scheme.encrypt_seconds * _threads_cost(fleet, costs.scheme.serial_share),
    }
    factors = {name: np.full(fleet.size, np.nan) for name in expected}
    waiting = set(processes.alive)
    for client in processes.alive:
        processes.send(client, "probe", {"seconds": _PROBE_SECONDS})
    until = time.monotonic() + _PATIENCE_SECONDS
    while waiting:
        found = processes.next_letter(until)
        if found is None:
            break
        if found.letter is not None and found.letter.kind != "probed":
            continue
        waiting.discard(found.client)
        for name, seconds in {} if found.letter is None else found.letter.facts.items():
            factors[name][found.client] = seconds / expected[name][found.client]
    for known in factors.values():
        gone = np.isnan(known)
        known[gone] = 1.0 if gone.all() else known[~gone].mean()
    return factors


def _threads_cost(fleet: Fleet, serial: float) -> FloatVector:
    cost: FloatVector = fleet.cores / speedup(fleet.cores, serial)
    return cost
