"""What a session has on an authority's disk: a folder, named by the session's id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from shieldfl.authority_service.session_request import SESSION_ID_BYTES, SessionRequest
from shieldfl.errors import DataError, PolicyError, WireFormatError
from shieldfl.methods.protocol.public_setup import PublicSetup
from shieldfl.roles.message import Message
from shieldfl.roles.private_file import write_private_file

__all__ = ["SessionFacts", "SessionFolder"]


@dataclass(frozen=True)
class SessionFacts:
    """Of one session, what an operator may look at, and which aggregator began it."""

    method: str
    clients: int
    rounds: int
    values: int
    aggregator: str


class SessionFolder:
    """The request, the signed set-up, the authority's store, its state, sealed, and who enrolled as which client.

    Parameters
    ----------
    path : of the folder, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / "store"
        self._request = path / "request"
        self._setup = path / "set-up"
        self._facts = path / "facts.json"
        self._clients = path / "clients.json"
        self._state = path / "state"
        self._ended = path / "ended"

    @property
    def id(self) -> bytes:
        """The session's: 16 bytes."""
        return bytes.fromhex(self.path.name)

    @property
    def is_begun(self) -> bool:
        """Whether all is there: the state is written last."""
        return self._state.exists()

    @property
    def is_ended(self) -> bool:
        """Whether the operator has ended it."""
        return self._ended.exists()

    def end(self) -> None:
        """Have nothing answered any more."""
        write_private_file(self._ended, b"")

    def check_running(self) -> None:
        """Raise PolicyError for a session that is not, or was ended."""
        if len(self.path.name) != 2 * SESSION_ID_BYTES or not self.is_begun:
            raise PolicyError("this authority has no such session: begin one")
        if self.is_ended:
            raise PolicyError("this session was ended by the authority's operator: begin another one")

    def write(self, request: SessionRequest, setup: Message, aggregator: str) -> None:
        """Write what stays as it is."""
        plan = request.method.plan
        facts = SessionFacts(request.method.name, plan.clients, plan.rounds, plan.update_size, aggregator)
        write_private_file(self._request, request.to_message().to_bytes())
        write_private_file(self._setup, setup.to_bytes())
        write_private_file(self._facts, msgspec.json.encode(facts))

    def request(self) -> SessionRequest:
        """Return what the session was begun with."""
        return SessionRequest.from_message(Message.from_bytes(self._request.read_bytes()))

    def setup(self) -> tuple[Message, PublicSetup]:
        """Return the public set-up: as it was signed, and read."""
        signed = Message.from_bytes(self._setup.read_bytes())
        return signed, PublicSetup.trusted(bytes(signed["setup"]))

    def facts(self) -> SessionFacts:
        """Return what an operator may look at. Raises WireFormatError."""
        try:
            return msgspec.json.decode(self._facts.read_bytes(), type=SessionFacts)
        except (OSError, msgspec.MsgspecError) as error:
            raise WireFormatError(f"{self._facts} does not say what the session is: restore it") from error

    def clients(self) -> dict[int, str]:
        """Return who enrolled as which client."""
        try:
            return msgspec.json.decode(self._clients.read_bytes(), type=dict[int, str])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise WireFormatError(
                f"{self._clients} does not say who enrolled as which client: restore it"
            ) from error

    def write_clients(self, names: dict[int, str]) -> None:
        """Write who enrolled as which client."""
        write_private_file(self._clients, msgspec.json.encode(names))

    def state(self) -> bytes:
        """Return the authority's state, sealed."""
        return self._state.read_bytes()

    def write_state(self, state: bytes) -> None:
        """Write the authority's state. Raises DataError where the disk does not take it."""
        try:
            write_private_file(self._state, state)
        except OSError as error:
            raise DataError(
                "the session's state cannot be kept: nothing is answered before the disk is mended"
            ) from error
