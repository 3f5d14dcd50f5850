"""The settings of all methods, so that a run of several has one argument for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.discovery import method_class, named_method
from shieldfl.rounds.named_method import naming_own_method
from shieldfl.settings import Setting, settings_of

__all__ = ["MethodSettings", "has_choice_of_scheme"]


def has_choice_of_scheme(entry: Any) -> bool:
    """Say whether a method with these settings by default takes another scheme, too.

    Not where it has no such setting, and not where its name has another scheme than its kind of settings: then that is
    what the name says.
    """
    known = {} if entry is None else settings_of(type(entry))
    return "encryption" in known and entry.encryption == known["encryption"].default


class MethodSettings:
    """An entry for each method that has settings of its own; what is not given is the method's default.

    Parameters
    ----------
    entries : by method, hyphens of its name as underscores: ``MethodSettings(sense_crypt=SenseCryptSettings(...))``.
        Raises ParameterError for an unknown method, and for settings of another one.
    """

    def __init__(self, **entries: Any) -> None:
        self._entries: dict[str, Any] = {}
        for key, entry in entries.items():
            name = key.replace("_", "-")
            default = named_method(name).settings
            if default is None or type(entry) is not type(default):
                raise ParameterError(
                    f"{type(entry).__name__} is not what the settings of {name} are given by"
                )
            if entry != default:
                self._entries[name] = entry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MethodSettings) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def of(self, method: str) -> Any:
        """Return a method's entry; None for one without settings. Raises ParameterError for an unknown one."""
        return self._entries[method] if method in self._entries else named_method(method).settings

    def replaced(self, method: str, entry: Any) -> MethodSettings:
        """Return settings in which one method has this entry."""
        return MethodSettings(
            **{key.replace("-", "_"): one for key, one in {**self._entries, method: entry}.items()}
        )

    def encrypted_by(self, encryption: str, methods: Iterable[str]) -> MethodSettings:
        """Return settings under which all of these methods that have a choice of scheme encrypt by this one.

        Those without keys keep theirs, and so do those whose name stands for a scheme: ``batch-crypt``, ``plain-he``.
        Raises ParameterError for a scheme that one of the others does not take.
        """
        settings = self
        for name in methods:
            entry = named_method(name).settings
            if has_choice_of_scheme(entry):
                settings = settings.changed(name, {"encryption": encryption})
        return settings

    def with_sum_noise(self, multiplier: float, methods: Iterable[str]) -> MethodSettings:
        """Return settings under which the sums of all of these methods have noise with this multiplier.

        Raises ParameterError for a method whose sums cannot have any, with the reason, and what the setting refuses.
        """
        settings = self
        for name in methods:
            entry = settings.of(name)
            if (why := method_class(name).why_no_sum_noise(name)) is not None:
                raise ParameterError(f"{name} {why}")
            if entry.asked_noise is not None and entry.asked_noise.target_epsilon is not None:
                raise ParameterError(f"{name}: give a noise multiplier or {entry.target_setting}, not both")
            settings = settings.replaced(name, entry.with_multiplier(multiplier))
        return settings

    def changed(
        self, name: str, values: Mapping[str, Any], read: Callable[[Setting, Any, str], Any] = Setting.read
    ) -> MethodSettings:
        """Return settings in which some of one method's have other values, as files write them.

        ``read`` is how the values are read. Raises ParameterError for an unknown method or setting, and what a setting
        refuses.
        """
        entry = self.of(name)
        if entry is None:
            raise ParameterError(f"{name} has no settings")
        known = settings_of(type(entry))
        for key in values:
            if key not in known:
                raise ParameterError(f"{name} has no setting {key!r}: choose from {', '.join(known)}")
        taken = {known[key].name: read(known[key], value, f"{name}.") for key, value in values.items()}
        with naming_own_method(name, method_class(name), refuses=True):
            return self.replaced(name, replace(entry, **taken))
