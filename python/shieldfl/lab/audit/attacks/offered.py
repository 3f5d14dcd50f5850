"""Which attacks there are: those of this package, and what other installed packages offer.

A package offers one by an entry point of the group ``shieldfl.attacks``: the attack's name, and where its class is.
That of an attack on updates is called without arguments; that of others is a FederationAttack.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attack import FederationAttack, UpdateAttack

GROUP = "shieldfl.attacks"
BUILT_IN = {
    "ilrg": "shieldfl.lab.audit.attacks.labels:Ilrg",
    "dlg": "shieldfl.lab.audit.attacks.searches:Dlg",
    "idlg": "shieldfl.lab.audit.attacks.searches:Idlg",
    "inverting": "shieldfl.lab.audit.attacks.searches:Inverting",
    "robbing-the-fed": "shieldfl.lab.audit.attacks.planted_layers:RobbingTheFed",
    "curious-abandon-honesty": "shieldfl.lab.audit.attacks.planted_layers:CuriousAbandonHonesty",
    "label-distribution": "shieldfl.lab.audit.attacks.label_distribution:LabelDistributionAudit",
    "membership": "shieldfl.lab.audit.attacks.membership:MembershipAudit",
    "lone-total": "shieldfl.lab.audit.protocol.lies:LoneTotal",
    "few-total": "shieldfl.lab.audit.protocol.lies:FewTotal",
    "second-total": "shieldfl.lab.audit.protocol.lies:SecondTotal",
    "late-total": "shieldfl.lab.audit.protocol.lies:LateTotal",
    "invented-clients": "shieldfl.lab.audit.protocol.lies:InventedClients",
    "tampered-ciphertext": "shieldfl.lab.audit.protocol.lies:TamperedCiphertext",
}
"""The attacks of this package, read as entry points are."""


class UsableAttacks(NamedTuple):
    """Attacks that were named and can be made."""

    on_updates: tuple[UpdateAttack, ...]
    on_methods: tuple[type[FederationAttack], ...]
    """Classes of those that have federations of their own."""
    left_out: tuple[str, ...]
    """A line for each that cannot be made: which, and why."""


def _offers() -> dict[str, tuple[EntryPoint, ...]]:
    """Return what is offered under each name, this package's own first."""
    offers: dict[str, tuple[EntryPoint, ...]] = {}
    own = [EntryPoint(name, place, GROUP) for name, place in BUILT_IN.items()]
    for one in (*own, *sorted(entry_points(group=GROUP))):
        offers[one.name] = (*offers.get(one.name, ()), one)
    return offers


def _made(name: str, offers: tuple[EntryPoint, ...]) -> UpdateAttack | type[FederationAttack]:
    """Make an attack. Raises ParameterError where there are several of that name, or the one cannot be made."""
    if len(offers) > 1:
        places = " and ".join(one.value for one in offers)
        raise ParameterError(f"there is more than one attack {name!r}, {places}: uninstall all but one")
    whose = f"the attack {name!r}, {offers[0].value},"
    try:
        kind = offers[0].load()
        if isinstance(kind, type) and issubclass(kind, FederationAttack):
            return kind
        attack = kind()
    except Exception as error:
        raise ParameterError(f"{whose} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(attack, UpdateAttack):
        raise ParameterError(f"{whose} is neither an UpdateAttack nor a FederationAttack")
    return attack


def usable_attacks(names: Iterable[str]) -> UsableAttacks:
    """Make attacks by their names, and say which of them cannot be made.

    What is not asked for is not looked at. Raises ParameterError for none that can be made, for an unknown name, and
    for one that is given twice.
    """
    offers = _offers()
    made: list[UpdateAttack | type[FederationAttack]] = []
    left_out: list[str] = []
    for name in names:
        if name not in offers:
            raise ParameterError(f"unknown attack {name!r}: choose from {', '.join(offers)}")
        try:
            made.append(_made(name, offers[name]))
        except ParameterError as error:
            left_out.append(f"left out: {error}")
    if not made and left_out:
        raise ParameterError("; ".join(left_out))
    if not made or len({attack.name for attack in made}) < len(made):
        raise ParameterError(f"name one attack or several, each once: {', '.join(offers)}")
    return UsableAttacks(
        tuple(one for one in made if isinstance(one, UpdateAttack)),
        tuple(one for one in made if isinstance(one, type)),
        tuple(left_out),
    )
