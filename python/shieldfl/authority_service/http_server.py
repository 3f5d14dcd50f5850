"""A served authority on the network: HTTPS with certificates on both sides, beside it health and figures."""

from __future__ import annotations

import asyncio
import signal
import ssl
import time
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from shieldfl.authority_service.calls import CALLS, answered
from shieldfl.authority_service.connections import Connections, connection_limit
from shieldfl.authority_service.request_bodies import BODY_SECONDS, RequestBodies
from shieldfl.authority_service.served_session import LOG
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
from shieldfl.roles.message import Message

__all__ = ["STATUS", "Address", "serve"]

STATUS: tuple[tuple[type[ShieldError], int], ...] = (
    (PolicyError, 403),
    (KeyMismatchError, 403),
    (WireFormatError, 400),
    (ParameterError, 400),
    (DataError, 503),
    (UnreachableError, 503),
    (ShieldError, 422),
)
"""The status that an error is answered with: of the first class that it is of."""

_MOST_OFFER_BYTES = 64
_RETRY_SECONDS = 1
"""For what may go by itself."""
_SHUTDOWN_SECONDS = 1.5
"""That what is being answered has, before it is cut off, and as long again to notice."""
_MOST_READERS = 32
"""Of health and figures, at once."""
_THREADS = 8

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Address:
    """Where to listen. Port 0 takes one that is free."""

    host: str
    port: int


class _Figures:
    """What a monitoring system reads, as Prometheus' text."""

    def __init__(self, service: AuthorityService) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self.calls = Counter("shieldfl_calls", "Calls that were answered.", ["call", "result"], registry=own)
        self.seconds = Histogram(
            "shieldfl_call_seconds", "Of a call, its body included.", ["call"], registry=own
        )
        self.refused = Counter(
            "shieldfl_refused_connections", "Connections that came to no request.", ["reason"], registry=own
        )
        sessions = Gauge("shieldfl_open_sessions", "Sessions that this process has opened.", registry=own)
        sessions.set_function(lambda: service.open_sessions)


class _Server:
    def __init__(self, service: AuthorityService) -> None:
        self._service = service
        self._figures = _Figures(service)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="authority")
        self._working: set[Future[Any]] = set()
        self._bodies = RequestBodies(service.policy.most_bytes_in_progress)
        # Of each session one call at a time takes a thread, so that none takes those of others.
        self._turns: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    def application(self) -> web.Application:
        """Return what answers aggregators."""
        application = web.Application(middlewares=[self._told])
        application.router.add_post("/v1/offers", self._offer)
        application.router.add_post("/v1/sessions", self._begin_session)
        application.router.add_post("/v1/sessions/{session:[0-9a-f]{32}}/{call}", self._call)
        return application

    def figures(self) -> web.Application:
        """Return what tells that the service lives, and how it does."""
        application = web.Application()
        application.router.add_get("/health", self._health)
        application.router.add_get("/metrics", self._metrics)
        return application

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._figures.registry), content_type="text/plain")

    @web.middleware
    async def _told(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tell of what no call came of; send the answer to whoever takes it in time."""
        try:
            response = await handler(request)
        except web.HTTPException as error:
            self._tell("unknown", {"status": error.status}, "HTTPError", 0, 0.0)
            raise
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await response.prepare(request)
                await response.write_eof()
        except ConnectionError:
            pass  # nobody is there any more to take it
        except TimeoutError:
            self.refuse("did not take its answer")
            if request.transport is not None:
                request.transport.abort()
        return response

    def refuse(self, reason: str) -> None:
        """Tell of a connection that came to no request, or was ended within one."""
        self._figures.refused.labels(reason).inc()
        LOG.info("connection refused", extra={"fields": {"reason": reason, "result": "refused"}})

    def tell_malformed(self, error: str) -> None:
        """Tell of what is no HTTP."""
        self._tell("unknown", {"status": 400, "reason": error}, "HTTPError", 0, 0.0)

    async def _offer(self, request: web.Request) -> web.Response:
        async def answer() -> tuple[int, Message]:
            name = self._peer_of(request)
            async with (
                self._turn(f"offer to {name}"),
                self._bodies.read(request, _MOST_OFFER_BYTES) as body,
            ):
                return len(body), await self._in_thread(
                    lambda: self._service.offer(Message.from_bytes(body), name)
                )

        return await self._answered("offer", {}, answer)

    async def _begin_session(self, request: web.Request) -> web.Response:
        async def answer() -> tuple[int, Message]:
            name = self._peer_of(request)
            # An aggregator's one after the other, whatever it asks for: the next turn is another one's.
            async with (
                self._turn(f"request of {name}"),
                self._bodies.read(request, self._service.most_request_bytes) as body,
                self._turn("begin-session"),
            ):
                return len(body), await self._in_thread(
                    lambda: self._service.begin_session(Message.from_bytes(body), name)
                )

        return await self._answered("begin-session", {}, answer)

    async def _call(self, request: web.Request) -> web.Response:
        call, hexadecimal = request.match_info["call"], request.match_info["session"]
        number = bytes.fromhex(hexadecimal)

        async def answer() -> tuple[int, Message]:
            name = self._peer_of(request)
            async with self._turn(hexadecimal):
                limit = await self._in_thread(lambda: self._service.most_body_bytes(number, name))
            # One at a time: together, too, they are no larger than one.
            async with self._turn(f"body {hexadecimal}"), self._bodies.read(request, limit) as body:

                def carry_out() -> Message:
                    with self._service.session(number, name) as session:
                        return answered(session, call, Message.from_bytes(body))

                async with self._turn(hexadecimal):
                    return len(body), await self._in_thread(carry_out)

        return await self._answered(call if call in CALLS else "unknown", {"session": hexadecimal}, answer)

    def _turn(self, session: str) -> asyncio.Semaphore:
        return self._turns.setdefault(session, asyncio.Semaphore(1))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # Other connections are served while this one waits for the disk.
        future = self._threads.submit(work)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        try:
            return await asyncio.wrap_future(future)
        finally:
            # An error in it refers to this frame, and, by the work, to a body, which has to go at once.
            del future, work

    async def _answered(
        self, call: str, fields: dict[str, Any], answer: Callable[[], Awaitable[tuple[int, Message]]]
    ) -> web.Response:
        begun, size = time.perf_counter(), 0
        try:
            size, reply = await answer()
            result, response = (
                "ok",
                web.Response(body=reply.to_bytes(), content_type="application/octet-stream"),
            )
        except ShieldError as error:
            result = _public_name(error)
            status = next(status for kind, status in STATUS if isinstance(error, kind))
            text = str(error)
            if isinstance(error, DataError):
                # Which of its files, is for the operator.
                LOG.error("failed", extra={"fields": {"call": call, **fields, "message": text}})
                text = "the authority's disk or store failed, and nothing was answered: its log says more"
            response = web.json_response({"error": result, "message": text}, status=status)
            if status == web.HTTPServiceUnavailable.status_code:
                response.headers["Retry-After"] = str(_RETRY_SECONDS)
        except Exception:
            # What it is stands in the log, and not in an answer.
            LOG.exception("failed", extra={"fields": {"call": call, **fields}})
            result = "InternalError"
            response = web.json_response({"error": result, "message": "see the authority's log"}, status=500)
        self._tell(call, fields, result, size, time.perf_counter() - begun)
        return response

    def _tell(self, call: str, fields: dict[str, Any], result: str, size: int, seconds: float) -> None:
        self._figures.calls.labels(call, result).inc()
        self._figures.seconds.labels(call).observe(seconds)
        facts = {"call": call, **fields, "result": result, "bytes": size, "seconds": round(seconds, 6)}
        LOG.info("call", extra={"fields": facts})

    def _peer_of(self, request: web.Request) -> str:
        """Return to whom the certificate was issued that the aggregator has shown. Raises PolicyError."""
        assert request.transport is not None
        shown = request.transport.get_extra_info("ssl_object")
        subject = shown.getpeercert().get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        if len(names) != 1:
            raise PolicyError("the certificate is issued to nobody by name, or to several")
        self._service.check_certificate(names[0], shown.getpeercert(binary_form=True))
        return str(names[0])

    def close(self) -> bool:
        """Begin nothing more, and say whether nothing is being answered any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not self._working


def _public_name(error: ShieldError) -> str:
    """Return the name of the class that the other side raises."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == ShieldError.__module__)


async def serve(
    service: AuthorityService,
    tls: ssl.SSLContext,
    address: Address,
    figures: Address | None,
    ready: Callable[[Address, Address | None], None],
    ended: Callable[[], Awaitable[object]] | None = None,
) -> bool:
    """Serve until SIGTERM or SIGINT; what is being answered then has some seconds to be answered first.

    Returns whether it was: else a thread of this process is still at it, whose answer nobody gets.

    Parameters
    ----------
    service : which is not closed.
    tls : of both sides, see :func:`~shieldfl.authority_service.certificates.server_tls`.
    address, figures : where aggregators come to, and where, without TLS, health and figures are read; None for nowhere.
    ready : told once of the addresses that are listened at.
    ended : waited for instead of a signal.
    """
    server = _Server(service)
    runners, accepting = [], []
    # Before anybody is told that it serves, and may tell it to stop.
    wait = ended or _signalled()
    policy = service.policy
    most = connection_limit(policy.most_connections)
    try:
        taken: list[Address | None] = []
        for application, where, context, limits in (
            (server.application(), address, tls, (most, policy.most_connections_of_one_address)),
            (server.figures(), figures, None, (_MOST_READERS, _MOST_READERS)),
        ):
            if where is None:
                taken.append(None)
                continue
            runner = web.AppRunner(application, shutdown_timeout=_SHUTDOWN_SECONDS)
            runners.append(runner)
            await runner.setup()
            assert runner.server is not None
            connections = Connections(runner.server, context, *limits, server.refuse, server.tell_malformed)
            accepting.append(connections)
            taken.append(Address(*await connections.listen(where.host, where.port)))
        main, beside = taken
        assert main is not None
        ready(main, beside)
        await wait()
        LOG.info("stopping", extra={"fields": {}})
    finally:
        await asyncio.gather(*(connections.close() for connections in accepting))
        await asyncio.gather(*(runner.cleanup() for runner in runners))
        has_ended = server.close()
    return has_ended


def _signalled() -> Callable[[], Awaitable[object]]:
    """Return what waits for SIGTERM or SIGINT, from now on."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    return told.wait
