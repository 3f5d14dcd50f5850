"""The path by which packages outside of this one may know :class:`FederationAttack`."""

from shieldfl.audit.attack import FederationAttack

__all__ = ["FederationAttack"]
