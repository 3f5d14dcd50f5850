"""Ours and other libraries on the same values, in one process and one run.

``comparison`` runs CKKS's grid, ``measurement`` times one case, ``own_schemes``, ``seal_peer`` and ``tenseal_peer``
are what is timed; for Paillier these are ``paillier_comparison``, ``own_paillier``, ``phe_peer`` and ``heu_peer``.
Needs NumPy alone; TenSEAL, phe and HEU are compared with where they are installed.
"""

from shieldfl.benchmarks.comparison import Case, Comparison, Effort, compare, grid

__all__ = ["Case", "Comparison", "Effort", "compare", "grid"]
