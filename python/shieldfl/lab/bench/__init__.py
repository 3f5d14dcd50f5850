"""Ours and other libraries on the same values, in one process and one run.

``comparison`` has the cases of whole updates and of Paillier, ``measurement`` times one; ``own`` and ``others`` are
what is timed, ``lines`` has what is measured once for all cases.
Needs NumPy and msgspec; TenSEAL, Flower, phe and HEU are measured where they are installed.
"""

from shieldfl.lab.bench.comparison import Comparison, PaillierCase, UpdateCase, compare, grid
from shieldfl.lab.bench.measurement import Effort

__all__ = ["Comparison", "Effort", "PaillierCase", "UpdateCase", "compare", "grid"]
