"""A client's keys and what it may open: of all methods alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from shieldfl.methods.protocol.client_opening import ClientOpening
from shieldfl.methods.protocol.opened_together import OpenedTogether
from shieldfl.methods.protocol.reports import Note, Report
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.round_authority import RoundAuthority
from shieldfl.methods.protocol.steps import AuthoritySteps, ClientSteps
from shieldfl.roles.client_keys import ClientKeys
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import RoundKeyReader
from shieldfl.stateful import refuse_unless

__all__ = ["EnrollingClient"]


class EnrollingClient(ClientSteps):
    """Holds the public keys of rounds; where clients enrol, its own keys; where they open sums, what opens them.

    Parameters
    ----------
    index : its number.
    context : what all roles of the federation know.
    """

    changes: ClassVar[Mapping[str, Any]] = {
        "_round_keys": RoundKeyReader | None,
        "_own_keys": ClientKeys | None,
        "_opening": ClientOpening | None,
    }

    round: int
    """That it is in."""

    def __init__(self, index: int, context: RoleContext) -> None:
        super().__init__()
        self.index = index
        self.context = context
        self._round_keys = RoundKeyReader(context.keys) if context.keys.parameters else None
        self._own_keys = ClientKeys(context.keys, index) if context.keys.enrols else None
        self.needs_sealing = self._own_keys is not None
        self._opening: ClientOpening | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for keys that such a client does not have."""
        super().check_changed()
        refuse_unless((self._round_keys is None) == (not self.context.keys.parameters))
        refuse_unless((self._own_keys is not None) == self.context.keys.enrols)
        refuse_unless((self._opening is not None) == self.context.clients_open)

    def report(self) -> Report:
        """Return what there is to tell, with remarks of what the client has opened.

        That it was opened, the authority tells, for all clients; what time it took, whoever has the client open it.
        """
        own = super().report()
        if self._opening is None:
            return own
        told = self._opening.opener.report()
        remarks = tuple(note for note in told.notes if isinstance(note, Note))
        return Report(own.events, own.notes + remarks, own.seconds)

    def enrolment(self) -> Message:
        """Return the request that enrols the client, where clients do."""
        return Message() if self._own_keys is None else Message({"enrolment": self._own_keys.request})

    def enrolled(self, answer: Message) -> None:
        """Take what lets the client open sums, where clients do."""
        if self._opening is not None and self._own_keys is not None:
            with self._lock:
                self._opening.keys.grant(self._own_keys.granted(answer["grant"]))

    def granted_secret(self) -> bytes:
        """Return a secret that all clients and the key authority have, once this one is enrolled."""
        with self._lock:
            return super().granted_secret() if self._opening is None else self._opening.keys.shared_secret()

    def catch_up(self, missed: Sequence[Message]) -> None:
        """Open the ends of rounds that the client was not in, where clients open sums."""
        with self._lock:
            if self._opening is None:
                super().catch_up(missed)
            else:
                self._opening.catch_up(missed)

    def open_by(self, opener: AuthoritySteps) -> None:
        """Let the client open sums itself; ``opener`` turns them into models, by keys that open answers."""
        assert isinstance(opener, RoundAuthority)
        self._opening = ClientOpening(opener, self.context.answered, self.context.answered_once)

    def open_together(self, together: OpenedTogether) -> None:
        """Share with other clients of this process what they open alike, where clients open sums."""
        if self._opening is not None:
            self._opening.together = together

    def global_model(self, model: Message) -> Message:
        """Return the newest global model: what a message brings, or what this client has opened."""
        with self._lock:
            return model if self._opening is None else self._opening.model()

    def _round_key(self, purpose: str) -> Any:
        """Return what the client encrypts under for a purpose in this round: the public key, or one of its own.

        Raises PolicyError where the round's first message did not bring it.
        """
        assert self._round_keys is not None
        if self._own_keys is not None:
            return self._own_keys.key(purpose)
        return self._round_keys.key(self.round, purpose)
