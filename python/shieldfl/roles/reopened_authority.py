"""The key authority of clients that enrol, made again in another process: of its key file and its store."""

from __future__ import annotations

import struct
from os import PathLike
from typing import Any

from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.roles.authority_secrets import EXPORTED_BYTES, AuthoritySecrets
from shieldfl.roles.authority_store import AuthorityStore
from shieldfl.roles.key_file import Contents
from shieldfl.roles.sum_key_authority import SETTLED, SumKeyAuthority
from shieldfl.scheme.enrolment import AuthorityGroup

__all__ = ["reopened_authority"]


def reopened_authority(
    contents: Contents,
    public_key: Any,
    store: str | PathLike[str],
    *,
    threads: int | None,
    at_least: tuple[int, int],
    restored: bool,
) -> SumKeyAuthority[Any]:
    """Return the authority that goes on from a store.

    Parameters
    ----------
    contents, public_key : of its key file; the secret is overwritten.
    store, at_least, restored : as :class:`AuthorityStore` has them. With a restored one it begins a new session.
    threads : None for as many as the work is worth.

    Raises WireFormatError for a key file without such secrets, PolicyError for one of several authorities with a store
    that was restored and for a store that does not have the session, and what the store raises.
    """
    try:
        owner = AuthoritySecrets(bytes(contents.secret[:EXPORTED_BYTES]))
        (most_values,) = SETTLED.unpack_from(contents.secret, EXPORTED_BYTES)
        group = bytes(contents.secret[EXPORTED_BYTES + SETTLED.size :])
    except (ParameterError, ValueError, struct.error):
        raise WireFormatError("the key file has no secrets of an authority that clients enrol with") from None
    finally:
        contents.secret[:] = bytes(len(contents.secret))
    if group and restored:
        raise PolicyError(
            "several authorities begin a new session together: open the store with restored=True, and settle "
            "one by session_key, in which the group says the new epoch"
        )
    identity = AuthorityGroup.from_bytes(group) if group else owner.identity
    memory = AuthorityStore(store, owner.store_key, owner.store_id, at_least=at_least, restored=restored)
    try:
        if not restored and not memory.has_session(public_key.id):
            # A session that is begun here would forget what another copy of the store has answered in it.
            raise PolicyError(
                "the store does not have the session of this key file: open the store that it was saved beside, or, if "
                "that is lost, begin a new session with restored=True"
            )
        return SumKeyAuthority(
            public_key.parameters,
            contents.min_clients,
            threads=threads,
            weight_bounds=contents.weight_bounds,
            most_values=most_values,
            owner=owner,
            store=memory,
            public_key=None if restored else public_key.with_identity(identity),
        )
    except BaseException:
        memory.close()
        raise
