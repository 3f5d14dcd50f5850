"""Methods by name, with the settings of all of them, set up for a federation.

This package has some; other installed packages offer more, each by an entry point of the group
``shieldfl.methods``: the method's name, and where its class is. Nothing is imported before a method is asked
for. A method may train a module of its own, made from the plain one: that needs torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from shieldfl.errors import ParameterError
from shieldfl.rounds.method import Method, NamedMethod, check_declarations, naming_own_method
from shieldfl.rounds.plan import FederationPlan, PublicSetup
from shieldfl.settings import Setting, settings_of

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "MethodSettings",
    "adapt_model",
    "count_trained",
    "has_choice_of_scheme",
    "load_privacy_packages",
    "make_method",
    "method_of",
]

GROUP = "shieldfl.methods"
BUILT_IN = {
    "fedavg": "shieldfl.methods.fedavg:FedAvg",
    "selective-shield": "shieldfl.methods.selective_shield.method:SelectiveShield",
    "sense-crypt": "shieldfl.methods.sense_crypt.method:SenseCrypt",
    "full-he": "shieldfl.methods.full_encryption:FullEncryption",
    "plain-he": "shieldfl.methods.full_encryption:FullEncryption",
    "top-2": "shieldfl.methods.full_encryption:LastLayerEncryption",
    "fedml-he": "shieldfl.methods.mask_crypt:FedMlHe",
    "mask-crypt": "shieldfl.methods.mask_crypt:MaskCrypt",
    "dict-pfl": "shieldfl.methods.dict_pfl.method:DictPfl",
    "batch-crypt": "shieldfl.methods.batch_crypt:BatchCrypt",
    "alt-fl-pi": "shieldfl.methods.alt_fl:AltFl",
    "alt-fl-si-dp": "shieldfl.methods.alt_fl:AltFlWithoutEncryption",
    "alt-fl-si-he": "shieldfl.methods.alt_fl:AltFl",
    "alt-fl-mp": "shieldfl.methods.alt_fl:AltFl",
    "dp-sgd": "shieldfl.methods.fedavg:DpSgdAveraging",
    "dp-fedavg": "shieldfl.methods.fedavg:DpFedAvg",
    "ddp-fedavg": "shieldfl.methods.full_encryption:DdpFedAvg",
}
"""The methods of this package, by name, in the form of entry points: they need no installed metadata."""


@functools.cache
def _offers() -> dict[str, list[EntryPoint]]:
    """Return the offers under each name: this package's methods first, others in the order of their names."""
    offers: dict[str, list[EntryPoint]] = {}
    own = [EntryPoint(name, place, GROUP) for name, place in BUILT_IN.items()]
    for one in (*own, *sorted(entry_points(group=GROUP))):
        offers.setdefault(one.name, []).append(one)
    return offers


def method_names() -> tuple[str, ...]:
    """Return the names of all methods, whether or not they can be loaded."""
    return tuple(_offers())


def method_class(name: str) -> type[Method]:
    """Return the class of a method.

    Raises ParameterError for an unknown name, with the known ones; for one that several packages offer; and,
    with its error, for a class that cannot be loaded or does not say what it shows. Other methods are not
    concerned.
    """
    offers = _offers().get(name, [])
    if not offers:
        raise ParameterError(f"unknown method {name!r}: choose from {', '.join(method_names())}")
    places = " and ".join(
        f"{one.value} of {'shieldfl' if one.dist is None else one.dist.name}" for one in offers
    )
    if len(offers) > 1:
        raise ParameterError(f"there is more than one method {name!r}, {places}: uninstall all but one")
    try:
        found = offers[0].load()
    except Exception as error:
        raise ParameterError(
            f"the method {name!r}, {places}, cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ParameterError(f"the method {name!r}, {places}, is no class that derives from Method")
    check_declarations(name, found)
    return found


def named_method(name: str) -> NamedMethod:
    """Return what the class of a method says of this name. Raises as :func:`method_class` does."""
    return method_class(name).named(name)


def names_with_epsilon(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of some methods that have an epsilon under default settings.

    Raises as :func:`method_class`.
    """
    return tuple(name for name in names if method_class(name).privacy_reading.unit is not None)


def checked_methods(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of methods to run side by side.

    Raises ParameterError for none, for one that is named twice, and as :func:`method_class` does.
    """
    known = tuple(names)
    if not known:
        raise ParameterError(f"name at least one method: {', '.join(method_names())}")
    for name in known:
        method_class(name)
    if len(set(known)) != len(known):
        raise ParameterError("a method is named twice: its second run would only repeat the first")
    return known


def has_choice_of_scheme(entry: Any) -> bool:
    """Say whether a method with these settings by default takes another scheme, too.

    It does not if it has no such setting, or if its scheme is not the default of its settings' class: then
    its name stands for that scheme.
    """
    known = {} if entry is None else settings_of(type(entry))
    return "encryption" in known and entry.encryption == known["encryption"].default


class MethodSettings:
    """An entry for each method that has settings of its own; what is not given is the method's default.

    Parameters
    ----------
    entries : by method, hyphens of its name as underscores:
        ``MethodSettings(sense_crypt=SenseCryptSettings(...))``. Raises ParameterError for an unknown method,
        and for settings of another one.
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
        """Return a method's entry; None for one without settings.

        Raises ParameterError for an unknown one.
        """
        return self._entries[method] if method in self._entries else named_method(method).settings

    def replaced(self, method: str, entry: Any) -> MethodSettings:
        """Return settings in which one method has this entry."""
        return MethodSettings(
            **{key.replace("-", "_"): one for key, one in {**self._entries, method: entry}.items()}
        )

    def encrypted_by(self, encryption: str, methods: Iterable[str]) -> MethodSettings:
        """Return settings under which all of these methods that have a choice of scheme encrypt by this one.

        Those without keys keep theirs, and so do those whose name stands for a scheme: ``batch-crypt``,
        ``plain-he``. Raises ParameterError for a scheme that one of the others does not take.
        """
        settings = self
        for name in methods:
            entry = named_method(name).settings
            if has_choice_of_scheme(entry):
                settings = settings.changed(name, {"encryption": encryption})
        return settings

    def with_sum_noise(self, multiplier: float, methods: Iterable[str]) -> MethodSettings:
        """Return settings under which the sums of all of these methods have noise with this multiplier.

        Raises ParameterError for a method whose sums cannot have any, with the reason, and what the setting
        refuses.
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

        ``read`` is how the values are read. Raises ParameterError for an unknown method or setting, and what
        a setting refuses.
        """
        entry = self.of(name)
        if not values:
            return self
        if entry is None:
            raise ParameterError(f"{name} has no settings")
        known = settings_of(type(entry))
        for key in values:
            if key not in known:
                raise ParameterError(f"{name} has no setting {key!r}: choose from {', '.join(known)}")
        taken = {known[key].name: read(known[key], value, f"{name}.") for key, value in values.items()}
        with naming_own_method(name, method_class(name), refuses=True):
            return self.replaced(name, replace(entry, **taken))


def make_method(name: str, settings: MethodSettings, plan: FederationPlan) -> Method:
    """Return a method under a plan.

    Raises ParameterError as ``method_class`` does, and what the method refuses.
    """
    kind = method_class(name)
    with naming_own_method(name, kind, refuses=True):
        method: Method = kind(name, settings.of(name), plan)
    # A node asks the class whether a set-up has to be signed, before it makes the method.
    if method.purposes and not kind.schemes:
        raise ParameterError(f"{kind.__name__} encrypts and names no schemes: declare schemes on the class")
    return method


def method_of(setup: PublicSetup) -> Method:
    """Return the method of a public set-up.

    Raises ParameterError for a method or settings that are not known here.
    """
    return make_method(setup.method, MethodSettings().changed(setup.method, setup.settings), setup.plan)


def adapt_model(name: str, model: nn.Module, settings: MethodSettings) -> nn.Module:
    """Return the module that a method trains, evaluates and flattens to vectors, see :meth:`Method.adapted`.

    The model is not changed. Raises ParameterError for methods with DP-SGD where a layer mixes samples, such
    as BatchNorm, and what the method refuses.
    """
    method, entry = method_class(name), settings.of(name)
    if method.trains_privately(name, entry):
        from shieldfl.privacy.dp_sgd import check_layers

        try:
            check_layers(deepcopy(model).train())
        except ParameterError as error:
            raise ParameterError(f"{name} cannot train this model: {error}") from error
    with naming_own_method(name, method, refuses=True):
        return method.adapted(model, entry)


def load_privacy_packages(name: str, settings: MethodSettings) -> None:
    """Import what trains by DP-SGD and counts epsilon, if the method will; nothing else of a run needs it.

    It takes seconds, which would otherwise count for the method's set-up or a stage of its first round.
    """
    entry = settings.of(name)
    noised = (
        getattr(entry, "noise_multiplier", 0.0) > 0.0 or getattr(entry, "target_epsilon", None) is not None
    )
    if trains := method_class(name).trains_privately(name, entry):
        import_module("shieldfl.privacy.dp_sgd")
    if noised or trains:
        import_module("dp_accounting")


def count_trained(model: nn.Module) -> int:
    """Return how many parameters are trained."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
