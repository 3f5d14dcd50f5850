"""Certificates of a served authority and its aggregators, and TLS 1.3 with a certificate on both sides."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.x509.oid import ExtendedKeyUsageOID

from shieldfl.authority.authority_secrets import read_sealed_file, write_sealed_file
from shieldfl.authority.private_file import write_private_file
from shieldfl.authority_service.identity import NAME
from shieldfl.errors import DataError, ParameterError

__all__ = [
    "OWN_ISSUER",
    "CertificateFiles",
    "checked_certificate_name",
    "client_tls",
    "is_newest",
    "make_ca",
    "make_certificate",
    "server_tls",
]

_CA_DAYS = 3_650
_MAGIC = b"shieldfl issuer key 1\n"
_NEWEST = ".newest"  # suffix of the file that says which certificate of an aggregator is the newest
OWN_ISSUER = "own-issuer"
"""Name of the file which says that the operator's own issuer makes the certificates."""


@dataclass(frozen=True)
class CertificateFiles:
    """Paths of one side's PEM files: its certificate, its key, and the issuer that it trusts."""

    certificate: Path
    key: Path
    ca: Path

    @classmethod
    def in_folder(cls, folder: Path, name: str) -> CertificateFiles:
        return cls(folder / f"{name}.crt", folder / f"{name}.key", folder / "ca.crt")


def make_ca(folder: Path, passphrase: str) -> None:
    """Make an issuer of certificates: ``ca.crt``, and ``ca.key`` under a passphrase.

    Raises DataError if the folder has an issuer.
    """
    if (folder / "ca.key").exists():
        raise DataError(f"{folder} has an issuer of certificates already: nobody would trust another one")
    key, name = ec.generate_private_key(ec.SECP384R1()), _name("shieldfl key authority")
    certificate = _builder(name, name, key.public_key(), _CA_DAYS, is_ca=True).sign(key, SHA384())
    write_sealed_file(folder / "ca.key", passphrase, _MAGIC, _pem_of_key(key))
    write_private_file(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))


def make_certificate(
    folder: Path, passphrase: str, name: str, days: int, hosts: Sequence[str] = ()
) -> CertificateFiles:
    """Make or renew a certificate that the folder's issuer signs: ``NAME.crt`` and ``NAME.key``.

    ``name`` is ``server``, or an aggregator's name. ``hosts`` are names and addresses of a server, empty for
    an aggregator. Raises KeyMismatchError for a wrong passphrase, DataError if the folder has no issuer,
    ParameterError for invalid names.
    """
    checked_certificate_name(name, is_server=bool(hosts))
    alternatives: list[x509.GeneralName] = []
    for host in hosts:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not host.isascii():
                raise ParameterError(
                    f"{host!r} is not a host name that a certificate can have: write it in ASCII"
                ) from None
            alternatives.append(x509.DNSName(host))
    ca_key = serialization.load_pem_private_key(read_sealed_file(folder / "ca.key", passphrase, _MAGIC), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)  # sealed, so it is what make_ca wrote
    ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP384R1())
    builder = _builder(_name(name), ca.subject, key.public_key(), days, is_ca=False)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    certificate = builder.sign(ca_key, SHA384())
    files = CertificateFiles.in_folder(folder, name)
    write_private_file(files.key, _pem_of_key(key))
    write_private_file(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    if not hosts:
        newest = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
        write_private_file(folder / f"{name}{_NEWEST}", newest.encode() + b"\n")
    return files


def checked_certificate_name(name: str, *, is_server: bool = False) -> str:
    """Return a name to which a certificate may be issued.

    Raises ParameterError for other names, also for names of other files beside the certificate.
    """
    if not NAME.fullmatch(name) or (name in {"ca", "server"}) != is_server:
        raise ParameterError(
            "an aggregator's name has 1 to 63 letters, digits, dots, dashes and underscores, begins with a "
            "letter or a digit, and is neither 'ca' nor 'server'"
        )
    return name


def is_newest(folder: Path, name: str, certificate: bytes) -> bool:
    """Return whether a certificate, DER, is an aggregator's newest, or of the operator's own issuer."""
    if (folder / OWN_ISSUER).exists():
        return True  # that issuer withdraws certificates itself
    try:
        newest = (folder / f"{checked_certificate_name(name)}{_NEWEST}").read_text().strip()
    except (OSError, ParameterError):
        return False
    return hmac.compare_digest(newest, hashlib.sha256(certificate).hexdigest())


def server_tls(files: CertificateFiles) -> ssl.SSLContext:
    """Return TLS 1.3 settings of a server that requires its clients' certificates.

    Raises DataError for files that cannot be loaded.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _loaded(context, files)


def client_tls(files: CertificateFiles) -> ssl.SSLContext:
    """Return TLS 1.3 settings of a client that shows its certificate, and trusts this issuer alone.

    Raises DataError.
    """
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def _loaded(context: ssl.SSLContext, files: CertificateFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(files.certificate, files.key)
        context.load_verify_locations(files.ca)
    except (OSError, ssl.SSLError) as error:
        raise DataError(
            f"the certificate {files.certificate}, its key {files.key} or the issuer's {files.ca} cannot be "
            "loaded, or do not belong together"
        ) from error
    return context


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*form, serialization.NoEncryption())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int, *, is_ca: bool
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # An hour earlier, for clocks that are slow.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )
