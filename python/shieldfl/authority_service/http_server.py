"""A served authority on the network: HTTPS with certificates on both sides, beside it health and figures."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

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

_BYTES_A_VALUE = 16
"""The most that a message takes for each value of a model, however that is encrypted by a scheme with short keys."""
_LEAST_BODY_BYTES = 2**20
_THREADS = 8


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


class _Server:
    def __init__(self, service: AuthorityService) -> None:
        self._service = service
        self._figures = _Figures(service)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="authority")

    def application(self) -> web.Application:
        """Return what answers aggregators."""
        most = _LEAST_BODY_BYTES + _BYTES_A_VALUE * self._service.policy.most_values
        application = web.Application(client_max_size=most)
        application.router.add_post("/v1/sessions", self._begin_session)
        application.router.add_post("/v1/sessions/{session}/{call}", self._call)
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

    async def _begin_session(self, request: web.Request) -> web.Response:
        name = _peer_name(request)
        return await self._answered(
            request, "begin-session", {}, lambda body: self._service.begin_session(body, name)
        )

    async def _call(self, request: web.Request) -> web.Response:
        name, call = _peer_name(request), request.match_info["call"]
        session_id = request.match_info["session"]

        def carry_out(body: Message) -> Message:
            try:
                number = bytes.fromhex(session_id)
            except ValueError:
                raise ParameterError("a session is named by 32 hexadecimal digits") from None
            return answered(self._service.session(number, name), call, body)

        known = call if call in CALLS else "unknown"
        return await self._answered(request, known, {"session": session_id[:32]}, carry_out)

    async def _answered(
        self, request: web.Request, call: str, fields: dict[str, Any], work: Callable[[Message], Message]
    ) -> web.Response:
        begun = time.perf_counter()
        body = b""
        try:
            body = await request.read()
            loop = asyncio.get_running_loop()
            # In a thread: other connections are served while one waits for the disk.
            reply = await loop.run_in_executor(
                self._threads, lambda: work(Message.from_bytes(body)).to_bytes()
            )
            result, response = "ok", web.Response(body=reply, content_type="application/octet-stream")
        except ShieldError as error:
            result = type(error).__name__
            status = next(status for kind, status in STATUS if isinstance(error, kind))
            response = web.json_response({"error": result, "message": str(error)}, status=status)
        except web.HTTPException:
            raise
        except Exception:
            # What it is stands in the log, and not in an answer.
            LOG.exception("failed", extra={"fields": {"call": call, **fields}})
            result = "InternalError"
            response = web.json_response({"error": result, "message": "see the authority's log"}, status=500)
        seconds = time.perf_counter() - begun
        self._figures.calls.labels(call, result).inc()
        self._figures.seconds.labels(call).observe(seconds)
        facts = {"call": call, **fields, "result": result, "bytes": len(body), "seconds": round(seconds, 6)}
        LOG.info("call", extra={"fields": facts})
        return response

    def close(self) -> None:
        """Wait for what is being answered."""
        self._threads.shutdown()


def _peer_name(request: web.Request) -> str:
    """Return to whom the certificate was issued that the aggregator has shown."""
    assert request.transport is not None
    certificate: dict[str, Any] = request.transport.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if len(names) != 1:
        raise web.HTTPForbidden(text="the certificate is issued to nobody by name")
    return str(names[0])


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
            runner = web.AppRunner(application, access_log=None)
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
