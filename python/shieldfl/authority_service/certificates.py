"""Certificates of a served authority and its aggregators, and TLS 1.3 with both of them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shieldfl.errors import DataError, KeyMismatchError, ParameterError
from shieldfl.roles.private_file import write_private_file

__all__ = ["CertificateFiles", "client_tls", "make_ca", "make_certificate", "server_tls"]

_CA_DAYS = 3_650


@dataclass(frozen=True)
class CertificateFiles:
    """What one side of a connection shows, and whom it believes: paths of PEM files."""

    certificate: Path
    key: Path
    ca: Path
    """Of whoever issues both sides' certificates."""

    @classmethod
    def in_folder(cls, folder: Path, name: str) -> CertificateFiles:
        """Return the files of this name, and the issuer's beside them."""
        return cls(folder / f"{name}.crt", folder / f"{name}.key", folder / "ca.crt")


def make_ca(folder: Path, passphrase: str) -> None:
    """Make an issuer of certificates, ``ca.crt`` and, under a passphrase, ``ca.key``. Raises DataError for a second."""
    from cryptography.hazmat.primitives import serialization

    if (folder / "ca.key").exists():
        raise DataError(
            f"{folder} has an issuer of certificates already: another one would be believed by nobody"
        )
    key = _new_key()
    name = _name("shieldfl key authority")
    builder = _builder(name, name, key.public_key(), _CA_DAYS, is_ca=True)
    certificate = builder.sign(key, _sha384())
    sealing = serialization.BestAvailableEncryption(passphrase.encode())
    write_private_file(folder / "ca.key", _pem_of_key(key, sealing))
    write_private_file(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))


def make_certificate(
    folder: Path, passphrase: str, name: str, days: int, hosts: Sequence[str] = ()
) -> CertificateFiles:
    """Make or renew a certificate, ``NAME.crt`` and ``NAME.key``, which the folder's issuer signs.

    Parameters
    ----------
    folder : of :func:`make_ca`.
    passphrase : of the issuer's key.
    name : what it is issued to: for an aggregator, its name.
    days : that it is good for.
    hosts : names and addresses of a server; none for an aggregator.

    Raises KeyMismatchError for a wrong passphrase, DataError where the folder has no issuer.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        ca_key: Any = serialization.load_pem_private_key(
            (folder / "ca.key").read_bytes(), passphrase.encode()
        )
        ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    except OSError as error:
        raise DataError(
            f"{folder} has no issuer of certificates: renew yours where they were issued"
        ) from error
    except (TypeError, ValueError) as error:
        raise KeyMismatchError(
            f"wrong passphrase for {folder / 'ca.key'}, or the file was altered"
        ) from error
    key = _new_key()
    builder = _builder(_name(name), ca.subject, key.public_key(), days, is_ca=False)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False
        )
    certificate = builder.sign(ca_key, _sha384())
    files = CertificateFiles.in_folder(folder, name)
    write_private_file(files.key, _pem_of_key(key, serialization.NoEncryption()))
    write_private_file(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    return files


def server_tls(files: CertificateFiles) -> ssl.SSLContext:
    """Return TLS 1.3 of a server that asks for its clients' certificates. Raises DataError for files that do not go."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _loaded(context, files)


def client_tls(files: CertificateFiles) -> ssl.SSLContext:
    """Return TLS 1.3 of a client that shows its certificate, and believes this issuer alone. Raises DataError."""
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def _loaded(context: ssl.SSLContext, files: CertificateFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(files.certificate, files.key)
        context.load_verify_locations(files.ca)
    except (OSError, ssl.SSLError) as error:
        raise DataError(
            f"the certificate {files.certificate}, its key {files.key} or the issuer's {files.ca} cannot be loaded, or "
            "do not belong together"
        ) from error
    return context


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _sha384() -> Any:
    from cryptography.hazmat.primitives.hashes import SHA384

    return SHA384()


def _pem_of_key(key: Any, sealing: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(*form, sealing))


def _name(common_name: str) -> Any:
    from cryptography import x509

    try:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    except ValueError as error:
        raise ParameterError("a certificate's name has 1 to 64 characters") from error


def _host(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: Any, issuer: Any, public_key: Any, days: int, *, is_ca: bool) -> Any:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # An hour for clocks that are behind.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )
