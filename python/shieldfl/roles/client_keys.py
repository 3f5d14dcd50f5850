"""A client's own keys, where it enrols: one for each purpose, moved on by the round."""

from __future__ import annotations

from typing import Any, ClassVar

from shieldfl.array_view import Buffer
from shieldfl.errors import ShieldError
from shieldfl.roles.round_key_check import RoundKeyCheck
from shieldfl.roles.shared_secrets import SharedSecrets, check_shared, read_grants
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import Stateful, Uncopied, refuse_unless

__all__ = ["ClientKeys"]


class ClientKeys(Stateful, Uncopied):
    """Drawn by the client itself, in which nobody but the key authority, to whom it is sealed, has a share.

    Parameters
    ----------
    check : of the federation, with the session's digest.
    client : the client's number.
    """

    _why_uncopied = "hold a client's secrets and are neither copied nor pickled"

    changes: ClassVar = {
        "request": bytes,
        "_held": dict[str, tuple[int, bytes]],
        "_grant_key": bytes,
    }

    def __init__(self, check: RoundKeyCheck, client: int) -> None:
        self._check = check
        self._client = client
        shared = SharedSecrets(check, client)
        self._keys: dict[str, Any] = {
            purpose: scheme_of(own).ClientKey.of_secret(check.session_key(purpose), client, shared.drawn)
            for purpose, own in check.parameters.items()
        }
        self._grant_key = shared.grant_key
        self.request = shared.request
        """What enrols the client, of each authority a piece for it alone to read."""

    @property
    def _held(self) -> dict[str, tuple[int, bytes]]:
        return {purpose: (key.round, bytes(key.export_secret())) for purpose, key in self._keys.items()}

    @_held.setter
    def _held(self, held: dict[str, tuple[int, bytes]]) -> None:
        refuse_unless(held.keys() == self._check.parameters.keys())
        try:
            self._keys = {
                purpose: scheme_of(self._check.parameters[purpose]).ClientKey(
                    self._check.session_key(purpose), self._client, secret, round_number
                )
                for purpose, (round_number, secret) in held.items()
            }
        except ShieldError:
            refuse_unless(False)

    def check_changed(self) -> None:
        """Raise WireFormatError for keys at different rounds, or the request of another client."""
        super().check_changed()
        refuse_unless(len({key.round for key in self._keys.values()}) == 1)
        check_shared(self._check, self._client, self._grant_key, self.request)

    @property
    def round(self) -> int:
        """The round that the keys stand at; what opens earlier ones is overwritten."""
        return max(int(key.round) for key in self._keys.values())

    def begin_round(self, round_number: int) -> None:
        """Move all keys on to a round. Raises PolicyError for one that is over or too far ahead."""
        for key in self._keys.values():
            key.advance_to(round_number)

    def granted(self, grant: Buffer) -> bytes:
        """Return what opens the authority's answers; secret. Raises KeyMismatchError for another client's grant."""
        return read_grants(self._check, self._grant_key, grant)

    def key(self, purpose: str) -> Any:
        """Return the ``ClientKey`` for a purpose."""
        return self._keys[purpose]
