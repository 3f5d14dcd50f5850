"""What makes a key authority itself: what it signs with, what secrets are sealed to, what opens its answers."""

from __future__ import annotations

import hmac
import secrets
from typing import Any

from shieldfl.array_view import Buffer
from shieldfl.errors import KeyMismatchError, ParameterError
from shieldfl.installing import cryptographic
from shieldfl.scheme.enrolment import SECRET_BYTES, AuthorityIdentity, EnrolmentRequest, hpke, hpke_suite
from shieldfl.stateful import Uncopied

__all__ = ["AuthoritySecrets"]

_SIGNING_BYTES = 32
_MLKEM_BYTES = 64
_X25519_BYTES = 32
_OPENING_DOMAIN = b"shieldfl opening key 1\0"
_BYTES = _SIGNING_BYTES + _MLKEM_BYTES + _X25519_BYTES + 2 * SECRET_BYTES


class AuthoritySecrets(Uncopied):
    """Drawn from the operating system, or taken from :meth:`export`. Raises ParameterError; ShieldError."""

    _why_uncopied = "hold secret keys and are neither copied nor pickled"

    def __init__(self, exported: bytes | None = None) -> None:
        ed25519, mlkem, x25519 = (
            cryptographic(f"asymmetric.{name}", "key authorities") for name in ("ed25519", "mlkem", "x25519")
        )
        if exported is None:
            self.signing_key: Any = ed25519.Ed25519PrivateKey.generate()
            self._mlkem = mlkem.MLKEM768PrivateKey.generate()
            self._x25519 = x25519.X25519PrivateKey.generate()
            self._opening_root = secrets.token_bytes(SECRET_BYTES)
            self.store_key = secrets.token_bytes(SECRET_BYTES)
        else:
            if len(exported) != _BYTES:
                raise ParameterError(f"an authority's secrets have {_BYTES} bytes")
            lengths = (_SIGNING_BYTES, _MLKEM_BYTES, _X25519_BYTES, SECRET_BYTES, SECRET_BYTES)
            ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
            parts = [exported[end - length : end] for end, length in zip(ends, lengths, strict=True)]
            self.signing_key = ed25519.Ed25519PrivateKey.from_private_bytes(parts[0])
            self._mlkem = mlkem.MLKEM768PrivateKey.from_seed_bytes(parts[1])
            self._x25519 = x25519.X25519PrivateKey.from_private_bytes(parts[2])
            self._opening_root, self.store_key = parts[3:]
        enrolment_key = (
            self._mlkem.public_key().public_bytes_raw() + self._x25519.public_key().public_bytes_raw()
        )
        self.identity = AuthorityIdentity(self.signing_key.public_key().public_bytes_raw(), enrolment_key)
        """Of these, what is public."""

    def export(self) -> bytes:
        """Return all of them, for a sealed file."""
        return bytes(
            self.signing_key.private_bytes_raw()
            + self._mlkem.private_bytes_raw()
            + self._x25519.private_bytes_raw()
            + self._opening_root
            + self.store_key
        )

    def opening_key(self, manifest_digest: bytes) -> bytes:
        """Return what opens the answers of the sessions with this manifest, and of no others: 32 bytes, secret."""
        return hmac.digest(self._opening_root, _OPENING_DOMAIN + manifest_digest, "sha256")

    def unseal(self, request: Buffer, session: bytes) -> tuple[int | str, bytes]:
        """Return who asks to be enrolled in a session, and the secret that it shares from now on, 32 bytes.

        Raises WireFormatError for what is no request, KeyMismatchError for one that was sealed to another authority or
        for another session, or was altered.
        """
        asked = EnrolmentRequest.from_bytes(request)
        private_key = hpke().MLKEM768X25519PrivateKey(self._mlkem, self._x25519)
        suite = hpke_suite()
        from cryptography.exceptions import InvalidTag

        try:
            secret = suite.decrypt(asked.sealed, private_key, asked.context(session, asked.client))
        except (InvalidTag, ValueError):  # ValueError: too short
            secret = b""
        if len(secret) != SECRET_BYTES:
            raise KeyMismatchError(
                "the request was sealed to another key authority or for another session, or was altered: make it anew "
                "from this session's public key"
            )
        return asked.client, bytes(secret)
