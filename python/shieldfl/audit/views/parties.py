"""Who may look at a federation: which roles' messages a party has, and whether it reads the channel to clients."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl.audit.views.recorded_federation import AGGREGATOR, AUTHORITY, client_name
from shieldfl.errors import ParameterError

__all__ = ["PARTIES", "Party", "party_named"]


@dataclass(frozen=True)
class Party:
    """One party, honest but curious: it keeps what it gets and does as the method says.

    Clients of a party are told by how many there are: the first ones that are not the victim.
    """

    name: str
    meaning: str
    aggregates: bool = False
    is_authority: bool = False
    colluding_clients: int | None = 0
    """How many clients are of the party; None for all but the victim."""
    reads_channel: bool = False
    """Whether it has every message to and from clients, as it would be without TLS."""
    has_last_model: bool = False
    """Whether it gets the model behind the last round, and nothing else."""

    def clients(self, victim: int, clients: int) -> tuple[int, ...]:
        """Return which clients are of the party, where ``victim`` is one of ``clients``.

        Raises ParameterError where there are not so many.
        """
        others = [index for index in range(clients) if index != victim]
        count = len(others) if self.colluding_clients is None else self.colluding_clients
        if count > len(others):
            raise ParameterError(f"{self.name}: there are no {count} clients beside the one that is attacked")
        return tuple(others[:count])

    def roles(self, victim: int, clients: int) -> tuple[str, ...]:
        """Return by what names the roles of the party are recorded."""
        named = [AGGREGATOR] if self.aggregates else []
        if self.is_authority:
            named.append(AUTHORITY)
        return (*named, *(client_name(index) for index in self.clients(victim, clients)))


PARTIES = (
    Party("aggregator", "the server that adds updates", aggregates=True),
    Party("client", "one of the other clients", colluding_clients=1),
    Party("other-clients", "all clients but the one that is attacked, together", colluding_clients=None),
    Party("authority", "the key authority", is_authority=True),
    Party(
        "aggregator-and-client",
        "the server together with one client",
        aggregates=True,
        colluding_clients=1,
    ),
    Party("network", "whoever reads all messages to and from clients: there is no TLS", reads_channel=True),
    Party("outsider", "who gets the model behind the last round", has_last_model=True),
)


def party_named(name: str) -> Party:
    """Return a party. Raises ParameterError for a name that there is not."""
    for party in PARTIES:
        if party.name == name:
            return party
    raise ParameterError(f"there is no party {name!r}: choose among {', '.join(one.name for one in PARTIES)}")
