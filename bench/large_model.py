"""A model of 10^9 values in parts: from a mapped file through every role, and into a mapped file."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import shieldfl as sf
from peak_memory import with_extra_peak_bytes
from shieldfl.cli.console import ResultConsole, result_table
from shieldfl.models import ModelLayout, ModelParts
from shieldfl.quantities import bytes_text, seconds_text

CLIENTS = 3
LAYERS = 50
_DRAWN = 2**24
_SAMPLED_LAYERS = 5

Result = TypeVar("Result")


class Role:
    """Seconds of a role, all parts together, and the most memory that one part took it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.peak = 0

    def __call__(self, work: Callable[[], Result]) -> Result:
        """Do some work of the role."""
        begin = time.perf_counter()
        found, peak = with_extra_peak_bytes(work)
        self.seconds += time.perf_counter() - begin
        self.peak = max(self.peak, peak)
        return found


def model_in(path: Path, values: int, turned: int = 0) -> dict[str, NDArray[np.float32]]:
    """Map a file as layers of one size; ``turned`` makes each the one that is so many behind it."""
    whole = np.lib.format.open_memmap(path, mode="r+", dtype=np.float32, shape=(values,))
    layers = np.split(whole, LAYERS)
    return {f"layer{i}.weight": layers[(i + turned) % LAYERS] for i in range(LAYERS)}


def write_model(path: Path, values: int, seed: int) -> None:
    """Write so many normal values, of which every 2**24 are the same, rolled by their number."""
    drawn = np.random.default_rng(seed).normal(0.0, 0.05, _DRAWN).astype(np.float32)
    whole = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(values,))
    for number, start in enumerate(range(0, values, _DRAWN)):
        whole[start : start + _DRAWN] = np.roll(drawn, number)[: values - start]


def encryptors(key: sf.kahe.ClientKey) -> Callable[[int], sf.kahe.Encryptor]:
    """Return what makes a client's encryptor of each part."""
    return lambda part: sf.kahe.Encryptor(key, part=part)


def next_frame(made: Iterator[tuple[int, sf.kahe.CiphertextBatch]]) -> bytes:
    """Return a client's next part, as it is sent."""
    _, batch = next(made)
    return batch.to_bytes()


def wrong_in(
    mean: dict[str, NDArray[np.float32]], models: list[dict[str, NDArray[np.float32]]]
) -> tuple[int, int]:
    """Return how many values of some layers of the mean are wrong, and how many were compared."""
    wrong, compared = 0, 0
    for name in list(mean)[:: LAYERS // _SAMPLED_LAYERS]:
        sums = np.sum([np.rint(model[name].astype(np.float64) * 2.0**20) for model in models], axis=0)
        wrong += int((mean[name] != (sums / 2.0**20 / CLIENTS).astype(np.float32)).sum())
        compared += sums.size
    return wrong, compared


def main() -> None:
    """Run one round and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=lambda text: int(float(text)), default=10**9)
    parser.add_argument("--most-values", type=lambda text: int(float(text)), default=2**24, help="of a part")
    parser.add_argument("--folder", type=Path, default=None, help="on a disk with room for two models")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        one_round(Path(folder), options.values, options.most_values)


def one_round(folder: Path, values: int, most_values: int) -> None:
    """Three clients with a model each, which are read part by part; the mean goes to another file."""
    write_model(folder / "trained.npy", values, 1)
    np.lib.format.open_memmap(folder / "mean.npy", mode="w+", dtype=np.float32, shape=(values,)).flush()
    models = [model_in(folder / "trained.npy", values, turned) for turned in range(CLIENTS)]
    mean = model_in(folder / "mean.npy", values)
    parts = ModelParts(ModelLayout.of(models[0]), most_values)
    parameters = sf.kahe.Parameters.plan(max_clients=CLIENTS, goal="speed", count=parts.size(0))
    authority = sf.KeyAuthority(parameters, min_clients=CLIENTS)
    keys = [authority.enrol(f"client {number}") for number in range(CLIENTS)]
    client, aggregator, answerer, opener = Role(), Role(), Role(), Role()
    made = [parts.encrypt(encryptors(key), model, round=1) for key, model in zip(keys, models, strict=True)]
    frame_bytes = 0

    def opened() -> Iterator[tuple[int, NDArray[np.float64]]]:
        nonlocal frame_bytes
        for number, positions in parts.positions_of_each():
            adder = sf.kahe.Aggregator(
                authority.public_key, round=1, part=number, positions=positions, weighted=False
            )
            for one in made:
                frame = client(partial(next_frame, one))
                aggregator(partial(adder.add, frame))
                frame_bytes += len(frame)
            total = adder.total()
            answer = answerer(partial(authority.sum_key, total.request()))
            sums = opener(partial(sf.kahe.open, total, answer, keys[0]))
            yield number, sums / CLIENTS

    begin = time.perf_counter()
    parts.load(mean, opened(), adds=False)
    whole = time.perf_counter() - begin
    wrong, compared = wrong_in(mean, models)
    rows = [
        [name, seconds_text(role.seconds / share), bytes_text(role.peak)]
        for name, role, share in (
            ("a client: read, encrypt, serialise", client, CLIENTS),
            ("aggregator: add a client's", aggregator, CLIENTS),
            ("authority: answer", answerer, 1),
            ("a client: open", opener, 1),
        )
    ]
    console = ResultConsole()
    console.print(
        f"{values:,} values in {len(parts)} parts, {CLIENTS} clients, {bytes_text(frame_bytes / CLIENTS)} up a client; "
        f"{seconds_text(whole)} in all, files written too; {wrong:,} of {compared:,} sampled values of the mean wrong"
    )
    console.print(result_table(["role", "all parts", "most memory of a part"], rows))
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
