"""Accepting connections, so that whoever opens many of them, or says nothing, keeps nobody else out."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from aiohttp import web
from aiohttp.http import HttpProcessingError

__all__ = ["Connections", "connection_limit"]

_HANDSHAKE_SECONDS = 10.0
_IDLE_SECONDS = 30.0
"""Until a request's head is there: after the handshake, and after the answer before."""
_GOODBYE_SECONDS = 2.0
"""For the peer to end TLS, or the rest of a body that is not read."""
_NO_DESCRIPTOR_SECONDS = 0.5
_OTHER_DESCRIPTORS = 512
"""Of stores, files that are written, and everything else that is no connection."""


def connection_limit(asked: int) -> int:
    """Raise the process's limit of file descriptors for so many connections; return how many there is room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = asked + _OTHER_DESCRIPTORS
    if resource.RLIM_INFINITY not in (soft, hard):
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return min(asked, max(wanted - _OTHER_DESCRIPTORS, wanted // 2))


class _Connection(web.RequestHandler):
    """Tells when it is over, and what came over it that is no HTTP."""

    __slots__ = ("_malformed", "over")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, malformed: Callable[[str], None]
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_GOODBYE_SECONDS,
            auto_decompress=False,
        )
        self._malformed = malformed
        self.over: asyncio.Future[None] = loop.create_future()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if not self.over.done():
            self.over.set_result(None)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse what is no request. Its bytes are not repeated: a log is for words that no peer has chosen."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        self._malformed(type(exc).__name__)
        response = web.Response(status=status, text="this is no request that the key authority can read\n")
        response.force_close()
        return response


class Connections:
    """Those of one server: accepted at its sockets, as many as there may be, and each within its time.

    Where there are as many as may be, of all or of one address, the one that has been in its handshake longest makes
    way for a new one: who shows no certificate takes nobody's place. Is there none, the new one is closed. In the
    clear, where nobody shows one, the oldest makes way.

    Parameters
    ----------
    server : aiohttp's.
    tls : of both sides; None for connections in the clear.
    most, most_of_an_address : at once.
    refused : is told why a connection was, in a word or two.
    malformed : is told what kind of error a message is that is no HTTP.
    """

    def __init__(
        self,
        server: web.Server,
        tls: ssl.SSLContext | None,
        most: int,
        most_of_an_address: int,
        refused: Callable[[str], None],
        malformed: Callable[[str], None],
    ) -> None:
        self._server = server
        self._tls = tls
        self._most = most
        self._most_of_an_address = most_of_an_address
        self._refused = refused
        self._malformed = malformed
        self._open: Counter[str] = Counter()
        """By address."""
        self._greeting: dict[asyncio.Task[None], str] = {}
        """Those that have shown no certificate, the oldest first, and their addresses."""
        self._accepting: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept at an address, or all that a name has; return the first of them. Raises OSError."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        taken = []
        for family, _, _, _, address in dict.fromkeys(found):
            listening = socket.create_server(address[:2], family=family)
            listening.setblocking(False)
            taken.append(listening.getsockname())
            self._accepting.append(asyncio.create_task(self._accept(listening)))
        return str(taken[0][0]), int(taken[0][1])

    async def close(self) -> None:
        """Accept no more, and give those up that are in their handshakes; the others are the server's to end."""
        ending = [*self._accepting, *self._greeting]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        with listening:
            while True:
                try:
                    accepted, (address, *_) = await asyncio.get_running_loop().sock_accept(listening)
                except OSError:
                    # No descriptor is free, most likely; to ask again at once would be all that this process does.
                    self._refused("no file descriptor is free")
                    await asyncio.sleep(_NO_DESCRIPTOR_SECONDS)
                    continue
                if self._has_room(address):
                    task = asyncio.create_task(self._serve(accepted, address))
                    self._greeting[task] = address
                    self._serving.add(task)
                    task.add_done_callback(self._serving.discard)
                else:
                    accepted.close()
                    self._refused("too many connections")
                await asyncio.sleep(0)  # where many come, those that are there go on, too

    def _has_room(self, address: str) -> bool:
        """Say whether there is room for one more, once the oldest that has not said who it is has made way."""
        is_full = self._open.total() >= self._most
        if not is_full and self._open[address] < self._most_of_an_address:
            return True
        for task, whose in self._greeting.items():
            if is_full or whose == address:
                del self._greeting[task]
                task.cancel()
                self._refused("made way for a newer one")
                return True
        return False

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        timeouts = (
            {}
            if self._tls is None
            else {"ssl_handshake_timeout": _HANDSHAKE_SECONDS, "ssl_shutdown_timeout": _GOODBYE_SECONDS}
        )
        self._open[address] += 1
        transport: asyncio.Transport | None = None
        try:
            transport, connection = await loop.connect_accepted_socket(
                lambda: _Connection(self._server, loop, self._malformed), accepted, ssl=self._tls, **timeouts
            )
            if self._tls is not None:
                self._greeting.pop(_current(), None)
            if connection.transport is None and not connection.over.done():
                self._refused("left in its handshake")
            else:
                await connection.over
        except asyncio.CancelledError:
            if transport is not None:
                transport.abort()
            raise
        except OSError:
            self._refused("no handshake with a certificate that is believed")
        finally:
            accepted.close()
            self._greeting.pop(_current(), None)
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]


def _current() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task
