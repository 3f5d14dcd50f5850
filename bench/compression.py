"""Compressed updates: bytes a value, error of the mean beside other quantisers, nanoseconds, accuracy.

python bench/compression.py                                     # bytes, errors and nanoseconds, about two minutes
python bench/compression.py --accuracy mnist,fashion-mnist      # instead: test accuracy of full-he, three paired seeds

Errors are the mean's squared error over the squared norm of the float32 mean, of 64 clients with normal updates, after
three rounds. DRIVE and EDEN are yardsticks: their scales are each client's own, and no sum of integers has those.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import cache, partial
from statistics import mean, median, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shieldfl as sf
from shieldfl import _core
from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import ResultConsole, result_table
from shieldfl.lab.bench.comparison import describe_machine
from shieldfl.methods.compression import CompressedBits

Vectors = list[NDArray[np.float32]]
BITS: tuple[CompressedBits, ...] = (8, 4, 2, 1)
FORMS: tuple[tuple[CompressedBits, int], ...] = (*((bits, 1) for bits in BITS), (4, 10))
"""Bits, and one in how many values a round sends."""
CLIENTS = 64


def title(bits: CompressedBits, one_in: int) -> str:
    """Return how a form is called in a table."""
    return f"{bits}" if one_in == 1 else f"{bits}, one in {one_in}"


def parameters_of(compression: sf.Compression, clients: int, values: int) -> sf.kahe.Parameters:
    """Return the parameters of a sum of so many clients' levels."""
    return sf.kahe.Parameters.plan(
        max_clients=clients,
        value_bits=compression.value_bits,
        fraction_bits=0,
        sum_bits=compression.sum_bits(clients),
        count=compression.count(values),
        goal="size",
    )


def bytes_rows(values: int) -> Iterator[list[str]]:
    """Yield bytes a value by number of clients, and of a value without compression."""
    for clients in (4, 16, 64, 100, 1000):
        plain = sf.kahe.Parameters.plan(max_clients=clients, count=values, goal="size").bytes_per_value
        found = []
        for bits, one_in in FORMS:
            compression = sf.Compression(bits, clients, one_in=one_in)
            of_level = parameters_of(compression, clients, values).bytes_per_value
            found.append(of_level * compression.count(values) / values)
        yield [f"{clients:,}", f"{plain:.2f}", *(f"{one:.3f}" for one in found)]


@cache
def centroids(bits: int) -> NDArray[np.float64]:
    """Return the levels that have the least squared error for normal values (Lloyd 1982), by iteration."""
    grid = np.linspace(-8.0, 8.0, 200_001)
    weight = np.exp(-(grid**2) / 2.0)
    levels = np.linspace(-2.0, 2.0, 2**bits)
    for _ in range(2000 if bits < 8 else 400):
        place = np.searchsorted((levels[1:] + levels[:-1]) / 2.0, grid)
        sums = np.bincount(place, weight * grid, levels.size)
        levels = sums / np.maximum(np.bincount(place, weight, levels.size), 1e-300)
    return levels


def own_scale(update: NDArray[np.float32], bits: int, seed: bytes) -> NDArray[np.float64]:
    """Return what DRIVE (one bit) and EDEN make of an update: least-error levels, and the scale without bias."""
    rotated = _core.rotate(update, seed, False, 1.0, 1).astype(np.float64)
    normal = rotated * np.sqrt(rotated.size) / np.linalg.norm(rotated)
    levels = centroids(bits)
    chosen = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2.0, normal)]
    return _core.rotate(chosen * float(rotated @ rotated) / float(rotated @ chosen), seed, True, 1.0, 1)


def updates_of(correlation: float, spread: float, size: int = 100_003) -> Vectors:
    """Return normal updates of pairwise correlation, with log-normal norms of this deviation."""
    draws = np.random.default_rng(0)
    common = np.sqrt(correlation) * draws.normal(size=size)
    norms = np.exp(spread * draws.normal(size=CLIENTS))
    return [
        (norm * (common + np.sqrt(1.0 - correlation) * draws.normal(size=size))).astype(np.float32)
        for norm in norms
    ]


def summed(bits: CompressedBits, updates: Vectors, rounds: int = 3) -> NDArray[np.float64]:
    """Return the mean of the last of several rounds with the same updates."""
    compression, exponent = sf.Compression(bits, CLIENTS, float(np.linalg.norm(updates[0]))), 0
    for number in range(1, rounds + 1):
        of_round = (number, exponent)
        levels = [compression.levels(one, client, *of_round) for client, one in enumerate(updates)]
        found, exponent = compression.mean(np.sum(levels, 0, np.float64), range(CLIENTS), *of_round)
    return found


def error_rows() -> Iterator[list[str]]:
    """Yield errors by correlation of the updates and spread of their norms."""
    for correlation in (0.0, 0.1, 0.5, 0.9, 0.99):
        for spread in (0.0, 0.5):
            updates = updates_of(correlation, spread)
            true = np.mean(updates, axis=0, dtype=np.float64)
            for bits in BITS:
                others = [own_scale(one, bits, bytes([client]) * 32) for client, one in enumerate(updates)]
                found = [
                    ((one - true) ** 2).sum() / (true**2).sum()
                    for one in (summed(bits, updates), np.mean(others, 0))
                ]
                yield [
                    f"{correlation}",
                    "equal" if not spread else "unequal",
                    str(bits),
                    *(f"{one:.5f}" for one in found),
                ]


def beside_rows(values: int = 100_003) -> Iterator[list[str]]:
    """Yield bytes a value and errors of what else makes updates smaller or hides them, for values of about 0.01.

    NVFlare's filters quantise by bitsandbytes, with its defaults. Their messages are not encrypted: the server reads
    each. Flower's SecAgg+ has its default ranges, and sends integers of 64 bits.
    """
    from flwr.common.secure_aggregation import quantization

    ranges = 8.0, 1 << 22

    def secagg_plus(update: NDArray[np.float32]) -> tuple[NDArray[Any], int]:
        integers = quantization.quantize([update], *ranges)
        return quantization.dequantize(integers, *ranges)[0], integers[0].astype(np.int64).nbytes

    forms: dict[str, Any] = {"Flower SecAgg+": secagg_plus}
    try:
        import torch
        from bitsandbytes import functional
    except ImportError:
        print("NVFlare's filters were not measured: pip install bitsandbytes")
    else:

        def filtered(quantised: Any, state: Any, restore: Any) -> tuple[NDArray[Any], int]:
            return restore(quantised, state).numpy(), sum(
                one.nbytes for one in (quantised, state.absmax, state.code)
            )

        def four_bits(kind: str, update: NDArray[np.float32]) -> tuple[NDArray[Any], int]:
            quantised = functional.quantize_4bit(torch.from_numpy(update), quant_type=kind)
            return filtered(*quantised, functional.dequantize_4bit)

        forms["NVFlare float4"] = partial(four_bits, "fp4")
        forms["NVFlare normfloat4"] = partial(four_bits, "nf4")
        forms["NVFlare blockwise8"] = lambda update: filtered(
            *functional.quantize_blockwise(torch.from_numpy(update)), functional.dequantize_blockwise
        )
    for name, form in forms.items():
        errors = []
        for correlation in (0.0, 0.1, 0.5):
            updates = [np.float32(0.01) * one for one in updates_of(correlation, 0.0, values)]
            true = np.mean(updates, axis=0, dtype=np.float64)
            restored, sizes = zip(*map(form, updates), strict=True)
            errors.append(((np.mean(restored, 0) - true) ** 2).sum() / (true**2).sum())
        yield [name, f"{sizes[0] / values:.2f}", *(f"{one:.2g}" for one in errors)]


def link_rows(rounds: int = 10) -> Iterator[list[str]]:
    """Yield a round's seconds on links, as of one client: what it trains, encrypts and opens, and its bytes both ways.

    Every figure is a mean over the rounds and clients of a run on MNIST.
    """
    first: list[float] = []
    for name, settings in (
        ("fedavg", {}),
        ("full-he", {}),
        *(
            ("full-he", {"compressed_bits": bits, "compressed_one_in": one_in})
            for bits, one_in in ((4, 1), (2, 1), (4, 10))
        ),
    ):
        of_run: dict[str, Any] = {"clients": 20, "rounds": rounds, "local_epochs": 1, "model": "mlp"}
        runs = sf.run("mnist", name, settings={name: settings}, **of_run)
        found = {
            key: mean(one[key] for one in runs.records()) for key in ("bytes_up", "bytes_down", "seconds")
        }
        own = found["seconds"] / of_run["clients"]
        both = found["bytes_up"] + found["bytes_down"]
        times = [own + 8.0 * both / rate for rate in (10e6, 100e6)]
        first = first or times
        yield [
            name
            if not settings
            else f"{name}, {title(settings['compressed_bits'], settings['compressed_one_in'])}",
            f"{found['bytes_up'] / 1e6:.3f}",
            f"{found['bytes_down'] / 1e6:.3f}",
            f"{own:.3f}",
            *(f"{one:.3f} ({one / plain:.2f})" for one, plain in zip(times, first, strict=True)),
        ]


def time_rows(values: int, repetitions: int = 5) -> Iterator[list[str]]:
    """Yield nanoseconds a value on one thread, medians by turns: levels, encryption of them, and of plain values."""
    update = np.random.default_rng(0).normal(0.0, 1.0, values).astype(np.float32)
    authority = sf.KeyAuthority(sf.kahe.Parameters.plan(max_clients=CLIENTS, count=values), min_clients=2)
    plain = sf.kahe.Encryptor(authority.enrol("plain"), 1)
    number = iter(range(1, 10_000))
    for bits, one_in in FORMS:
        compression = sf.Compression(bits, CLIENTS, float(np.linalg.norm(update)), one_in=one_in)
        own = sf.KeyAuthority(parameters_of(compression, CLIENTS, values), min_clients=2)
        encryptor = sf.kahe.Encryptor(own.enrol("own"), 1)
        times: tuple[list[float], ...] = ([], [], [])
        for _ in range(repetitions):
            this = next(number)
            start = time.perf_counter()
            levels = compression.levels(update, 0, this, 0, 1)
            middle = time.perf_counter()
            encryptor.encrypt(levels, round=this).to_bytes()
            end = time.perf_counter()
            plain.encrypt(update, round=this).to_bytes()
            for kept, seconds in zip(
                times, (middle - start, end - middle, time.perf_counter() - end), strict=True
            ):
                kept.append(1e9 * seconds / values)
        first, second, third = map(median, times)
        yield [title(bits, one_in), f"{first:.2f}", f"{second:.2f}", f"{first + second:.2f}", f"{third:.2f}"]


def accuracy_rows(datasets: list[str], rounds: int, seeds: int) -> Iterator[list[str]]:
    """Yield the last round's accuracy in per cent, and what is lost by compression: mean and deviation of pairs."""
    for dataset in datasets:
        plain: list[float] = []
        for form in (None, *FORMS):
            settings = {}
            if form is not None:
                settings = {"full-he": {"compressed_bits": form[0], "compressed_one_in": form[1]}}
            of_run: dict[str, Any] = {"clients": 20, "rounds": rounds, "local_epochs": 1, "threads": 2}
            of_run["model"] = "simple-cnn" if dataset.startswith("cifar") else "mlp"
            runs = sf.run(dataset, "full-he", seeds=range(seeds), settings=settings, **of_run)
            last = [one for one in runs.records() if one["round"] == rounds]
            found = [100.0 * one["accuracy"] for one in last]
            plain = plain or found
            lost = [before - after for before, after in zip(plain, found, strict=True)]
            spread = stdev(lost) if len(lost) > 1 else 0.0
            yield [
                dataset,
                "none" if form is None else title(*form),
                f"{mean(found):.2f}",
                f"{mean(lost):+.2f} ± {spread:.2f}",
                f"{last[0]['bytes_up'] / 1e6:.3f}",
            ]


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=10**7)
    parser.add_argument("--accuracy", default="", help="data sets, with commas in between")
    parser.add_argument(
        "--beside", action="store_true", help="instead: Flower's SecAgg+ and NVFlare's filters"
    )
    parser.add_argument(
        "--links", action="store_true", help="instead: rounds over links of 10 and 100 Mbit/s"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    console = ResultConsole()
    print_machine(describe_machine(), console)
    if given.accuracy:
        rows = accuracy_rows(given.accuracy.split(","), given.rounds, given.seeds)
        heads = ("data", "bits", "accuracy, %", "lost, points", "MB up a client")
        console.print(result_table(heads, rows, words={"data", "bits"}))
        return
    if given.beside or given.links:
        heads = ("what", "bytes a value", *(f"error, correlation {one}" for one in (0.0, 0.1, 0.5)))
        if given.links:
            heads = ("what", "MB up", "MB down", "compute, s", "10 Mbit/s, s", "100 Mbit/s, s")
        console.print(result_table(heads, link_rows() if given.links else beside_rows(), words={"what"}))
        return
    of_bytes = ("clients", "as they are", *(title(*form) for form in FORMS))
    console.print(f"bytes a value, {given.values:,} values", result_table(of_bytes, bytes_rows(given.values)))
    of_errors = ("correlation", "norms", "bits", "summed", "DRIVE, EDEN")
    console.print("error of the mean", result_table(of_errors, error_rows(), words={"norms"}))
    of_times = ("bits", "levels", "encrypt", "both", "encrypt as they are")
    console.print("nanoseconds a value", result_table(of_times, time_rows(given.values)))


if __name__ == "__main__":
    main()
