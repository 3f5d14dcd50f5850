"""A served authority on the network: HTTPS with certificates on both sides, beside it health and figures."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import ssl
import time
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from shieldfl.authority_service.calls import CALLS, answered
from shieldfl.authority_service.served_session import LOG
from shieldfl.authority_service.service import AuthorityService
from shieldfl.errors import (
    DataError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    ShieldError,
    WireFormatError,
)
from shieldfl.roles.message import Message

__all__ = ["STATUS", "Address", "LogLines", "serve"]

STATUS: tuple[tuple[type[ShieldError], int], ...] = (
    (PolicyError, 403),
    (KeyMismatchError, 403),
    (WireFormatError, 400),
    (ParameterError, 400),
    (DataError, 503),
    (ShieldError, 422),
)
"""The status that an error is answered with: of the first class that it is of."""

_MOST_OFFER_BYTES = 64
_BODY_SECONDS = 60.0
_SHUTDOWN_SECONDS = 10.0
_THREADS = 8

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Address:
    """Where to listen. Port 0 takes one that is free."""

    host: str
    port: int


class LogLines(logging.Formatter):
    """A line of JSON for each event: its time, in seconds since 1970, what happened, and what goes with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Figures:
    """What a monitoring system reads, as Prometheus' text."""

    def __init__(self, service: AuthorityService) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self.calls = Counter("shieldfl_calls", "Calls that were answered.", ["call", "result"], registry=own)
        self.seconds = Histogram(
            "shieldfl_call_seconds", "Of a call, its body included.", ["call"], registry=own
        )
        sessions = Gauge("shieldfl_open_sessions", "Sessions that this process has opened.", registry=own)
        sessions.set_function(lambda: service.open_sessions)


class _TooLargeError(ParameterError):
    """A body is larger than any that the call takes; it was not read to its end."""


class _Server:
    def __init__(self, service: AuthorityService) -> None:
        self._service = service
        self._figures = _Figures(service)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="authority")
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
        """Tell of what no call came of."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            self._tell("unknown", {"status": error.status}, "HTTPError", 0, 0.0)
            raise

    async def _offer(self, request: web.Request) -> web.Response:
        async def answer() -> tuple[int, Message]:
            name = self._peer_of(request)
            async with self._turn(f"offer to {name}"):
                body = await _body(request, _MOST_OFFER_BYTES)
                return len(body), await self._in_thread(
                    lambda: self._service.offer(Message.from_bytes(body), name)
                )

        return await self._answered("offer", {}, answer)

    async def _begin_session(self, request: web.Request) -> web.Response:
        async def answer() -> tuple[int, Message]:
            name = self._peer_of(request)
            async with self._turn(f"request of {name}"):
                body = await _body(request, self._service.most_request_bytes)
            async with self._turn("begin-session"):
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
            async with self._turn(f"body {hexadecimal}"):
                body = await _body(request, limit)

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
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

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

    def close(self) -> None:
        """Wait for what is being answered."""
        self._threads.shutdown()


def _public_name(error: ShieldError) -> str:
    """Return the name of the class that the other side raises."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == ShieldError.__module__)


async def _body(request: web.Request, most_bytes: int) -> bytes:
    """Read a body. Raises ParameterError for one that is larger, compressed, or comes too slowly."""
    if "Content-Encoding" in request.headers:
        raise ParameterError("a call's body is sent as it is, and not compressed")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.content.iter_chunked(2**16):
                body += chunk
                if len(body) > most_bytes:
                    raise _TooLargeError(
                        f"the call's body has more than the {most_bytes:,} bytes that any takes"
                    )
    except TimeoutError:
        raise ParameterError(f"the call's body did not come within {_BODY_SECONDS:.0f} seconds") from None
    except (ConnectionError, web.HTTPException, aiohttp.ClientPayloadError) as error:
        raise ParameterError("the connection ended before the call's body did") from error
    except BaseException:
        body.clear()  # at once, whoever still refers to this
        raise
    return bytes(body)


async def serve(
    service: AuthorityService,
    tls: ssl.SSLContext,
    address: Address,
    figures: Address | None,
    ready: Callable[[Address, Address | None], None],
    ended: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; what is being answered then is answered first.

    Parameters
    ----------
    service : which is not closed.
    tls : of both sides, see :func:`~shieldfl.authority_service.certificates.server_tls`.
    address, figures : where aggregators come to, and where, without TLS, health and figures are read; None for nowhere.
    ready : told once of the addresses that are listened at.
    ended : waited for instead of a signal.
    """
    server = _Server(service)
    runners = []
    # Before anybody is told that it serves, and may tell it to stop.
    wait = ended or _signalled()
    try:
        taken: list[Address | None] = []
        for application, where, context in (
            (server.application(), address, tls),
            (server.figures(), figures, None),
        ):
            if where is None:
                taken.append(None)
                continue
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
            runners.append(runner)
            await runner.setup()
            site = web.TCPSite(runner, where.host, where.port, ssl_context=context)
            await site.start()
            host, port, *_ = runner.addresses[0]
            taken.append(Address(host, port))
        main, beside = taken
        assert main is not None
        ready(main, beside)
        await wait()
        LOG.info("stopping", extra={"fields": {}})
    finally:
        for runner in runners:
            await runner.cleanup()
        server.close()


def _signalled() -> Callable[[], Awaitable[object]]:
    """Return what waits for SIGTERM or SIGINT, from now on."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    return told.wait
