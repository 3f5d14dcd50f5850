"""An authority that is served on a free port of the loopback, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import httpx
import pytest

from methods.method_conformance import SteppedRun, assert_same_models
from methods.variants import labelled
from shieldfl.authority_service.authority_client import AuthorityClient, SeveralAuthorities
from shieldfl.authority_service.certificates import (
    CertificateFiles,
    client_tls,
    make_ca,
    make_certificate,
    server_tls,
)
from shieldfl.authority_service.http_server import serve
from shieldfl.authority_service.identity import ClientIdentity
from shieldfl.authority_service.served_session import SessionRequest
from shieldfl.authority_service.service import AuthorityFolder, AuthorityPolicy, AuthorityService
from shieldfl.rounds.method import Method

ANY = {"registered_clients_only": False, "schemes": ("kahe", "pads", "ckks", "paillier"), "min_clients": 2}
"""A policy that lets every method run."""

PASSPHRASE = "a passphrase of tests"
LOOPBACK = ("127.0.0.1", 0)


def made_folder(path: Path, **policy) -> AuthorityFolder:
    def certify(tls):
        make_ca(tls, PASSPHRASE)
        make_certificate(tls, PASSPHRASE, "server", 30, ["127.0.0.1", "localhost"])
        for name in ("aggregator", "other"):
            make_certificate(tls, PASSPHRASE, name, 30)

    return AuthorityFolder.create(path, PASSPHRASE, AuthorityPolicy(**policy), certify)


def tls_of(folder, name="aggregator"):
    return client_tls(CertificateFiles.in_folder(folder.tls, name))


class Served:
    """The service of a folder, and where it is."""

    def __init__(self, folder):
        self.folder = folder
        self.service = AuthorityService(folder, PASSPHRASE)
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._is_ready.wait(20.0)

    def _run(self):
        def ready(address, figures):
            self.address, self.figures = address, figures
            self._is_ready.set()

        tls = server_tls(CertificateFiles.in_folder(self.folder.tls, "server"))
        wait = self._ended.wait
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(serve(self.service, tls, LOOPBACK, LOOPBACK, ready, wait))

    @property
    def url(self):
        return f"https://127.0.0.1:{self.address[1]}"

    def client(self, name="aggregator", url=None, **options):
        options = {"timeout_seconds": 20.0, "pause_seconds": 0.01} | options
        return AuthorityClient(url or self.url, tls_of(self.folder, name), self.service.public_key, **options)

    @contextlib.contextmanager
    def unfinished_body(self, pieces):
        """Send an aggregator's body, of which what follows these pieces comes only at the end."""
        go_on = threading.Event()

        def body():
            yield from pieces
            go_on.wait(45.0)

        def hold():
            httpx.post(f"{self.url}/v1/sessions", content=body(), verify=tls_of(self.folder), timeout=60.0)

        held = threading.Thread(target=hold)
        held.start()
        try:
            yield
        finally:
            go_on.set()
            held.join()

    def end(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(20.0)
        assert not self._thread.is_alive()
        self.service.close()


@contextlib.contextmanager
def served(folder):
    one = Served(folder)
    try:
        yield one
    finally:
        one.end()


def served_run(client, variant, *, sign=None, **changes):
    """A run whose authority is a session of a served one; ``sign`` alters what each client enrols by."""
    embedded = Method.authority_setup

    def begin_session(method, initial, **options):
        if threading.current_thread() is not threading.main_thread():
            return embedded(method, initial, **options)  # the service's
        remote = client.begin_session(SessionRequest(method, initial))
        if sign is not None:
            enrol = remote.enrol
            remote.enrol = lambda index, message: enrol(index, sign(remote.setup.digest, index, message))
        return remote, remote.setup

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Method, "authority_setup", begin_session)
        return SteppedRun(variant, **changes)


def check_equals_embedded(client, variant):
    """Run three rounds with what a connection reaches and with an embedded authority: models and events are equal."""
    secret, weights = bytes(32), [1, 2, 3, 4]
    run = served_run(client, variant, shared_secret=secret, weights=weights)
    embedded = SteppedRun(variant, shared_secret=secret, weights=weights)
    for participants in ([0, 1, 2, 3], [0, 1, 3], [1, 2, 3]):
        for each in (run, embedded):
            each.run_round(participants)
        assert_same_models(run, embedded, participants)
    events = [set(each.authority.report().events) for each in (run, embedded)]
    assert events[0] == events[1] != set()


KAHE = labelled("full-he", "clients")
KEYS = [ClientIdentity(bytes([index]) * 32) for index in range(1, 5)]
"""Of four clients that an authority may know."""


def with_clinics(folder):
    for index, key in enumerate(KEYS):
        folder.registry.register(f"clinic-{index}", key.public_key)
    return folder


def signed(setup, index, message):
    """As whom a client with one of these keys enrols."""
    return KEYS[index].signed_enrolment(f"clinic-{index}", setup, index, message)


@contextlib.contextmanager
def connected(folders, **options):
    """Yield what serves each folder, in the order that they are asked in, and one connection to all, or to the one."""
    with contextlib.ExitStack() as stack:
        services = [stack.enter_context(served(folder)) for folder in folders]
        clients = [one.client(**options) for one in services]
        if len(clients) == 1:
            yield services, stack.enter_context(clients[0])
            return
        connection = stack.enter_context(SeveralAuthorities(clients))
        yield [services[clients.index(one)] for one in connection._clients], connection


def begun(connection, **changes):
    return served_run(connection, KAHE, sign=signed, **{"min_clients": 3} | changes)
