"""One simulation for ``many_clients.py``, in this process: its last line of output is what it took, as JSON.

python bench/many_clients_run.py CHECKOUT/python METHOD DATASET MODEL CLIENTS SHARE ROUNDS EPOCHS THREADS
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PEERS = ("pfl", "flower")
"""Other simulators, which go without protection: functions of ``many_clients_peers.py``."""


def use_package_of(folder: str) -> None:
    """Have shieldfl imported from this folder, also where an editable installation says another one.

    What an editable installation has compiled lies apart, so that nothing changes for its own folder. Raises SystemExit
    for another one in which nothing is compiled.
    """
    if not any(Path(folder, "shieldfl").glob("_core*.so")):
        installed = importlib.util.find_spec("shieldfl")
        if installed is None or Path(str(installed.origin)).parents[1] != Path(folder):
            raise SystemExit(
                f"{folder} has no compiled package, and is not what is installed: copy its _*.so there"
            )
        return
    sys.meta_path[:] = [one for one in sys.meta_path if "ScikitBuild" not in type(one).__name__]
    sys.path.insert(0, folder)


def simulation(method: str, stages: dict[str, float]) -> Callable[..., str]:
    """Return what runs a method of ours, or another simulator, and gives the last round's figures.

    A method of ours puts the milliseconds of each stage of a client's round into ``stages``.
    """
    if method in PEERS:
        return getattr(importlib.import_module("many_clients_peers"), method)()  # type: ignore[no-any-return]
    import shieldfl as sf

    importlib.import_module("shieldfl.lab.simulation.runner")

    name, _, encryption = method.partition("/")
    own = {name: {"encryption": encryption}} if encryption else {}

    def run(dataset: str, model: str, **settings: Any) -> str:
        rounds = sf.run(dataset, name, model=model, settings=own, **settings).records()
        last, updates = rounds[-1], sum(one["participants"] for one in rounds)
        for stage in (key for key in last if key.startswith("seconds_")):
            stages[stage[8:]] = 1e3 * sum(one[stage] for one in rounds) / updates
        return f"accuracy {last['accuracy']!r}, loss {last['loss']!r}"

    return run


def _processor_time() -> tuple[float, float]:
    """Return the seconds of user and system of this process, and of those that it has begun and that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime for one in both), sum(one.ru_stime for one in both)


def main() -> None:
    """Read the command line, run, print."""
    folder, method, dataset, model, clients, share, rounds, epochs, threads = sys.argv[1:]
    use_package_of(folder)
    stages: dict[str, float] = {}
    simulate = simulation(method, stages)
    before, start = _processor_time(), time.perf_counter()
    result = simulate(
        dataset,
        model,
        clients=int(clients),
        sample_rate=float(share),
        rounds=int(rounds),
        local_epochs=int(epochs),
        **({} if method in PEERS else {"threads": int(threads)}),
    )
    wall, after = time.perf_counter() - start, _processor_time()
    # The kernel's count since this program began: getrusage's would have the parent's memory in it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    found = {
        "wall": wall,
        "user": after[0] - before[0],
        "system": after[1] - before[1],
        "peak_bytes": 1024 * peak,
        "result": result,
        "stages": stages,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
