"""Whom a round asks to take part: settled once by the key authority, which signs it, and looked at by each client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.roles.message import Part
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["Invitations", "check_invited"]


def check_invited(
    frame: Part, plan: FederationPlan, client: int, participants: int, round_number: int
) -> None:
    """Look, at a client, whether it is among those whom the authority signed, and told of as many as these are.

    Noise follows from how many take part, so whoever passes the message on must not say another number. Raises
    PolicyError; WireFormatError for what is no mask of the plan's clients.
    """
    invited = Mask.from_bytes(frame, expected_size=plan.clients)
    if client not in invited.to_indices():
        raise PolicyError(
            f"client {client} is not invited to round {round_number}: it trains and sends nothing in it"
        )
    if invited.count != participants:
        raise PolicyError(
            f"round {round_number} is said to have {participants} participants, but the key authority signed that "
            f"{invited.count} are invited: nothing is trained or sent"
        )


class Invitations(Stateful):
    """At the key authority: the clients that are asked in the newest round, which stay those that they were.

    Parameters
    ----------
    plan : its ``min_clients`` are asked at least, and its ``max_clients`` at most; None of a round's clients means all
        that there are.
    """

    changes: ClassVar = {"_round": int, "_invited": Mask}

    def __init__(self, plan: FederationPlan) -> None:
        self._plan = plan
        self._round = 0
        self._invited = Mask.full(plan.clients)

    def check_changed(self) -> None:
        """Raise WireFormatError for clients or a round that the plan does not have."""
        super().check_changed()
        refuse_unless(0 <= self._round <= self._plan.rounds and self._invited.size == self._plan.clients)
        fewest, most = self._plan.min_clients, self._plan.most_participants
        # Before the first round all are, however many may be asked in one.
        refuse_unless(fewest <= self._invited.count and (self._round == 0 or self._invited.count <= most))

    def settled(self, round_number: int, clients: Iterable[int] | None) -> Mask:
        """Return whom a round asks; nothing changes before :meth:`settle`.

        Raises PolicyError for fewer than ``min_clients``, more than ``max_clients``, and for others than were asked in
        this round before; ParameterError for clients that there are not, or that are named twice.
        """
        plan = self._plan
        invited = Mask.from_indices(self._numbers(clients), plan.clients)
        if invited.count < plan.min_clients:
            raise PolicyError(
                f"round {round_number} would ask {invited.count} clients, fewer than min_clients = {plan.min_clients}: "
                "its total would not be opened"
            )
        if invited.count > plan.most_participants:
            raise PolicyError(
                f"round {round_number} would ask {invited.count} clients, more than max_clients = {plan.max_clients}: "
                "a sum has no room for so many. Name fewer, as begin_round's invited"
            )
        if round_number == self._round and invited != self._invited:
            raise PolicyError(
                f"round {round_number} was begun with other clients, who know how many they are: begin a later round"
            )
        return invited

    def _numbers(self, clients: Iterable[int] | None) -> list[int]:
        if clients is None:
            return list(range(self._plan.clients))
        if not isinstance(clients, Iterable):
            raise ParameterError(
                f"the invited clients must be a list of numbers, not {type(clients).__name__}"
            )
        numbers = [as_unsigned(client, "an invited client") for client in clients]
        if any(number >= self._plan.clients for number in numbers):
            raise ParameterError(
                f"client {max(numbers)} is invited, and the plan has clients 0 to {self._plan.clients - 1}"
            )
        return numbers

    def settle(self, round_number: int, invited: Mask) -> None:
        """Keep what :meth:`settled` returned."""
        self._round, self._invited = round_number, invited

    def check_list(self, round_number: int, clients: Iterable[int]) -> None:
        """Raise PolicyError for a list of participants with one who was not asked in this round."""
        if round_number != self._round:
            raise PolicyError(
                f"round {round_number} does not run: have the key authority begin it, again if it was begun"
            )
        if not set(clients) <= set(self._invited.to_indices().tolist()):
            raise PolicyError(
                f"the list names clients that were not invited to round {round_number}: they cannot be in its total"
            )
