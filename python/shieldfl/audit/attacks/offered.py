"""Which attacks on updates there are: those of this package, and what other installed packages offer.

A package offers one by an entry point of the group ``shieldfl.attacks``: the attack's name, and where its class is,
which is called without arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from shieldfl.audit.attack import UpdateAttack
from shieldfl.errors import ParameterError

__all__ = ["GROUP", "usable_attacks"]

GROUP = "shieldfl.attacks"
_BUILT_IN = {
    "ilrg": "shieldfl.audit.attacks.ilrg:Ilrg",
    "dlg": "shieldfl.audit.attacks.gradient_matching:Dlg",
    "idlg": "shieldfl.audit.attacks.gradient_matching:Idlg",
    "inverting": "shieldfl.audit.attacks.inverting_gradients:Inverting",
    "robbing-the-fed": "shieldfl.audit.attacks.robbing_the_fed:RobbingTheFed",
    "curious-abandon-honesty": "shieldfl.audit.attacks.trap_weights:CuriousAbandonHonesty",
}


def _offers() -> dict[str, tuple[EntryPoint, ...]]:
    """Return what is offered under each name, this package's own first."""
    offers: dict[str, tuple[EntryPoint, ...]] = {}
    own = [EntryPoint(name, place, GROUP) for name, place in _BUILT_IN.items()]
    for one in (*own, *sorted(entry_points(group=GROUP))):
        offers[one.name] = (*offers.get(one.name, ()), one)
    return offers


def _made(name: str, offers: tuple[EntryPoint, ...]) -> UpdateAttack:
    """Make an attack. Raises ParameterError where there are several of that name, or the one cannot be made."""
    if len(offers) > 1:
        places = " and ".join(one.value for one in offers)
        raise ParameterError(f"there is more than one attack {name!r}, {places}: uninstall all but one")
    try:
        attack = offers[0].load()()
    except Exception as error:
        raise ParameterError(
            f"the attack {name!r}, {offers[0].value}, cannot be made: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(attack, UpdateAttack):
        raise ParameterError(f"the attack {name!r}, {offers[0].value}, is no UpdateAttack")
    return attack


def usable_attacks(names: Iterable[str]) -> tuple[tuple[UpdateAttack, ...], tuple[str, ...]]:
    """Make attacks by their names; return also, in a line for each, which of them cannot be made, and why.

    What is not asked for is not looked at. Raises ParameterError for none that can be made, for an unknown name, and
    for one that is given twice.
    """
    offers = _offers()
    made: list[UpdateAttack] = []
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
    return tuple(made), tuple(left_out)
