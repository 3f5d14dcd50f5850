"""``shieldfl authority serve``: answer aggregators until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Annotated

import typer

from shieldfl.authority_service.certificates import CertificateFiles, server_tls
from shieldfl.authority_service.served_session import LOG
from shieldfl.authority_service.service import AuthorityFolder, AuthorityService
from shieldfl.cli.authority.keys import Folder, PassphraseFile, passphrase_of
from shieldfl.cli.failures import failures_on_stderr


def serve(
    folder: Folder,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where aggregators come to; port 0 takes a free one.")
    ] = "127.0.0.1:7443",
    figures: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help='Where /health and /metrics (for Prometheus) are read, without TLS; "" for nowhere.',
        ),
    ] = "127.0.0.1:7444",
    passphrase_file: PassphraseFile = None,
) -> None:
    """Serve a key authority over HTTPS, with certificates on both sides, until SIGTERM or Ctrl-C.

    A line of JSON on standard error for each call, its result and time; never what is in it.
    """
    main, beside = _address(listen), _address(figures) if figures else None
    with failures_on_stderr():
        from shieldfl.authority_service import http_server  # which other commands do without

        own = AuthorityFolder(folder)
        own.check()
        tls = server_tls(CertificateFiles.in_folder(own.tls, "server"))
        service = AuthorityService(own, passphrase_of(passphrase_file))
        lines = logging.StreamHandler(sys.stderr)
        lines.setFormatter(http_server.LogLines())
        lines.addFilter(http_server.FewAlike())
        # Of what serves, too, so that every line is one of these.
        loggers = [LOG, *map(logging.getLogger, ("aiohttp", "asyncio"))]
        for logger in loggers:
            logger.addHandler(lines)
            logger.propagate = False
        LOG.setLevel(logging.INFO)

        def ready(*taken: http_server.Address | None) -> None:
            names = zip(("address", "figures"), taken, strict=True)
            where = {name: f"{one.host}:{one.port}" for name, one in names if one is not None}
            LOG.info("serving", extra={"fields": {**where, "public_key": service.public_key.hex()}})

        figures_at = None if beside is None else http_server.Address(*beside)
        try:
            has_ended = asyncio.run(
                http_server.serve(service, tls, http_server.Address(*main), figures_at, ready)
            )
            if not has_ended:
                # A thread cannot be ended, and nothing has left that is not on the disk: as after `kill -9`.
                LOG.warning("cut off", extra={"fields": {}})
                lines.flush()
                os._exit(0)
        finally:
            service.close()
            for logger in loggers:
                logger.removeHandler(lines)
                logger.propagate = True


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 2**16:
        raise typer.BadParameter(f"{text} is no address: give HOST:PORT, such as 127.0.0.1:7443")
    return host.strip("[]"), int(port)
