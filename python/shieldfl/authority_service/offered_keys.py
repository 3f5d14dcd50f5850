"""Keys that an authority has drawn for sessions with others, which are not begun yet."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict

from shieldfl.errors import PolicyError
from shieldfl.roles.authority_secrets import AuthoritySecrets, JointKeys
from shieldfl.scheme.enrolment import SECRET_BYTES, AuthorityGroup, AuthorityIdentity

__all__ = ["OfferedKeys"]

_MOST_OFFERS = 32
"""Of one aggregator: its oldest makes way."""


class OfferedKeys:
    """Each is for one attempt to begin a session, by the aggregator that asked for it; they end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: defaultdict[str, OrderedDict[AuthorityIdentity, AuthoritySecrets]] = defaultdict(
            OrderedDict
        )
        """By aggregator."""

    def offer(self, aggregator: str) -> AuthorityIdentity:
        """Draw keys, and return what is public of them."""
        made = AuthoritySecrets()
        with self._lock:
            own = self._held[aggregator]
            own[made.identity] = made
            if len(own) > _MOST_OFFERS:
                own.popitem(last=False)
        return made.identity

    def take(self, aggregator: str, group: AuthorityGroup) -> JointKeys:
        """Take the keys that were offered for a group out: whatever comes of it, nothing else is begun with them.

        Raises PolicyError for a group of others' keys, or of some that were used, or made way, or were forgotten;
        ParameterError for one that clients could seal nothing to.
        """
        for member in group.members:
            member.seal(bytes(SECRET_BYTES), b"")
        with self._lock:
            held = self._held[aggregator]
            owned = [member for member in group.members if member in held]
            if len(owned) != 1:
                raise PolicyError(
                    "of these keys not one, and one alone, was offered here, or not since this authority was started: "
                    "have every authority make a new offer, and begin the session with those"
                )
            return JointKeys(held.pop(owned[0]), group)
