"""``shieldfl authority``: keys and certificates, whom an authority knows, what it does; and serving it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.authority.private_file import write_private_file
from shieldfl.authority_service.certificates import (
    OWN_ISSUER,
    CertificateFiles,
    checked_certificate_name,
    make_ca,
    make_certificate,
    server_tls,
)
from shieldfl.authority_service.identity import ClientIdentity, ServiceKey, checked_public_key
from shieldfl.authority_service.served_session import LOG
from shieldfl.authority_service.service import AuthorityFolder, AuthorityPolicy, AuthorityService
from shieldfl.cli.console import JsonFile, write_json
from shieldfl.errors import DataError, ParameterError
from shieldfl.settings import plain_settings, read_text

_VARIABLE = "SHIELDFL_AUTHORITY_PASSPHRASE"

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False, help="Folder of the authority.")]

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="A file whose first line is the passphrase of the authority's keys. "
        f"Without one, ${_VARIABLE} is it, or you are asked.",
    ),
]

Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Host name or address for the authority's certificate, under which aggregators reach it. May "
        "be repeated. Default: 127.0.0.1 and localhost.",
    ),
]

Days = Annotated[int, typer.Option(min=1, max=3650, help="Validity of the certificates, in days.")]


def passphrase_of(file: Path | None, *, new: bool = False) -> str:
    """Return the passphrase, from wherever it is given.

    Raises DataError, and ParameterError for an empty one.
    """
    if file is not None:
        given = read_text(file, "passphrase's file").split("\n")[0].removesuffix("\r")
    elif (from_environment := os.environ.get(_VARIABLE)) is not None:
        given = from_environment
    else:
        given = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    if not given:
        raise ParameterError("the passphrase is empty: the authority's keys need one")
    return given


_LOOPBACK = ("127.0.0.1", "localhost")

Aggregators = Annotated[
    list[str] | None,
    typer.Option(
        "--aggregator",
        metavar="NAME",
        help="Name of an aggregator to make a certificate for. May be repeated. Default: aggregator.",
    ),
]


def _certificates(tls: Path, passphrase: str, hosts: list[str] | None, names: list[str], days: int) -> None:
    for name in names:
        checked_certificate_name(name)
    make_certificate(tls, passphrase, "server", days, hosts or _LOOPBACK)
    for name in names:
        make_certificate(tls, passphrase, name, days)


def init(
    folder: Folder,
    host: Hosts = None,
    aggregator: Aggregators = None,
    days: Days = 365,
    min_clients: Annotated[
        int, typer.Option(min=2, help="Fewest clients in a total that the authority opens.")
    ] = 3,
    own_certificates: Annotated[
        bool,
        typer.Option(
            help="Make no certificates. Put server.crt, server.key and ca.crt of your own issuer into "
            "FOLDER/tls."
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Create a key authority: its key, a policy to edit, certificates for it and for its aggregators."""
    passphrase = passphrase_of(passphrase_file, new=True)
    names = aggregator or ["aggregator"]

    def certify(tls: Path) -> None:
        if own_certificates:
            write_private_file(tls / OWN_ISSUER, b"")
        else:
            make_ca(tls, passphrase)
            _certificates(tls, passphrase, host, names, days)

    made = AuthorityFolder.create(folder, passphrase, AuthorityPolicy(min_clients=min_clients), certify)
    typer.echo(f"policy, to be edited before it serves: {made.policy}")
    typer.echo(f"public key, which clients and aggregators pin: {made.public_key.read_text().strip()}")
    if own_certificates:
        typer.echo(f"put server.crt, server.key and ca.crt into {made.tls}")
        return
    for name in names:
        files = CertificateFiles.in_folder(made.tls, name)
        typer.echo(f"for the aggregator {name}: {files.certificate} {files.key} {files.ca}")


def rotate(
    folder: Folder,
    host: Hosts = None,
    aggregator: Aggregators = None,
    days: Days = 365,
    sessions: Annotated[
        bool,
        typer.Option(
            "--sessions",
            help="Instead of renewing certificates, end all sessions for good. Do this after you restore the "
            "folder from a backup and before you serve it: a backup does not know later answers.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Renew the certificates of the authority and its aggregators; restart the server to use its own.

    The authority then refuses the aggregators' older certificates, stolen ones included.
    """
    own = AuthorityFolder(folder)
    if sessions:
        typer.echo(f"{own.end_sessions():,} sessions ended")
        return
    own.check()
    passphrase = passphrase_of(passphrase_file)
    ServiceKey.load(own.key, passphrase)
    _certificates(own.tls, passphrase, host, aggregator or ["aggregator"], days)
    typer.echo(f"certificates renewed for {days} days: {own.tls}")


def client_key(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="File to write the private key to.")
    ],
) -> None:
    """Create a client's key pair: the private key FILE, and FILE.pub for the authority's operator."""
    public = file.with_name(f"{file.name}.pub")
    if public.exists():
        raise DataError(f"there is a file {public} already: choose another name")
    made = ClientIdentity.create(file)
    write_private_file(public, made.public_key.hex().encode() + b"\n")
    typer.echo(f"for the authority's operator: {public}")


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name that the client gives when it enrols.")]


def enrol(
    folder: Folder,
    name: Name,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="Public key of the client: 64 hexadecimal digits, or a file that contains them.",
        ),
    ],
) -> None:
    """Register a client, which may then enrol in sessions.

    A running authority takes this into account at once.
    """
    own = AuthorityFolder(folder)
    own.check()
    given = Path(key)
    public = read_text(given, "public key").strip() if given.is_file() else key
    own.registry.register(name, checked_public_key(public))
    typer.echo(f"{name} may enrol")


def revoke(folder: Folder, name: Name) -> None:
    """Revoke a client for good: the authority answers no more lists that name it, in any session."""
    own = AuthorityFolder(folder)
    own.check()
    own.registry.revoke(name)
    typer.echo(f"{name} is revoked")


def show(folder: Folder, json_file: JsonFile = None) -> None:
    """Show an authority's key, policy and sessions. Needs no passphrase and shows no secret."""
    own = AuthorityFolder(folder)
    own.check()
    sessions = [
        {"id": one.path.name, **asdict(one.facts()), "ended": one.is_ended} for one in own.session_folders()
    ]
    facts: dict[str, Any] = {
        "public_key": own.public_key.read_text().strip(),
        "policy": plain_settings(AuthorityPolicy.from_file(own.policy)),
        "clients": own.registry.names(),
        "revoked": sorted(own.registry.revoked()),
        "sessions": sessions,
    }
    if write_json(facts, json_file):
        typer.echo(_text(facts))


def _text(facts: dict[str, Any]) -> str:
    lines = [f"public key   {facts['public_key']}"]
    lines += [f"policy       {key} = {value}" for key, value in facts["policy"].items()]
    lines += [f"{name:<12} {', '.join(facts[name]) or 'none'}" for name in ("clients", "revoked")]
    lines.append(f"sessions     {len(facts['sessions'])}")
    for one in facts["sessions"]:
        ended = ", ended" if one["ended"] else ""
        lines.append(
            f"  {one['id']}  {one['method']}, {one['clients']:,} clients, {one['rounds']:,} rounds, "
            f"{one['values']:,} values, begun by {one['aggregator']}{ended}"
        )
    return "\n".join(lines)


def serve(
    folder: Folder,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Address and port to listen on for aggregators; port 0 takes a free port.",
        ),
    ] = "127.0.0.1:7443",
    figures: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help='Address and port of /health and /metrics (for Prometheus), without TLS; "" for none.',
        ),
    ] = "127.0.0.1:7444",
    passphrase_file: PassphraseFile = None,
) -> None:
    """Serve a key authority over HTTPS, with certificates on both sides, until SIGTERM or Ctrl-C.

    Standard error gets a line of JSON for each call: its result and time, never its content.
    """
    main, beside = _address(listen), _address(figures) if figures else None
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
        where = {name: f"{one[0]}:{one[1]}" for name, one in names if one is not None}
        LOG.info("serving", extra={"fields": {**where, "public_key": service.public_key.hex()}})

    try:
        if not asyncio.run(http_server.serve(service, tls, main, beside, ready)):
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
