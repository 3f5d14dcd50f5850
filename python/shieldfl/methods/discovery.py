"""Which methods there are: those of this package, and what other installed packages offer.

A package offers a method by an entry point of the group ``shieldfl.methods``: the method's name, and where its class
is. Nothing is imported before a method is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from shieldfl.errors import ParameterError
from shieldfl.rounds.method import Method
from shieldfl.rounds.named_method import NamedMethod, check_declarations

GROUP = "shieldfl.methods"
BUILT_IN = {
    "fedavg": "shieldfl.methods.fedavg:FedAvg",
    "selective-shield": "shieldfl.methods.selective_shield.method:SelectiveShield",
    "sense-crypt": "shieldfl.methods.sense_crypt.method:SenseCrypt",
    "full-he": "shieldfl.methods.full_encryption:FullEncryption",
    "plain-he": "shieldfl.methods.full_encryption:FullEncryption",
    "top-2": "shieldfl.methods.full_encryption:LastLayerEncryption",
    "fedml-he": "shieldfl.methods.agreed_mask:FedMlHe",
    "mask-crypt": "shieldfl.methods.mask_crypt:MaskCrypt",
    "dict-pfl": "shieldfl.methods.dict_pfl.method:DictPfl",
    "batch-crypt": "shieldfl.methods.batch_crypt:BatchCrypt",
    "alt-fl-pi": "shieldfl.methods.alt_fl:AltFl",
    "alt-fl-si-dp": "shieldfl.methods.alt_fl:AltFlWithoutEncryption",
    "alt-fl-si-he": "shieldfl.methods.alt_fl:AltFl",
    "alt-fl-mp": "shieldfl.methods.alt_fl:AltFl",
    "dp-sgd": "shieldfl.methods.noised_average:DpSgdAveraging",
    "dp-fedavg": "shieldfl.methods.noised_average:DpFedAvg",
    "ddp-fedavg": "shieldfl.methods.full_encryption:DdpFedAvg",
}
"""The methods of this package, read as entry points are: they need no installed metadata."""


@functools.cache
def _offers() -> dict[str, list[EntryPoint]]:
    """Return what is offered under each name: this package's methods first, others in the order of their names."""
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

    Raises ParameterError for an unknown name, with the known ones; for one that several packages offer; and, with its
    error, for a class that cannot be loaded or does not say what it shows. Other methods are not concerned.
    """
    offers = _offers().get(name, [])
    if not offers:
        raise ParameterError(f"unknown method {name!r}: choose from {', '.join(method_names())}")
    places = " and ".join(_place(one) for one in offers)
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
    """Return those of some methods that have an epsilon under default settings. Raises as :func:`method_class`."""
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


def _place(offer: EntryPoint) -> str:
    package = "shieldfl" if offer.dist is None else offer.dist.name
    return f"{offer.value} of {package}"
