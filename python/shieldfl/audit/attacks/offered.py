"""Which attacks there are: those of this package, and what other installed packages offer.

A package offers one by an entry point of the group ``shieldfl.attacks``: the attack's name, and where its class is.
That of an attack on updates is called without arguments; that of others is a FederationAttack.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from shieldfl.audit.attack import UpdateAttack
from shieldfl.audit.federation_attack import FederationAttack
from shieldfl.errors import ParameterError

__all__ = ["BUILT_IN", "GROUP", "attacks_named", "sorted_attacks"]

GROUP = "shieldfl.attacks"
BUILT_IN = {
    "ilrg": "shieldfl.audit.attacks.ilrg:Ilrg",
    "dlg": "shieldfl.audit.attacks.gradient_matching:Dlg",
    "idlg": "shieldfl.audit.attacks.gradient_matching:Idlg",
    "inverting": "shieldfl.audit.attacks.inverting_gradients:Inverting",
    "robbing-the-fed": "shieldfl.audit.attacks.robbing_the_fed:RobbingTheFed",
    "curious-abandon-honesty": "shieldfl.audit.attacks.trap_weights:CuriousAbandonHonesty",
    "label-distribution": "shieldfl.audit.attacks.label_distribution_audit:LabelDistributionAudit",
    "membership": "shieldfl.audit.attacks.membership_audit:MembershipAudit",
    "lone-total": "shieldfl.audit.protocol.small_totals:LoneTotal",
    "few-total": "shieldfl.audit.protocol.small_totals:FewTotal",
    "second-total": "shieldfl.audit.protocol.second_total:SecondTotal",
    "late-total": "shieldfl.audit.protocol.late_total:LateTotal",
    "invented-clients": "shieldfl.audit.protocol.invented_clients:InventedClients",
    "tampered-ciphertext": "shieldfl.audit.protocol.tampered_ciphertext:TamperedCiphertext",
}
"""The attacks of this package, read as entry points are."""


def _offers() -> dict[str, EntryPoint]:
    """Return what is offered under each name. Raises ParameterError for a name that there is twice."""
    own = [EntryPoint(name, place, GROUP) for name, place in BUILT_IN.items()]
    offers: dict[str, EntryPoint] = {}
    for one in (*own, *sorted(entry_points(group=GROUP))):
        if one.name in offers:
            raise ParameterError(
                f"there is more than one attack {one.name!r}, {offers[one.name].value} and {one.value}: uninstall one"
            )
        offers[one.name] = one
    return offers


def sorted_attacks(
    names: Iterable[str],
) -> tuple[tuple[UpdateAttack, ...], tuple[type[FederationAttack], ...]]:
    """Make attacks on updates by their names, and return beside them the classes of those that have federations.

    Raises ParameterError for none, for an unknown one, one that is named twice, and one that cannot be made.
    """
    offers = _offers()
    on_updates: list[UpdateAttack] = []
    on_methods: list[type[FederationAttack]] = []
    for name in names:
        if name not in offers:
            raise ParameterError(f"unknown attack {name!r}: choose from {', '.join(offers)}")
        whose = f"the attack {name!r}, {offers[name].value},"
        try:
            kind = offers[name].load()
            if isinstance(kind, type) and issubclass(kind, FederationAttack):
                on_methods.append(kind)
                continue
            attack = kind()
        except Exception as error:
            raise ParameterError(f"{whose} cannot be made: {type(error).__name__}: {error}") from error
        if not isinstance(attack, UpdateAttack):
            raise ParameterError(f"{whose} is neither an UpdateAttack nor a FederationAttack")
        on_updates.append(attack)
    made = [*(one.name for one in on_updates), *(kind.name for kind in on_methods)]
    if not made or len(set(made)) < len(made):
        raise ParameterError(f"name one attack or several, each once: {', '.join(offers)}")
    return tuple(on_updates), tuple(on_methods)


def attacks_named(names: Iterable[str]) -> tuple[UpdateAttack, ...]:
    """Make attacks on updates by their names. Raises as :func:`sorted_attacks` does, and for those on methods."""
    on_updates, on_methods = sorted_attacks(names)
    if on_methods:
        raise ParameterError(f"{on_methods[0].name} has federations of its own, and is on no update")
    return on_updates
