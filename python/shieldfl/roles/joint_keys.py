"""What one of several key authorities begins a session with."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl.errors import ParameterError
from shieldfl.roles.authority_secrets import AuthoritySecrets
from shieldfl.scheme.enrolment import AuthorityGroup

__all__ = ["JointKeys"]


@dataclass(frozen=True)
class JointKeys:
    """An authority's own secrets, and all those that have to answer beside it.

    Raises ParameterError for a group that the authority is not in.
    """

    owner: AuthoritySecrets
    """Drawn for this session alone: the others know what is public of them."""
    group: AuthorityGroup
    """In the order in which their parts of requests and answers stand."""

    def __post_init__(self) -> None:
        if self.owner.identity not in self.group.members:
            raise ParameterError("the session is of other key authorities than this one")
