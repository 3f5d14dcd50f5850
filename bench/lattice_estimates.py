"""What it costs to break ring learning with errors at the parameters of ``kahe``, by the estimates in common use.

    python bench/lattice_estimates.py
    python bench/lattice_estimates.py --ring 4096:100 --coins 84 --blocks 32 --json estimates.json
    python bench/lattice_estimates.py --ring 1024:13.585 --sigma-s 2.83 --sigma-e 2.83   # NewHope

Two attacks, each with the number of samples that suits it best: *primal* (the secret and the error as an unusually
short vector) and *dual* (a short vector of the dual lattice tells samples from noise). Both need lattice reduction
(BKZ) with some block size β. For each attack the table gives

- core-SVP, the cautious figure: what one call of a sieve in dimension β costs, times the repetitions that the dual
  attack needs. That is 0.292 β bits; on a quantum computer 0.265 β (Alkim, Ducas, Pöppelmann and Schwabe, 2016) or,
  with newer quantum sieves, 0.257 β (Chailloux and Loyer, 2021).
- the model behind the homomorphic encryption standard's tables (Albrecht and others, 2018): 16.4 bits more for a call,
  and 8 d calls in dimension d.

Beside them stands what the standard's tables allow at 128 bits. Not counted: hybrid attacks (which guess a part of the
secret), what the ring's structure may give, and what is not known yet.
docs/explanation/kahe-margins.md derives the deviations.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from shieldfl.cli.console import JsonFile, ResultConsole, is_stdout, result_table, write_json
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.errors import ParameterError

SMALLEST_BLOCK_SIZE = 50
"""The formula for what reduction achieves is meant for block sizes from here on."""
LARGEST_BLOCK_SIZE = 5000
CLASSICAL_SIEVE, QUANTUM_SIEVE, NEWER_QUANTUM_SIEVE = 0.292, 0.265, 0.257
"""Bits of work for each dimension of a sieve."""
SIEVE_VECTORS = 0.2075
"""Bits of short vectors, for each dimension, that one sieve leaves behind: the dual attack uses all of them."""
STANDARD_CALL_BITS = 16.4
STANDARD_TOURS = 8

STANDARD_LIMITS = {
    ("ternary", "classical"): {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881},
    ("error", "classical"): {1024: 29, 2048: 56, 4096: 111, 8192: 220, 16384: 440, 32768: 883},
    ("ternary", "quantum"): {1024: 25, 2048: 51, 4096: 101, 8192: 202, 16384: 411, 32768: 827},
    ("error", "quantum"): {1024: 27, 2048: 53, 4096: 103, 8192: 206, 16384: 413, 32768: 829},
}
"""Most bits of q at 128 bits of security, by the distribution of the secret: the homomorphic encryption standard's
tables 1 and 2, whose ternary rows Microsoft SEAL enforces. Errors have a deviation of 8 / sqrt(2 pi) = 3.19 there."""

DEFAULT_RINGS = ("2048:41", "2048:50", "4096:91", "4096:94", "4096:100", "8192:191", "8192:200")


@dataclass(frozen=True)
class Instance:
    """Learning with errors: ``samples`` equations modulo q for a secret of ``dimension`` numbers."""

    dimension: int
    log2_modulus: float
    sigma_s: float
    """Standard deviation of the secret's coefficients; where they differ, the geometric mean."""
    sigma_e: float
    """The same, of the errors."""
    samples: int
    """How many equations there are to choose from."""


@dataclass(frozen=True)
class Attack:
    """The cheapest way found to carry an attack out. Costs are in bits."""

    name: str
    block_size: int
    samples: int
    dimension: int
    log2_repetitions: float

    def core_svp(self, sieve: float) -> float:
        """Return the cost of one call of the sieve, for each repetition."""
        return sieve * self.block_size + self.log2_repetitions

    def standard(self, sieve: float) -> float:
        """Return the cost by the model behind the homomorphic encryption standard's tables."""
        return self.core_svp(sieve) + STANDARD_CALL_BITS + math.log2(STANDARD_TOURS * self.dimension)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self) | {
            "core_svp_classical": self.core_svp(CLASSICAL_SIEVE),
            "core_svp_quantum": self.core_svp(QUANTUM_SIEVE),
            "core_svp_newer_quantum": self.core_svp(NEWER_QUANTUM_SIEVE),
            "standard_classical": self.standard(CLASSICAL_SIEVE),
            "standard_quantum": self.standard(QUANTUM_SIEVE),
        }


def log2_root_hermite_factor(block_size: int) -> float:
    """Return log2 of δ: reduction with this block size finds vectors of length δ^d · volume^(1/d) in dimension d."""
    ball = (math.pi * block_size) ** (1 / block_size) * block_size / (2 * math.pi * math.e)
    return math.log2(ball) / (2 * (block_size - 1))


def primal(instance: Instance) -> Attack:
    """Return the least block size with which the short vector (e, s, 1) shows itself.

    It does where its projection to the last β dimensions, sqrt(β) · σ_e long once the secret's coordinates are scaled
    by σ_e / σ_s, is no longer than what the geometric series assumption predicts there (the "2016 estimate").

    Raises ParameterError where no block size up to 5,000 will do.
    """
    low, high = SMALLEST_BLOCK_SIZE - 1, LARGEST_BLOCK_SIZE + 1
    found: Attack | None = None
    while high - low > 1:
        middle = (low + high) // 2
        attack = _primal_with(instance, middle)
        if attack is None:
            low = middle
        else:
            found, high = attack, middle
    if found is None:
        raise ParameterError(
            f"no block size up to {LARGEST_BLOCK_SIZE} is enough: give a smaller ring or more bits"
        )
    return found


def _primal_with(instance: Instance, block_size: int) -> Attack | None:
    n, log2_delta = instance.dimension, log2_root_hermite_factor(block_size)
    scaling = n * math.log2(instance.sigma_e / instance.sigma_s)
    # log2 of the volume is (d - n - 1) log2 q + scaling, so that the predicted length is a constant less
    # d log2 δ + spread / d.
    spread = (n + 1) * instance.log2_modulus - scaling
    needed = math.log2(instance.sigma_e) + math.log2(block_size) / 2
    for d in _near(math.sqrt(spread / log2_delta), n + 2, n + 1 + instance.samples, block_size):
        predicted = (2 * block_size - d - 1) * log2_delta + instance.log2_modulus - spread / d
        if needed <= predicted:
            return Attack("primal", block_size, d - n - 1, d, 0.0)
    return None


def dual(instance: Instance) -> Attack:
    """Return the dual attack that costs least.

    A vector of length ℓ in the dual lattice, its coordinates at the secret scaled by σ_s / σ_e, turns samples into
    numbers that are off uniform ones by ε = exp(-2 π² (ℓ σ_e / q)²); 1 / ε² vectors are needed, of which one sieve
    gives 2^(0.2075 β). The choice is made by the classical cost.

    Raises ParameterError where no block size up to 5,000 will do.
    """
    best: Attack | None = None
    for block_size in range(SMALLEST_BLOCK_SIZE, LARGEST_BLOCK_SIZE + 1):
        if best is not None and CLASSICAL_SIEVE * block_size > best.core_svp(CLASSICAL_SIEVE):
            return best
        attack = _dual_with(instance, block_size)
        if best is None or attack.core_svp(CLASSICAL_SIEVE) < best.core_svp(CLASSICAL_SIEVE):
            best = attack
    raise ParameterError(
        f"no block size up to {LARGEST_BLOCK_SIZE} is enough: give a smaller ring or more bits"
    )


def _dual_with(instance: Instance, block_size: int) -> Attack:
    n, log2_delta = instance.dimension, log2_root_hermite_factor(block_size)
    log2_volume = n * (instance.log2_modulus + math.log2(instance.sigma_s / instance.sigma_e))

    def log2_length(d: int) -> float:
        return (d - 1) * log2_delta + log2_volume / d

    near = _near(math.sqrt(log2_volume / log2_delta), n + 1, n + instance.samples, block_size)
    d = min(near, key=log2_length)
    log2_width = log2_length(d) + math.log2(instance.sigma_e) - instance.log2_modulus
    # A longer vector than this says nothing, and its square would overflow.
    log2_bias = -2 * math.pi**2 * 4 ** min(log2_width, 20.0) / math.log(2)
    repetitions = max(0.0, -2 * log2_bias - SIEVE_VECTORS * block_size)
    return Attack("dual", block_size, d - n, d, repetitions)


def _near(best: float, least: int, most: int, block_size: int) -> tuple[int, ...]:
    """Return the whole dimensions beside the best one, within what there is; none below the block size."""
    least = max(least, block_size)
    return tuple(min(max(whole, least), max(least, most)) for whole in (math.floor(best), math.ceil(best)))


def public_width(coins: int, narrowest: float = 1.0) -> float:
    """Return the typical deviation of coefficients whose width is public: a fair coin counts with probability 1/2.

    The width is h, binomial, and the deviation sqrt(h) / 2. What counts in a lattice's volume is the geometric mean;
    that of the ``narrowest`` share of coefficients alone is returned. A width of 0 (2^-coins) hides nothing and is
    left out.
    """
    left, logarithms = narrowest, 0.0
    for width in range(1, coins + 1):
        share = min(left, math.comb(coins, width) / 2**coins)
        logarithms += share * math.log(math.sqrt(width) / 2)
        left -= share
    return math.exp(logarithms / (narrowest - left))


def _ring_of(text: str) -> tuple[int, float]:
    try:
        degree, bits = text.split(":")
        ring = int(degree), float(bits)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not DEGREE:BITS, such as 4096:100") from None
    if not (64 <= ring[0] <= 2**20 and 4 <= ring[1] <= 10_000):
        raise typer.BadParameter(f"{text!r}: from 64 to 2^20 coefficients and 4 to 10,000 bits")
    return ring


Rings = Annotated[
    list[str] | None, typer.Option("--ring", metavar="DEGREE:BITS", help="N and log2 q; may come repeatedly.")
]
Coins = Annotated[int, typer.Option(min=4, max=1024, help="Coins of a coefficient of a secret or an error.")]
Blocks = Annotated[int, typer.Option(min=1, max=2**20, help="Blocks that share one secret: N samples each.")]
Deviation = Annotated[float | None, typer.Option(min=0.1, max=2**20, help="In place of what the coins give.")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0])
def main(
    rings: Rings = None,
    coins: Coins = 84,
    blocks: Blocks = 32,
    sigma_s: Deviation = None,
    sigma_e: Deviation = None,
    json_file: JsonFile = None,
) -> None:
    """Estimate, print, and write what is asked for."""
    pairs = [_ring_of(ring) for ring in rings or DEFAULT_RINGS]
    of_secret = public_width(coins) if sigma_s is None else sigma_s
    of_error = public_width(coins, 1 / blocks) if sigma_e is None else sigma_e
    with failures_on_stderr():
        instances = [Instance(degree, bits, of_secret, of_error, blocks * degree) for degree, bits in pairs]
        found = [(instance, [primal(instance), dual(instance)]) for instance in instances]
        if not is_stdout(json_file):
            _print(found, coins, blocks)
        facts = {
            "coins": coins,
            "blocks": blocks,
            "sigma_s": of_secret,
            "sigma_e": of_error,
            "rings": [
                {
                    "ring_degree": instance.dimension,
                    "log2_modulus": instance.log2_modulus,
                    "attacks": [attack.to_json() for attack in attacks],
                    "standard_limits": _limits(instance.dimension),
                }
                for instance, attacks in found
            ],
        }
        write_json(facts, json_file)


def _limits(degree: int) -> dict[str, int | None]:
    return {
        f"{secret}_{computer}": limits.get(degree) for (secret, computer), limits in STANDARD_LIMITS.items()
    }


def _print(found: list[tuple[Instance, list[Attack]]], coins: int, blocks: int) -> None:
    console = ResultConsole()
    some = found[0][0]
    console.print(
        f"deviations: secret {some.sigma_s:.2f}, error {some.sigma_e:.2f} "
        f"({coins} coins, {blocks} blocks that share a secret)"
    )
    heads = ("N", "log2 q", "attack", "β", "samples", "dimension")
    costs = ("core-SVP", "quantum", "newer", "standard's model", "quantum")
    table = result_table((*heads, *costs), words=("attack",))
    for instance, attacks in found:
        for attack in attacks:
            counts = (attack.block_size, attack.samples, attack.dimension)
            bits = (
                *(attack.core_svp(sieve) for sieve in (CLASSICAL_SIEVE, QUANTUM_SIEVE, NEWER_QUANTUM_SIEVE)),
                *(attack.standard(sieve) for sieve in (CLASSICAL_SIEVE, QUANTUM_SIEVE)),
            )
            table.add_row(
                str(instance.dimension),
                f"{instance.log2_modulus:g}",
                attack.name,
                *(str(count) for count in counts),
                *(f"{cost:.1f}" for cost in bits),
            )
    console.print(table)
    console.print(
        "bits of q that the standard's tables allow for 128 bits of security (errors of deviation 3.19):"
    )
    table = result_table(("N", "log2 q", *(f"{secret}, {computer}" for secret, computer in STANDARD_LIMITS)))
    for instance, _ in found:
        limits = (limits.get(instance.dimension) for limits in STANDARD_LIMITS.values())
        table.add_row(
            str(instance.dimension),
            f"{instance.log2_modulus:g}",
            *("-" if limit is None else str(limit) for limit in limits),
        )
    console.print(table)


if __name__ == "__main__":
    app()
