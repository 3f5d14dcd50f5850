"""What a session has on an authority's disk: a folder, named by the session's id."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shieldfl.authority.message import Message
from shieldfl.authority.private_file import disk_errors_as, write_private_file
from shieldfl.authority_service.session_request import SESSION_ID_BYTES, SessionRequest
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError
from shieldfl.rounds.public_setup import PublicSetup

_NAMES_DOMAIN = b"shieldfl enrolled names 1\0"


@dataclass(frozen=True)
class SessionFacts:
    """What a session keeps for good: what an operator may look at, which aggregator began it, and who may enrol."""

    method: str
    clients: int
    rounds: int
    values: int
    aggregator: str
    registered_clients_only: bool
    carries_totals: bool
    """Whether totals come here to be opened."""
    encrypts_singly: bool
    """Whether a value may have a ciphertext of its own, of hundreds of bytes."""


def _disk() -> contextlib.AbstractContextManager[None]:
    return disk_errors_as(
        "the session's files cannot be read or kept: nothing is answered before the disk is mended"
    )


class SessionFolder:
    """The request, the signed set-up, facts, the authority's store, and its state, sealed, with who enrolled.

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
        """Have nothing answered any more. Raises DataError."""
        with _disk():
            write_private_file(self._ended, b"")

    def check_running(self) -> None:
        """Raise PolicyError for a session that is not, or was ended."""
        if len(self.path.name) != 2 * SESSION_ID_BYTES or not self.is_begun:
            raise PolicyError("this authority has no such session: begin one")
        if self.is_ended:
            raise PolicyError("this session was ended by the authority's operator: begin another one")

    def make(self) -> None:
        """Make the folder; what an attempt has left that did not come to a session is removed. Raises DataError."""
        self.remove()
        with _disk():
            self.path.mkdir(mode=0o700)

    def remove(self) -> None:
        """Remove what did not come to a session."""
        shutil.rmtree(self.path, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what writing was cut off by the end of a process. Raises DataError."""
        with _disk():
            for name in (self._request, self._setup, self._facts, self._state):
                for path in self.path.glob(f"{name.name}.????????"):
                    path.unlink(missing_ok=True)

    def write(self, request: SessionRequest, setup: Message, facts: SessionFacts) -> None:
        """Write what stays as it is. Raises DataError."""
        with _disk():
            write_private_file(self._request, request.to_message().to_bytes())
            write_private_file(self._setup, setup.to_bytes())
            write_private_file(self._facts, msgspec.json.encode(facts))

    def request(self) -> SessionRequest:
        """Return what the session was begun with. Raises DataError, WireFormatError."""
        with _disk():
            content = self._request.read_bytes()
        return SessionRequest.from_message(Message.from_bytes(content))

    def setup(self) -> tuple[Message, PublicSetup]:
        """Return the public set-up: as it was signed, and read. Raises DataError, WireFormatError."""
        with _disk():
            signed = Message.from_bytes(self._setup.read_bytes())
        return signed, PublicSetup.trusted(bytes(signed["setup"]))

    def facts(self) -> SessionFacts:
        """Return the facts. Raises DataError, WireFormatError."""
        try:
            return msgspec.json.decode(self.facts_as_written(), type=SessionFacts)
        except msgspec.MsgspecError as error:
            raise WireFormatError(f"{self._facts} does not say what the session is: restore it") from error

    def facts_as_written(self) -> bytes:
        """Return their bytes, to which the state is bound. Raises DataError."""
        with _disk():
            return self._facts.read_bytes()

    def state(self, key: bytes) -> tuple[bytes, dict[int, str]]:
        """Return the authority's state, sealed under the key, and who enrolled as which client.

        Raises DataError, and KeyMismatchError for another key's, or one that was altered.
        """
        with _disk():
            message = Message.from_bytes(self._state.read_bytes())
        names = bytes(message["names"])
        if not hmac.compare_digest(_mac(key, names, message["state"]), bytes(message["mac"])):
            raise KeyMismatchError(
                "the session's state, its facts or its names were altered: restore the folder"
            )
        return bytes(message["state"]), msgspec.json.decode(names, type=dict[int, str])

    def write_state(self, state: bytes, names: dict[int, str], key: bytes) -> None:
        """Write the authority's state, and who enrolled. Raises DataError where the disk does not take it."""
        encoded = msgspec.json.encode(names)
        message = Message({"state": state, "names": encoded, "mac": _mac(key, encoded, state)})
        with _disk():
            write_private_file(self._state, message.to_bytes())


def _mac(key: bytes, names: bytes, state: bytes | memoryview) -> bytes:
    return hmac.digest(key, _NAMES_DOMAIN + hashlib.sha256(state).digest() + names, "sha256")
