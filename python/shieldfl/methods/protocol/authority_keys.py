"""A key authority's keys, as its method's encryption asks for them; imported where an authority is made alone."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.roles.joint_keys import JointKeys
from shieldfl.roles.round_key_check import RoundKeyCheck
from shieldfl.roles.round_keys import MakePair, RoundKeys
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.session_keys import SessionKeys
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of

__all__ = ["made_authority_keys"]


def made_authority_keys(
    purposes: Mapping[str, SchemeParameters[Any, Any]],
    plan: FederationPlan,
    positions: int,
    most_weight: int,
    threads: int | None,
    store: str | PathLike[str] | None,
    check: RoundKeyCheck | None,
    joint: JointKeys | None = None,
    make_pair: MakePair | None = None,
) -> RoundSigner:
    """Return keys of rounds, or, where clients enrol, what is shared with them.

    Parameters
    ----------
    purposes : what is encrypted, and how.
    plan, most_weight : of the federation.
    positions : the most that an update has.
    threads : for the core; None for as many as the work is worth.
    store : the path of the memory's file, where clients enrol; None for none.
    check : of a federation that was set up before; None makes new keys.
    joint : where other authorities have to answer, too; for clients that enrol alone.
    make_pair : of keys of rounds, as for :class:`RoundKeys`.

    Raises what :class:`RoundKeys` or :class:`SessionKeys` refuses, and ParameterError for a store that nothing needs.
    """
    bounds = 1 / most_weight, 1.0
    if any(scheme_of(own).enrols for own in purposes.values()):
        return SessionKeys(
            purposes,
            plan.min_clients,
            weight_bounds=bounds,
            most_values=positions,
            clients=plan.clients,
            aggregator_opens=plan.opener == "aggregator",
            threads=threads,
            check=check,
            store=store,
            joint=joint,
        )
    if store is not None:
        raise ParameterError(
            "a store is for an authority that clients enrol with: all that this one knows is in its state"
        )
    return RoundKeys(
        purposes, plan.min_clients, weight_bounds=bounds, threads=threads, make_pair=make_pair, check=check
    )
