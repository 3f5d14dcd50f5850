"""Side-by-side benchmarks: this library and others on the same values, in one process and one run.

``comparison`` runs the grid, ``measurement`` times one case, ``own_schemes``, ``seal_peer`` and ``tenseal_peer``
are what is timed. Needs NumPy alone; TenSEAL is compared with where it is installed.
"""

from shieldfl.benchmarks.comparison import Case, Comparison, Effort, compare, grid

__all__ = ["Case", "Comparison", "Effort", "compare", "grid"]
