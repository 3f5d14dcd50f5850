"""The key authority of a job, a process of its own that NVFlare does not know.

Its operator makes it, enrols the sites that she vouches for, and serves it:

    python key_authority.py init FOLDER --layout layout.json --max-clients 8 --most-steps 100 --address 127.0.0.1:7445
    python key_authority.py accept FOLDER site-1.request site-1.grant
    python key_authority.py serve FOLDER

What protects it is in the environment variable SHIELDFL_AUTHORITY_PASSPHRASE. The server's aggregator gets the files of
``FOLDER/aggregator``, sites get ``session.json`` of it. It answers the holder of the aggregator's certificate, by TLS.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kahe_session import SESSION_FILE, Session, values_of

import shieldfl as sf
from shieldfl.authority.private_file import write_private_file
from shieldfl.authority_service.certificates import (
    CertificateFiles,
    client_tls,
    make_ca,
    make_certificate,
    server_tls,
)
from shieldfl.models import ModelLayout

MOST_REQUEST_BYTES = 1 << 20
_SERVER = "nvflare-server"
_DAYS = 365


def make(
    folder: Path,
    layout: ModelLayout,
    *,
    max_clients: int,
    min_clients: int,
    most_steps: int,
    address: str,
    passphrase: str,
) -> None:
    """Make an authority with one session, and certificates for it and for the server's aggregator."""
    tls, aggregator = folder / "tls", folder / "aggregator"
    for path in (folder, tls, aggregator):
        path.mkdir(mode=0o700)
    make_ca(tls, passphrase)
    make_certificate(tls, passphrase, "server", _DAYS, hosts=[address.rpartition(":")[0]])
    shown = make_certificate(tls, passphrase, _SERVER, _DAYS)
    for file in (shown.certificate, shown.key, shown.ca):
        write_private_file(aggregator / file.name, file.read_bytes())
    values = values_of(layout)
    parameters = sf.kahe.Parameters.plan(max_clients=max_clients, goal="size", count=values)
    store = folder / "authority.store"
    with sf.KeyAuthority(parameters, min_clients, most_values=values, store=store) as authority:
        authority.save(folder / "authority.key", passphrase)
        session = Session(authority.public_key, layout, most_steps, address)
        write_private_file(aggregator / SESSION_FILE, session.to_json().encode())


def opened(folder: Path, passphrase: str) -> Any:
    """Return the authority of a folder, for use in ``with``: one process has it at a time."""
    return sf.KeyAuthority.load(folder / "authority.key", passphrase, store=folder / "authority.store")


def accept(folder: Path, request: bytes, passphrase: str) -> bytes:
    """Enrol who sent a request, for which the operator vouches, and return what lets it open answers."""
    with opened(folder, passphrase) as authority:
        return bytes(authority.grant(authority.accept(request)))


def serve(folder: Path, passphrase: str) -> None:
    """Answer the aggregator until the process ends. Nobody is enrolled from now on."""
    lock = threading.Lock()
    with opened(folder, passphrase) as authority:
        authority.end_enrolment()

        class Handler(BaseHTTPRequestHandler):
            timeout = 60

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                if self.path != "/answer" or not 0 < length <= MOST_REQUEST_BYTES:
                    self._reply(400, b"a list of participants is posted to /answer")
                    return
                request = self.rfile.read(length)
                try:
                    with lock:
                        answer = authority.sum_key(request)
                except sf.ShieldError as error:
                    stated = {"error": type(error).__name__, "message": str(error)}
                    self._reply(409, json.dumps(stated).encode())
                    return
                self._reply(200, answer)

            def _reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        host, _, port = Session.read(folder / "aggregator").authority.rpartition(":")
        with ThreadingHTTPServer((host, int(port)), Handler) as server:
            files = CertificateFiles.in_folder(folder / "tls", "server")
            server.socket = server_tls(files).wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
            print(f"answering at {host}:{port}", flush=True)
            server.serve_forever()


def answer_from(address: str, folder: Path, request: bytes) -> bytes:
    """Ask an authority for what opens a total; ``folder`` has the aggregator's certificate.

    Raises what the authority does, by its name, and UnreachableError where none answers. The same request may be
    repeated, and gets the same answer.
    """
    host, _, port = address.rpartition(":")
    tls = client_tls(CertificateFiles.in_folder(folder, _SERVER))
    connection = http.client.HTTPSConnection(host, int(port), context=tls, timeout=60)
    try:
        connection.request("POST", "/answer", body=request)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise sf.errors.UnreachableError(
            f"the key authority at {address} does not answer: {error}"
        ) from error
    finally:
        connection.close()
    if response.status == http.client.OK:
        return body
    if response.status == http.client.CONFLICT:
        stated = json.loads(body)
        raise getattr(sf.errors, stated["error"], sf.ShieldError)(stated["message"])
    raise sf.ShieldError(f"the key authority at {address} answered with status {response.status}")


def main() -> None:
    """Run a command of the operator."""
    parser = argparse.ArgumentParser(description="The key authority of an NVFlare job.")
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="make an authority")
    init.add_argument("folder", type=Path)
    init.add_argument("--layout", type=Path, required=True, help="what ModelLayout.of(model).to_json() gave")
    init.add_argument("--max-clients", type=int, required=True)
    init.add_argument("--min-clients", type=int, default=3)
    init.add_argument("--most-steps", type=int, required=True, help="that a client makes in a round")
    init.add_argument("--address", required=True, help="HOST:PORT that it is served at")
    enrol = commands.add_parser("accept", help="enrol a site whose request this is, and write its grant")
    for name in ("folder", "request", "grant"):
        enrol.add_argument(name, type=Path)
    commands.add_parser("serve", help="answer the aggregator").add_argument("folder", type=Path)
    given = parser.parse_args()
    passphrase = os.environ["SHIELDFL_AUTHORITY_PASSPHRASE"]
    if given.command == "init":
        layout = ModelLayout.from_json(given.layout.read_text())
        sizes = {"max_clients": given.max_clients, "min_clients": given.min_clients}
        make(
            given.folder,
            layout,
            **sizes,
            most_steps=given.most_steps,
            address=given.address,
            passphrase=passphrase,
        )
    elif given.command == "accept":
        given.grant.write_bytes(accept(given.folder, given.request.read_bytes(), passphrase))
    else:
        serve(given.folder, passphrase)


if __name__ == "__main__":
    main()
