"""Which attacks on updates there are: those of this package, and what other installed packages offer.

A package offers one by an entry point of the group ``shieldfl.attacks``: the attack's name, and where its class is,
which is called without arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from shieldfl.audit.attack import UpdateAttack
from shieldfl.errors import ParameterError

__all__ = ["GROUP", "attacks_named"]

GROUP = "shieldfl.attacks"
_BUILT_IN = {
    "ilrg": "shieldfl.audit.attacks.ilrg:Ilrg",
    "dlg": "shieldfl.audit.attacks.gradient_matching:Dlg",
    "idlg": "shieldfl.audit.attacks.gradient_matching:Idlg",
    "inverting": "shieldfl.audit.attacks.inverting_gradients:Inverting",
    "robbing-the-fed": "shieldfl.audit.attacks.robbing_the_fed:RobbingTheFed",
    "curious-abandon-honesty": "shieldfl.audit.attacks.trap_weights:CuriousAbandonHonesty",
}


def _offers() -> dict[str, EntryPoint]:
    """Return what is offered under each name. Raises ParameterError for a name that there is twice."""
    own = [EntryPoint(name, place, GROUP) for name, place in _BUILT_IN.items()]
    offers: dict[str, EntryPoint] = {}
    for one in (*own, *sorted(entry_points(group=GROUP))):
        if one.name in offers:
            raise ParameterError(
                f"there is more than one attack {one.name!r}, {offers[one.name].value} and {one.value}: uninstall one"
            )
        offers[one.name] = one
    return offers


def attacks_named(names: Iterable[str]) -> tuple[UpdateAttack, ...]:
    """Make attacks by their names.

    Raises ParameterError for none, for an unknown one, one that is named twice, and one that cannot be made.
    """
    offers, made = _offers(), []
    for name in names:
        if name not in offers:
            raise ParameterError(f"unknown attack {name!r}: choose from {', '.join(offers)}")
        try:
            attack = offers[name].load()()
        except Exception as error:
            raise ParameterError(
                f"the attack {name!r}, {offers[name].value}, cannot be made: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(attack, UpdateAttack):
            raise ParameterError(f"the attack {name!r}, {offers[name].value}, is no UpdateAttack")
        made.append(attack)
    if not made or len({attack.name for attack in made}) < len(made):
        raise ParameterError(f"name one attack or several, each once: {', '.join(offers)}")
    return tuple(made)
