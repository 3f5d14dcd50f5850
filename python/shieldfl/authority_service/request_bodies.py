"""Bodies of requests: no larger than a call takes, within their time, and not too many bytes of all together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from shieldfl.errors import ParameterError, UnreachableError

__all__ = ["BODY_SECONDS", "RequestBodies"]

BODY_SECONDS = 60.0
"""For a body to come, and for an answer to be taken."""
_SMALL_BYTES = 2**17
"""Of each body, that are not counted: large ones keep nobody from an answer to a list."""


class _TooLargeError(ParameterError):
    """A body is larger than any that the call takes; it was not read to its end."""


class _BusyError(UnreachableError):
    """Bodies of other requests take what this one would need; nothing was done."""


class RequestBodies:
    """All that are in progress: being read, waiting for their turn, or being answered.

    Parameters
    ----------
    most_bytes : of all together. One that is larger is read while there are no others.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.counted_bytes = 0
        """Of all, what is counted of each."""

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request, most_bytes: int) -> AsyncIterator[bytes]:
        """Yield a request's body, which counts until the end of ``async with``.

        Raises ParameterError for one that has more than ``most_bytes``, is compressed, is cut off or comes too slowly,
        and UnreachableError where there are too many bytes of others.
        """
        if "Content-Encoding" in request.headers:
            raise ParameterError("a call's body is sent as it is, and not compressed")
        body, own = bytearray(), 0
        try:
            async with _within_time():
                async for chunk in request.content.iter_chunked(2**16):
                    body += chunk
                    if len(body) > most_bytes:
                        raise _TooLargeError(
                            f"the call's body has more than the {most_bytes:,} bytes that any takes"
                        )
                    more = max(len(body) - _SMALL_BYTES, 0) - own
                    own, self.counted_bytes = own + more, self.counted_bytes + more
                    if own < self.counted_bytes > self._most:
                        raise _BusyError(
                            "the key authority has as many bytes of other requests in progress as it takes at once: "
                            "repeat the call in a while"
                        )
            whole = bytes(body)
            body.clear()
            yield whole
        finally:
            body.clear()  # at once, whoever still refers to this
            self.counted_bytes -= own


@contextlib.asynccontextmanager
async def _within_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            yield
    except TimeoutError:
        raise ParameterError(f"the call's body did not come within {BODY_SECONDS:.0f} seconds") from None
    except UnreachableError:
        raise
    except (ConnectionError, web.HTTPException, aiohttp.ClientPayloadError) as error:
        raise ParameterError("the connection ended before the call's body did") from error
