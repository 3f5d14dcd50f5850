"""Ours and other libraries on the same values, in one process and one run.

``comparison`` has the cases of whole updates and of Paillier, ``measurement`` times one; the files named ``own_`` or
``_baseline`` and ``plain_copy`` are what is timed. ``answering`` and ``negotiation`` time the rest.
Needs NumPy and msgspec; TenSEAL, Flower, phe and HEU are measured where they are installed.
"""

from shieldfl.benchmarks.comparison import Comparison, PaillierCase, UpdateCase, compare, grid
from shieldfl.benchmarks.measurement import Effort

__all__ = ["Comparison", "Effort", "PaillierCase", "UpdateCase", "compare", "grid"]
