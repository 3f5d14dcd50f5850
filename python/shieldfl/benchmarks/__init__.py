"""Ours and other libraries on the same values, in one process and one run.

``comparison`` has the cases of CKKS and of Paillier, ``measurement`` times one, ``own_schemes`` and the files named
``_baseline`` are what is timed. Needs NumPy and msgspec; TenSEAL, phe and HEU are measured where they are installed.
"""

from shieldfl.benchmarks.comparison import CkksCase, Comparison, PaillierCase, compare, grid
from shieldfl.benchmarks.measurement import Effort

__all__ = ["CkksCase", "Comparison", "Effort", "PaillierCase", "compare", "grid"]
