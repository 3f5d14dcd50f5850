"""Methods by name, set up for a federation."""

from __future__ import annotations

from shieldfl.methods.discovery import method_class
from shieldfl.methods.settings import MethodSettings
from shieldfl.rounds.method import Method
from shieldfl.rounds.named_method import naming_own_method
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.public_setup import PublicSetup

__all__ = ["make_method", "method_of"]


def make_method(name: str, settings: MethodSettings, plan: FederationPlan) -> Method:
    """Return what a method does under a plan. Raises ParameterError as ``method_class`` does, and what it refuses."""
    kind = method_class(name)
    with naming_own_method(name, kind, refuses=True):
        return kind(name, settings.of(name), plan)


def method_of(setup: PublicSetup) -> Method:
    """Return the method of a public set-up. Raises ParameterError for one that is not known here, or its settings."""
    settings = MethodSettings()
    if setup.settings:
        settings = settings.changed(setup.method, setup.settings)
    return make_method(setup.method, settings, setup.plan)
