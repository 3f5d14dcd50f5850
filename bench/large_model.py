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
from shieldfl.cli.result_console import result_console, result_table
from shieldfl.reporting.quantities import bytes_text, seconds_text
from shieldfl.torch import ModelLayout, ModelParts

CLIENTS = 3
LAYERS = 50
_DRAWN = 2**24
_SAMPLED_PARTS = 4

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


def model_in(path: Path, values: int) -> dict[str, NDArray[np.float32]]:
    """Map a file as layers of about one size."""
    whole = np.lib.format.open_memmap(path, mode="r+", dtype=np.float32, shape=(values,))
    bounds = np.linspace(0, values, LAYERS + 1).astype(int)
    return {f"layer{i}.weight": whole[bounds[i] : bounds[i + 1]] for i in range(LAYERS)}


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
    """Three clients, of one trained model, whose files are read part by part; the mean goes to another file."""
    write_model(folder / "trained.npy", values, 1)
    np.lib.format.open_memmap(folder / "mean.npy", mode="w+", dtype=np.float32, shape=(values,)).flush()
    trained, mean = model_in(folder / "trained.npy", values), model_in(folder / "mean.npy", values)
    parts = ModelParts(ModelLayout.of(trained), most_values)
    parameters = sf.kahe.Parameters.plan(max_clients=CLIENTS, goal="speed", count=parts.size(0))
    authority = sf.KeyAuthority(parameters, min_clients=CLIENTS)
    keys = [authority.enrol(f"client {number}") for number in range(CLIENTS)]
    client, aggregator, answerer, opener = Role(), Role(), Role(), Role()
    made = [parts.encrypt(encryptors(key), trained, round=1) for key in keys]
    frame_bytes, wrong, compared = 0, 0, 0
    sampled = set(np.linspace(0, len(parts) - 1, _SAMPLED_PARTS).astype(int).tolist())

    def opened() -> Iterator[tuple[int, NDArray[np.float64]]]:
        nonlocal frame_bytes, wrong, compared
        for number in range(len(parts)):
            adder = sf.kahe.Aggregator(
                authority.public_key, round=1, part=number, positions=parts.positions(number), weighted=False
            )
            for one in made:
                frame = client(partial(next_frame, one))
                aggregator(partial(adder.add, frame))
                frame_bytes += len(frame)
            total = adder.total()
            answer = answerer(partial(authority.sum_key, total.request()))
            sums = opener(partial(sf.kahe.open, total, answer, keys[0]))
            if number in sampled:
                start = number * most_values
                there = np.load(folder / "trained.npy", mmap_mode="r")[start : start + sums.size]
                expected = CLIENTS * np.rint(there.astype(np.float64) * 2.0**20) / 2.0**20
                wrong, compared = wrong + int((sums != expected).sum()), compared + sums.size
            yield number, sums / CLIENTS

    begin = time.perf_counter()
    parts.load(mean, opened(), adds=False)
    whole = time.perf_counter() - begin
    rows = [
        [name, seconds_text(role.seconds / share), bytes_text(role.peak)]
        for name, role, share in (
            ("a client: read, encrypt, serialise", client, CLIENTS),
            ("aggregator: add a client's", aggregator, CLIENTS),
            ("authority: answer", answerer, 1),
            ("a client: open", opener, 1),
        )
    ]
    console = result_console()
    console.print(
        f"{values:,} values in {len(parts)} parts, {CLIENTS} clients, {bytes_text(frame_bytes / CLIENTS)} up a client; "
        f"{seconds_text(whole)} in all, files written too; {wrong:,} of {compared:,} sampled sums wrong"
    )
    console.print(result_table(["role", "all parts", "most memory of a part"], rows))
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
