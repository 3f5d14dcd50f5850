"""``shieldfl authority init``, ``rotate`` and ``client-key``: what makes keys and certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shieldfl.authority_service.certificates import (
    OWN_ISSUER,
    CertificateFiles,
    checked_certificate_name,
    make_ca,
    make_certificate,
)
from shieldfl.authority_service.identity import ClientIdentity, ServiceKey
from shieldfl.authority_service.policy import AuthorityPolicy
from shieldfl.authority_service.service import AuthorityFolder
from shieldfl.cli.authority.options import Days, Folder, Hosts, PassphraseFile, passphrase_of
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.errors import DataError
from shieldfl.roles.private_file import write_private_file

__all__ = ["client_key", "init", "rotate"]

_LOOPBACK = ("127.0.0.1", "localhost")

Aggregators = Annotated[
    list[str] | None,
    typer.Option(
        "--aggregator",
        metavar="NAME",
        help="An aggregator to make a certificate for; may be given more than once. By default one of this name.",
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
        int, typer.Option(min=2, help="The fewest clients of a total that is opened.")
    ] = 3,
    own_certificates: Annotated[
        bool,
        typer.Option(
            help="Make none: put server.crt, server.key and ca.crt of your own issuer into FOLDER/tls."
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make a key authority: its key, a policy to be edited, and certificates for it and its aggregators."""
    with failures_on_stderr():
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
            help="Instead of renewing certificates, end every session that was begun, for good. Do so after the folder "
            "was restored from a backup, before it is served: what was answered since is not known there.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Renew the certificates of the authority and its aggregators; serve it anew for its own to count.

    An aggregator's older certificate is refused from then on: so one that was stolen is withdrawn.
    """
    with failures_on_stderr():
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
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="Where the key will be.")],
) -> None:
    """Make a client's own key, FILE, and FILE.pub, which the authority's operator enrols."""
    with failures_on_stderr():
        public = file.with_name(f"{file.name}.pub")
        if public.exists():
            raise DataError(f"there is a file {public} already: choose another name")
        made = ClientIdentity.create(file)
        write_private_file(public, made.public_key.hex().encode() + b"\n")
        typer.echo(f"for the authority's operator: {public}")
