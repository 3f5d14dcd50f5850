"""The encryption budgets of a fleet's clients."""

from __future__ import annotations

from shieldfl.encryption_budgets import sense_crypt_budgets
from shieldfl.fleet.fleet import Fleet, FloatVector

__all__ = ["fleet_budgets"]


def fleet_budgets(fleet: Fleet) -> FloatVector:
    """Return alpha of each client of a fleet, with its way up as bandwidth and cores times rate as speed.

    Ciphertexts go up and plain numbers come down (SenseCrypt with a key authority, its Algorithm 3), so the way up is
    the bandwidth that encryption loads.
    """
    return sense_crypt_budgets(fleet.upload_bytes_per_second, fleet.cores * fleet.core_rate, fleet.clusters)
