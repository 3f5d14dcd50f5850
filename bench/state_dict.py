"""What a model as its owner holds it costs beside a flat vector: a state dict encrypted by its layout, and by hand.

python bench/state_dict.py

All go by turns, on one thread, each to the bytes of a frame: the state dict, a flat vector that is there already, in
torch's memory as the state dict is and in NumPy's, which asks for huge pages, and one that is made of the state dict
first, without looking at names, shapes or shared memory. Medians of processor time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import nn

import shieldfl as sf
from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import ResultConsole, result_table
from shieldfl.lab.bench.comparison import describe_machine
from shieldfl.models import ModelLayout
from shieldfl.quantities import seconds_text

SCHEMES = ("kahe", "pads", "ckks")


def model_of(width: int) -> nn.Module:
    """Return an encoder of 96 tensors, matrices and short vectors, with about 12 width² values in each of 8 layers."""
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(width, 8, 4 * width), 8, enable_nested_tensor=False
    )


def encryptor_of(scheme: str) -> Any:
    """Return a client's encryptor."""
    module = getattr(sf, scheme)
    authority = sf.KeyAuthority(module.Parameters(max_clients=8), min_clients=3)
    key = authority.enrol(1) if scheme != "ckks" else authority.public_key
    return module.Encryptor(key, threads=1)


def by_turns(works: Sequence[Callable[[], object]], repetitions: int) -> list[list[float]]:
    """Return the processor's seconds of each, taken by turns."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions):
        for taken, work in zip(seconds, works, strict=True):
            begin = time.process_time()
            work()
            taken.append(time.process_time() - begin)
    return seconds


def rows(width: int, repetitions: int) -> Iterator[list[str]]:
    """Yield a row of the table for each scheme."""
    state = model_of(width).state_dict()
    layout = ModelLayout.of(state)
    joined, flat = torch.cat([tensor.reshape(-1) for tensor in state.values()]), concatenated(state)
    for scheme in SCHEMES:
        encryptor, of_round = encryptor_of(scheme), {} if scheme == "ckks" else {"round": 1}
        works = [
            partial(lambda one, where: layout.encrypt(one, state, **where).to_bytes(), encryptor, of_round),
            partial(lambda one, where: one.encrypt(joined, **where).to_bytes(), encryptor, of_round),
            partial(lambda one, where: one.encrypt(flat, **where).to_bytes(), encryptor, of_round),
            partial(
                lambda one, where: one.encrypt(concatenated(state), **where).to_bytes(), encryptor, of_round
            ),
        ]
        for work in works:
            work()  # memory that is touched for the first time
        seconds = by_turns(works, repetitions)
        medians = [seconds_text(statistics.median(taken)) for taken in seconds]
        ratios = [
            statistics.median(one / other for one, other in zip(seconds[0], others, strict=True))
            for others in seconds[1:]
        ]
        yield [scheme, f"{layout.size:,}", *medians, *(f"{ratio:.3f}" for ratio in ratios)]


def concatenated(state: Mapping[str, torch.Tensor]) -> NDArray[np.float32]:
    """Return all values as one vector."""
    return np.concatenate([tensor.numpy().reshape(-1) for tensor in state.values()])


def table(width: int, repetitions: int) -> Table:
    """Return what was measured; the ratios are the state dict's time over each of the others'."""
    heads = (
        "scheme",
        "values",
        "state dict",
        "torch's",
        "NumPy's",
        "made",
        "over torch's",
        "over NumPy's",
        "over made",
    )
    return result_table(heads, rows(width, repetitions))


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=384, help="of the model")
    parser.add_argument("--repetitions", type=int, default=15)
    given = parser.parse_args()
    console = ResultConsole()
    print_machine(describe_machine(), console)
    console.print(table(given.width, given.repetitions))


if __name__ == "__main__":
    main()
