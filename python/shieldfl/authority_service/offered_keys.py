"""Keys that an authority has drawn for sessions with others, which are not begun yet."""

from __future__ import annotations

import threading
from collections import OrderedDict

from shieldfl.errors import PolicyError
from shieldfl.roles.authority_secrets import AuthoritySecrets
from shieldfl.roles.joint_keys import JointKeys
from shieldfl.scheme.enrolment import SECRET_BYTES, AuthorityGroup, AuthorityIdentity

__all__ = ["OfferedKeys"]

_MOST_OFFERS = 256
"""Of all aggregators: the oldest makes way."""


class OfferedKeys:
    """Each is for one attempt to begin a session, by the aggregator that asked for it; they end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, AuthorityIdentity], AuthoritySecrets] = OrderedDict()

    def offer(self, aggregator: str) -> AuthorityIdentity:
        """Draw keys, and return what is public of them."""
        made = AuthoritySecrets()
        with self._lock:
            self._held[aggregator, made.identity] = made
            while len(self._held) > _MOST_OFFERS:
                self._held.popitem(last=False)
        return made.identity

    def take(self, aggregator: str, group: AuthorityGroup) -> JointKeys:
        """Take the keys that were offered for a group out: whatever comes of it, nothing else is begun with them.

        Raises PolicyError for a group of others' keys, or of some that were used, or made way, or were forgotten;
        ParameterError for one that clients could seal nothing to.
        """
        for member in group.members:
            member.seal(bytes(SECRET_BYTES), b"")
        with self._lock:
            owned = [member for member in group.members if (aggregator, member) in self._held]
            if len(owned) != 1:
                raise PolicyError(
                    "of these keys not one, and one alone, was offered here, or not since this authority was started: "
                    "have every authority make a new offer, and begin the session with those"
                )
            return JointKeys(self._held.pop((aggregator, owned[0])), group)
