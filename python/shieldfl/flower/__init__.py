"""Flower (flwr 1.41 or 1.42) as the engine: ``ShieldStrategy`` in a ServerApp, ``shield_mod`` in a ClientApp.

Flower's records enter and leave; a ClientApp is a process for each message, and imports nothing that a server
alone needs. Read ``strategy.py`` first, then ``mod.py`` for a node.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shieldfl.flower.mod import ShieldMod, shield_mod
    from shieldfl.flower.strategy import ShieldStrategy

__all__ = ["ShieldMod", "ShieldStrategy", "shield_mod"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "strategy" if name == "ShieldStrategy" else "mod"
    return getattr(import_module(f"{__name__}.{place}"), name)
