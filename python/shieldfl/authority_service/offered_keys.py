"""Keys that an authority has drawn for sessions with others, which are not begun yet."""

from __future__ import annotations

import threading
from collections import OrderedDict

from shieldfl.errors import PolicyError
from shieldfl.roles.authority_secrets import AuthoritySecrets
from shieldfl.roles.joint_keys import JointKeys
from shieldfl.scheme.enrolment import AuthorityGroup, AuthorityIdentity

__all__ = ["OfferedKeys"]

_MOST_OFFERS = 16
"""Of one aggregator: the oldest makes way."""


class OfferedKeys:
    """Each is for one session of the aggregator that has asked for it. They end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, OrderedDict[AuthorityIdentity, AuthoritySecrets]] = {}

    def offer(self, aggregator: str) -> AuthorityIdentity:
        """Draw keys, and return what is public of them."""
        made = AuthoritySecrets()
        with self._lock:
            held = self._held.setdefault(aggregator, OrderedDict())
            held[made.identity] = made
            while len(held) > _MOST_OFFERS:
                held.popitem(last=False)
        return made.identity

    def take(self, aggregator: str, group: AuthorityGroup) -> JointKeys:
        """Take the keys that were offered for a group out: nobody else begins a session with them.

        Raises PolicyError for a group of others' keys, or of some that have been used, or made way, or were forgotten.
        """
        with self._lock:
            held = self._held.get(aggregator, OrderedDict())
            owned = [member for member in group.members if member in held]
            if len(owned) != 1:
                raise PolicyError(
                    "this authority has not offered one of these keys, or not since it was started: have every "
                    "authority make a new offer, and begin the session with those"
                )
            return JointKeys(held.pop(owned[0]), group)

    def give_back(self, aggregator: str, keys: JointKeys) -> None:
        """Hold keys again with which no session was begun."""
        with self._lock:
            self._held.setdefault(aggregator, OrderedDict())[keys.owner.identity] = keys.owner
