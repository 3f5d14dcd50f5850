"""By this path packages outside of this one know :class:`FederationAttack`."""

from shieldfl.audit.attack import FederationAttack

__all__ = ["FederationAttack"]
