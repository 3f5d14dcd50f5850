"""HTTPS server of a served authority: certificates on both sides, figures, and protection from floods."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import resource
import signal
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from shieldfl.authority.message import Message
from shieldfl.authority_service.served_session import CALLS, LEAST_BODY_BYTES, LOG
from shieldfl.authority_service.service import AuthorityService
from shieldfl.errors import (
    DataError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    ShieldError,
    UnreachableError,
    WireFormatError,
)

_HANDSHAKE_SECONDS = 10.0
_IDLE_SECONDS = 30.0  # for a request's head to arrive, after the handshake or the last answer
_GOODBYE_SECONDS = 2.0  # for the peer to end TLS, or to send the rest of an unread body
_NO_DESCRIPTOR_SECONDS = 0.5
_OTHER_DESCRIPTORS = 512  # for stores and whatever else is no connection


def connection_limit(asked: int) -> int:
    """Raise the process's limit of file descriptors for ``asked`` connections; return how many fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = asked + _OTHER_DESCRIPTORS
    if resource.RLIM_INFINITY not in (soft, hard):
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return min(asked, max(wanted - _OTHER_DESCRIPTORS, wanted // 2))


class _Connection(web.RequestHandler):
    __slots__ = ("_served", "over")

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop, served: _Server) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_GOODBYE_SECONDS,
            auto_decompress=False,
        )
        self._served = served
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
        """Refuse bytes that are no request, without repeating them: no peer chooses words of a log."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        self._served.tell("unknown", {"status": 400, "reason": type(exc).__name__}, "HTTPError")
        response = web.Response(status=status, text="the key authority cannot read this request\n")
        response.force_close()
        return response


class Connections:
    """The connections of one server, limited in number, for all addresses and for each, and in time.

    At a limit, the connection that has been longest in its handshake makes way for a new one: a peer without
    a certificate takes nobody's place. If none is in its handshake, the new one is closed. Without TLS, where
    ``tls`` is None and no peer shows a certificate, the oldest connection makes way.
    """

    def __init__(
        self,
        server: web.Server,
        tls: ssl.SSLContext | None,
        most: int,
        most_of_an_address: int,
        served: _Server,
    ) -> None:
        self._server, self._tls, self._served = server, tls, served
        self._most, self._most_of_an_address = most, most_of_an_address
        self._open: collections.Counter[str] = collections.Counter()  # by address
        # Addresses of connections that have shown no certificate, the oldest first.
        self._greeting: dict[asyncio.Task[None], str] = {}
        self._accepting: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept at an address, or at all addresses of a name; return the first of them. Raises OSError."""
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
                    # Most likely no descriptor is free. Asking again at once would keep the process busy.
                    self._served.refuse("no file descriptor is free")
                    await asyncio.sleep(_NO_DESCRIPTOR_SECONDS)
                    continue
                if self._has_room(address):
                    task = asyncio.create_task(self._serve(accepted, address))
                    self._greeting[task] = address
                    self._serving.add(task)
                    task.add_done_callback(self._serving.discard)
                else:
                    accepted.close()
                    self._served.refuse("too many connections")
                await asyncio.sleep(0)  # so that open connections are served while many new ones come

    def _has_room(self, address: str) -> bool:
        """Return whether one more connection has room, once the oldest unidentified one has made way."""
        is_full = self._open.total() >= self._most
        if not is_full and self._open[address] < self._most_of_an_address:
            return True
        for task, whose in self._greeting.items():
            if is_full or whose == address:
                del self._greeting[task]
                task.cancel()
                self._served.refuse("made way for a newer one")
                return True
        return False

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        loop, own = asyncio.get_running_loop(), asyncio.current_task()
        assert own is not None
        timeouts = {}
        if self._tls is not None:
            timeouts = {"ssl_handshake_timeout": _HANDSHAKE_SECONDS, "ssl_shutdown_timeout": _GOODBYE_SECONDS}
        self._open[address] += 1
        transport: asyncio.Transport | None = None
        try:
            transport, connection = await loop.connect_accepted_socket(
                lambda: _Connection(self._server, loop, self._served), accepted, ssl=self._tls, **timeouts
            )
            if self._tls is not None:
                self._greeting.pop(own, None)
            if connection.transport is None and not connection.over.done():
                self._served.refuse("left in its handshake")
            else:
                await connection.over
        except asyncio.CancelledError:
            if transport is not None:
                transport.abort()
            raise
        except OSError:
            self._served.refuse("no handshake with a certificate that is believed")
        finally:
            accepted.close()
            self._greeting.pop(own, None)
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]


BODY_SECONDS = 60.0  # for a body to arrive, and for an answer to be taken
_SMALL_BYTES = 2**17  # bytes of each body that do not count: large bodies do not delay answers to lists


class RequestBodies:
    """Limits the bytes of all request bodies in progress; a larger body is read while it is alone."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.counted_bytes = 0

    @contextlib.asynccontextmanager
    async def read(self, request: web.Request, most_bytes: int) -> AsyncIterator[bytes]:
        """Yield a request's body, which counts until the end of ``async with``.

        Raises ParameterError, UnreachableError.
        """
        if "Content-Encoding" in request.headers:
            raise ParameterError("the call's body has a Content-Encoding: send it uncompressed")
        body, own = bytearray(), 0
        try:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    async for chunk in request.content.iter_chunked(2**16):
                        body += chunk
                        if len(body) > most_bytes:
                            raise ParameterError(
                                f"the call's body has more than {most_bytes:,} bytes, which is its limit"
                            )
                        more = max(len(body) - _SMALL_BYTES, 0) - own
                        own, self.counted_bytes = own + more, self.counted_bytes + more
                        if own < self.counted_bytes > self._most:
                            raise UnreachableError(
                                "the key authority is busy with other requests: repeat the call later"
                            )
            except TimeoutError:
                raise ParameterError(
                    f"the call's body did not arrive within {BODY_SECONDS:.0f} seconds"
                ) from None
            except UnreachableError:
                raise
            except (ConnectionError, web.HTTPException, aiohttp.ClientPayloadError) as error:
                raise ParameterError("the connection ended before the call's body did") from error
            whole = bytes(body)
            body.clear()
            yield whole
        finally:
            body.clear()  # at once, even if there are other references to it
            self.counted_bytes -= own


_WINDOW_SECONDS = 10.0
_MOST_ALIKE = 10  # refusals and errors of one kind, in a window


class LogLines(logging.Formatter):
    """Formats an event as a line of JSON: time in seconds since 1970, level, event and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        level, fields = record.levelname.lower(), getattr(record, "fields", {})
        line = {"time": round(record.created, 3), "level": level, "event": record.getMessage(), **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class FewAlike(logging.Filter):
    """Passes ten refusals or errors of a kind in ten seconds; the next says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        # By kind: when its window began, and how many records were in it.
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        fields = getattr(record, "fields", {})
        if record.levelno < logging.WARNING and fields.get("result", "ok") == "ok":
            return True
        # No peer chooses these words, so there are few kinds.
        kind = (record.name, record.msg, *map(fields.get, ("call", "result", "reason")))
        now = time.monotonic()
        begun, count = self._seen.get(kind, (now, 0))
        if now - begun > _WINDOW_SECONDS:
            if count > _MOST_ALIKE:
                record.fields = {**fields, "left_out_before": count - _MOST_ALIKE}
            begun, count = now, 0
        self._seen[kind] = begun, count + 1
        return count < _MOST_ALIKE


STATUS: dict[int, tuple[type[ShieldError], ...]] = {
    403: (PolicyError, KeyMismatchError),
    400: (WireFormatError, ParameterError),
    503: (DataError, UnreachableError),
    422: (ShieldError,),
}
"""Kinds of errors by HTTP status; an error gets the first status that has its kind."""

_MOST_OFFER_BYTES = 64
_RETRY_SECONDS = 1
_SHUTDOWN_SECONDS = 1.5  # for calls in progress until they are cut off, and as long again to notice that
_MOST_READERS = 32  # connections for health and figures at once
_THREADS = 4  # more of them wait for one another, and answer less; one aggregator's calls leave one free

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


Address = tuple[str, int]
"""Host and port; port 0 takes a free one."""


class _Server:
    def __init__(self, service: AuthorityService) -> None:
        self._service = service
        self._registry = own = CollectorRegistry()
        self._calls = Counter("shieldfl_calls", "Calls that were answered.", ["call", "result"], registry=own)
        self._seconds = Histogram(
            "shieldfl_call_seconds", "Time of a call, its body included.", ["call"], registry=own
        )
        self._refused = Counter(
            "shieldfl_refused_connections", "Connections closed before a request.", ["reason"], registry=own
        )
        sessions = Gauge("shieldfl_open_sessions", "Sessions that this process has opened.", registry=own)
        sessions.set_function(lambda: service.open_sessions)
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="authority")
        self.working: set[Future[Any]] = set()
        self._bodies = RequestBodies(service.policy.most_bytes_in_progress)
        # One call at a time of each session takes a thread, and an aggregator's calls leave one to others.
        self._turns: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    def applications(self) -> tuple[web.Application, web.Application]:
        main, beside = web.Application(middlewares=[self._told]), web.Application()
        service, most = self._service, LEAST_BODY_BYTES + 4 * self._service.policy.most_values
        main.router.add_post("/v1/offers", self._asked("offer", _MOST_OFFER_BYTES, service.offer))
        main.router.add_post("/v1/sessions", self._asked("begin-session", most, service.begin_session))
        main.router.add_post("/v1/sessions/{session:[0-9a-f]{32}}/{call}", self._call)
        beside.router.add_get("/{figures:health|metrics}", self._figures)
        return main, beside

    async def _figures(self, request: web.Request) -> web.Response:
        body = b"ok\n" if request.path == "/health" else generate_latest(self._registry)
        return web.Response(body=body, content_type="text/plain")

    @web.middleware
    async def _told(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Log requests that are no calls, and send the answer to a peer that takes it in time."""
        try:
            response = await handler(request)
        except web.HTTPException as error:
            self.tell("unknown", {"status": error.status}, "HTTPError")
            raise
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await response.prepare(request)
                await response.write_eof()
        except ConnectionError:
            pass  # the peer has left
        except TimeoutError:
            self.refuse("did not take its answer")
            if request.transport is not None:
                request.transport.abort()
        return response

    def refuse(self, reason: str) -> None:
        self._refused.labels(reason).inc()
        LOG.info("connection refused", extra={"fields": {"reason": reason, "result": "refused"}})

    def _asked(self, call: str, most_bytes: int, work: Callable[[Message, str], Message]) -> Handler:
        """Return the handler of a call without a session: ``work`` gets the body and the caller's name."""

        async def answer(request: web.Request, name: str) -> tuple[int, Message]:
            # An aggregator's calls run one after the other, so that other aggregators get their turn.
            async with (
                self._turn(f"{call} of {name}"),
                self._bodies.read(request, most_bytes) as body,
                self._turn(call),
            ):
                return len(body), await self._in_thread(lambda: work(Message.from_bytes(body), name))

        return partial(self._answered, call, {}, answer)

    async def _call(self, request: web.Request) -> web.Response:
        call, hexadecimal = request.match_info["call"], request.match_info["session"]
        number = bytes.fromhex(hexadecimal)

        async def answer(request: web.Request, name: str) -> tuple[int, Message]:
            async def in_turn(work: Callable[[], T]) -> T:
                # The session's turn first: calls that wait for it take no thread from other sessions.
                async with self._turn(hexadecimal), self._turn(f"threads of {name}", _THREADS - 1):
                    return await self._in_thread(work)

            limit, length = LEAST_BODY_BYTES, request.content_length
            if length is None or length > limit or not self._service.has_open(number, name):
                limit = await in_turn(lambda: self._service.most_body_bytes(number, name))
            # One body at a time, so that a session's bodies take no more memory than one.
            async with self._turn(f"body {hexadecimal}"), self._bodies.read(request, limit) as body:

                def carry_out() -> Message:
                    with self._service.session(number, name) as session:
                        return session.call(call, Message.from_bytes(body))

                return len(body), await in_turn(carry_out)

        told = call if call in CALLS else "unknown"
        return await self._answered(told, {"session": hexadecimal}, answer, request)

    def _turn(self, what: str, at_once: int = 1) -> asyncio.Semaphore:
        return self._turns.setdefault(what, asyncio.Semaphore(at_once))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # Other connections are served while this one waits for the disk.
        future = self.threads.submit(work)
        self.working.add(future)
        future.add_done_callback(self.working.discard)
        try:
            return await asyncio.wrap_future(future)
        finally:
            # An error refers to this frame and so, through the work, to a body, which must be freed at once.
            del future, work

    async def _answered(
        self,
        call: str,
        fields: dict[str, Any],
        answer: Callable[[web.Request, str], Awaitable[tuple[int, Message]]],
        request: web.Request,
    ) -> web.Response:
        begun, size = time.perf_counter(), 0
        result = "ok"
        try:
            size, reply = await answer(request, self._peer_of(request))
            response = web.Response(body=reply.to_bytes(), content_type="application/octet-stream")
        except ShieldError as error:
            result = type(error).__name__
            status = next(status for status, kinds in STATUS.items() if isinstance(error, kinds))
            text = str(error)
            if isinstance(error, DataError):
                # Only the operator may read which file it was.
                LOG.error("failed", extra={"fields": {"call": call, **fields, "message": text}})
                text = "the authority's disk or store failed, and nothing was answered: its log says more"
            response = web.json_response({"error": result, "message": text}, status=status)
            if status == web.HTTPServiceUnavailable.status_code:
                response.headers["Retry-After"] = str(_RETRY_SECONDS)
        except Exception:
            # The log says what it was; the answer does not.
            LOG.exception("failed", extra={"fields": {"call": call, **fields}})
            result = "InternalError"
            response = web.json_response(
                {"error": result, "message": "the authority failed: see its log"}, status=500
            )
        self.tell(call, fields, result, size, time.perf_counter() - begun)
        return response

    def tell(
        self, call: str, fields: dict[str, Any], result: str, size: int = 0, seconds: float = 0.0
    ) -> None:
        self._calls.labels(call, result).inc()
        self._seconds.labels(call).observe(seconds)
        facts = {"call": call, **fields, "result": result, "bytes": size, "seconds": round(seconds, 6)}
        LOG.info("call", extra={"fields": facts})

    def _peer_of(self, request: web.Request) -> str:
        """Return the name in the certificate that the aggregator has shown. Raises PolicyError."""
        assert request.transport is not None
        shown = request.transport.get_extra_info("ssl_object")
        subject = shown.getpeercert().get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        if len(names) != 1:
            raise PolicyError("the certificate has no common name, or several: it must name one aggregator")
        self._service.check_certificate(names[0], shown.getpeercert(binary_form=True))
        return str(names[0])


async def serve(
    service: AuthorityService,
    tls: ssl.SSLContext,
    address: Address,
    figures: Address | None,
    ready: Callable[[Address, Address | None], None],
    ended: Callable[[], Awaitable[object]] | None = None,
) -> bool:
    """Serve until SIGTERM or SIGINT, or ``ended``; calls in progress have some seconds then.

    Returns whether all were answered: otherwise a thread still works, and nobody gets its answer. ``figures``
    has no TLS.
    """
    server = _Server(service)
    runners, accepting = [], []
    # Handlers come first: a caller that is told of the server may stop it at once.
    if ended is None:
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        ended = told.wait
    policy = service.policy
    most = connection_limit(policy.most_connections)
    main, beside = server.applications()
    try:
        taken: list[Address | None] = []
        for application, where, context, limits in (
            (main, address, tls, (most, policy.most_connections_of_one_address)),
            (beside, figures, None, (_MOST_READERS, _MOST_READERS)),
        ):
            if where is None:
                taken.append(None)
                continue
            runner = web.AppRunner(application, shutdown_timeout=_SHUTDOWN_SECONDS)
            runners.append(runner)
            await runner.setup()
            assert runner.server is not None
            connections = Connections(runner.server, context, *limits, server)
            accepting.append(connections)
            taken.append(await connections.listen(*where))
        assert taken[0] is not None
        ready(taken[0], taken[1])
        await ended()
        LOG.info("stopping")
    finally:
        await asyncio.gather(*(connections.close() for connections in accepting))
        await asyncio.gather(*(runner.cleanup() for runner in runners))
        server.threads.shutdown(wait=False, cancel_futures=True)
    return not server.working
