"""What the best known attacks on a ring cost at least: the one place that figures of security come from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ATTACK_COSTS", "AttackCosts"]


@dataclass(frozen=True)
class AttackCosts:
    """Bits of work of the cheaper of two attacks, primal and dual, by three ways to count, rounded down."""

    modulus_bits: int
    """Of the longest modulus that parameters of the ring have. With a shorter one attacks cost more, so that these are
    lower bounds for all of them."""
    standard: int
    """By the cost model behind the homomorphic encryption standard's tables."""
    core_svp: int
    """By classical core-SVP: one call of a sieve, 0.292 bits for each dimension."""
    core_svp_quantum: int
    """By core-SVP on a quantum computer, 0.257 bits: the lower of the figures in use."""

    def describe(self) -> str:
        """Say them in a line, the most cautious last."""
        return (
            f"2^{self.standard} by the standard's cost model, 2^{self.core_svp} by core-SVP, 2^{self.core_svp_quantum} "
            "by that on a quantum computer"
        )


ATTACK_COSTS = {
    2048: AttackCosts(50, standard=146, core_svp=115, core_svp_quantum=101),
    4096: AttackCosts(100, standard=143, core_svp=111, core_svp_quantum=97),
    8192: AttackCosts(200, standard=142, core_svp=108, core_svp_quantum=95),
}
"""By ring degree. ``bench/lattice_estimates.py`` computes them; docs/kahe.md says what they leave out."""
