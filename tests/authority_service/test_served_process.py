"""``shieldfl authority`` as an operator runs it: processes that are started, stopped, killed and started again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from authority_service.served import PASSPHRASE, served_run
from documentation_pages import ROOT, doc, table_rows
from methods.method_conformance import SteppedRun
from methods.variants import labelled
from shieldfl.authority_service.authority_client import AuthorityClient
from shieldfl.authority_service.certificates import CertificateFiles, client_tls
from shieldfl.authority_service.identity import ClientIdentity
from shieldfl.authority_service.served_session import CALLS
from shieldfl.authority_service.service import AuthorityFolder, AuthorityPolicy
from shieldfl.cli.app import app
from shieldfl.settings import plain_settings

KAHE = labelled("selective-shield/encrypted", "clients")
PAGE = "docs/how-to/authority.md"
COMMAND = [sys.executable, "-m", "shieldfl.cli.main", "authority"]


def environment():
    return os.environ | {"SHIELDFL_AUTHORITY_PASSPHRASE": PASSPHRASE}


def command(*arguments, code=0):
    """Run a command that needs no key, in this process."""
    done = CliRunner().invoke(app, ["authority", *map(str, arguments)], env=environment())
    assert done.exit_code == code, done.stderr
    return done


def command_with_key(*arguments):
    """Run one whose key is sealed as operators' are: in a process of its own."""
    arguments = [*COMMAND, *map(str, arguments)]
    return subprocess.run(arguments, capture_output=True, text=True, env=environment(), check=True)


class Process:
    """A process that serves a folder, on the port that the one before had; ``by`` are words before its command."""

    def __init__(self, folder: Path, by=()) -> None:
        self.folder = folder
        self.by = by
        self.port = 0
        self.start()

    def start(self):
        listen = ["--listen", f"127.0.0.1:{self.port}", "--figures", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*self.by, *COMMAND, "serve", str(self.folder), *listen],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.lines = []
        first = self.process.stderr.readline()
        assert first.startswith("{"), first + self.process.stderr.read()
        self.serving = json.loads(first)
        self.port = int(self.serving["address"].rpartition(":")[2])
        # What nobody reads would stop it.
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self._reader.start()

    def kill(self):
        self.process.kill()
        self._wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self):
        code = self.process.wait(20)
        self._reader.join(20)
        self.process.stderr.close()
        return code

    def client(self, **options):
        files = CertificateFiles.in_folder(self.folder / "tls", "aggregator")
        url = f"https://127.0.0.1:{self.port}"
        return AuthorityClient(url, client_tls(files), self.serving["public_key"], **options)


@pytest.fixture(scope="module")
def clinics(operators):
    keys = []
    for index in range(4):
        keys.append(ClientIdentity.create(operators / f"clinic-{index}.pem"))
        AuthorityFolder(operators).registry.register(f"clinic-{index}", keys[-1].public_key)
    return keys


def signing(keys):
    return lambda setup, index, message: keys[index].signed_enrolment(
        f"clinic-{index}", setup, index, message
    )


def rounds_with_kills(process, clinics, kills):
    """Rounds of a run, and of an embedded one, until the process was killed so often, at moments that are drawn."""
    generator = np.random.default_rng(7)

    def kill_and_start():
        for _ in range(kills):
            time.sleep(float(generator.uniform(0.0, 0.3)))
            process.kill()
            process.start()

    with process.client(attempts=12, pause_seconds=0.1) as client:
        run = served_run(client, KAHE, sign=signing(clinics), min_clients=3)
        embedded = SteppedRun(KAHE, min_clients=3)
        killer = threading.Thread(target=kill_and_start)
        killer.start()
        try:
            while killer.is_alive() or embedded.authority.keys.newest_round < 3:
                for participants in ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3]):
                    run.run_round(participants)
                    embedded.run_round(participants)
        finally:
            killer.join()
    for index in range(1, 3):
        np.testing.assert_array_equal(run.merged(index).parameters, embedded.merged(index).parameters)


@pytest.mark.slow
def test_a_killed_authority_goes_on_and_gives_the_same_models(process, clinics):
    rounds_with_kills(process, clinics, 2)


@pytest.mark.slow
def test_also_one_that_is_killed_many_times(process, clinics):
    for _ in range(10):
        rounds_with_kills(process, clinics, 10)


def test_it_stops_when_told_to_and_says_what_it_did(process, clinics):
    figures = f"http://{process.serving['figures']}"
    with process.client() as client:
        served_run(client, KAHE, sign=signing(clinics), min_clients=3).run_round()
        with urllib.request.urlopen(f"{figures}/health") as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{figures}/metrics") as answer:
            text = answer.read().decode()
        assert 'shieldfl_calls_total{call="answer",result="ok"} 2.0' in text
        assert "shieldfl_open_sessions 1.0" in text
    assert process.stop() == 0
    events = [json.loads(line) for line in process.lines]
    assert [one["call"] for one in events if one["event"] == "call"].count("enrol") == 4
    assert events[-1]["event"] == "stopping"
    assert all(
        one.keys() <= {"time", "level", "event", "call", "session", "result", "bytes", "seconds"}
        for one in events
    )


def test_an_operator_sees_and_ends_sessions(operators, process, clinics):
    with process.client() as client:
        run = served_run(client, KAHE, sign=signing(clinics), min_clients=3)
        shown = json.loads(command("show", operators, "--json", "-").stdout)
        assert shown["public_key"] == process.serving["public_key"]
        assert shown["clients"] == [f"clinic-{index}" for index in range(4)]
        own = [one for one in shown["sessions"] if one["id"] == run.authority.session_id.hex()]
        assert own[0] | {"id": ""} == {
            "id": "",
            "method": "selective-shield",
            "clients": 4,
            "rounds": 100,
            "values": 338,
            "aggregator": "aggregator",
            "registered_clients_only": True,
            "carries_totals": False,
            "encrypts_singly": False,
            "ended": False,
        }
        assert f"{len(shown['sessions'])} sessions ended" in command("rotate", operators, "--sessions").stdout
        assert ", ended" in command("show", operators).stdout
        assert "held by another process" in command("serve", operators, code=1).stderr


def test_an_operator_enrols_and_revokes(operators, tmp_path):
    public = tmp_path / "clinic.pem.pub"
    assert str(public) in command("client-key", tmp_path / "clinic.pem").stdout
    assert "clinic may enrol" in command("enrol", operators, "clinic", public).stdout
    assert AuthorityFolder(operators).registry.public_key("clinic").hex() == public.read_text().strip()
    assert ClientIdentity.load(tmp_path / "clinic.pem").public_key.hex() == public.read_text().strip()
    assert "clinic is revoked" in command("revoke", operators, "clinic").stdout
    assert "under another name" in command("enrol", operators, "clinic", public, code=1).stderr


@pytest.mark.slow
def test_certificates_are_renewed(operators, process):
    assert process.stop() == 0
    before = (operators / "tls" / "server.crt").read_bytes()
    assert "renewed for 7 days" in command_with_key("rotate", operators, "--days", 7).stdout
    assert (operators / "tls" / "server.crt").read_bytes() != before
    process.start()
    with process.client() as client, pytest.raises(Exception, match="no such session"):
        client.session(bytes(16))


def test_what_is_wrong_is_one_line(operators, tmp_path):
    for arguments, words in (
        (("init", operators), "has a key authority already"),
        (("serve", tmp_path / "nothing"), "has no key authority: make one"),
        (("show", tmp_path / "nothing"), "has no key authority: make one"),
        (("enrol", operators, "clinic-9", "no key"), "a public key has 32 bytes"),
        (("enrol", operators, "../clinic", "00" * 32), "a client's name has"),
        (("revoke", operators, "nobody"), "nobody is not registered"),
        (("client-key", operators / "authority.key"), "there is a file"),
        (("rotate", operators, "--passphrase-file", tmp_path / "nothing"), "cannot be read"),
    ):
        done = command(*arguments, code=1)
        assert done.stderr.count("\n") == 1
        assert words in done.stderr
    assert "is no address" in command("serve", operators, "--listen", "7443", code=2).stderr


def test_files_are_for_their_owner_alone(operators, clinics):
    secrets = [
        path for path in operators.rglob("*") if path.suffix in {".key", ".pem"} or path.name == "store"
    ]
    assert len(secrets) > 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in secrets)


EXAMPLE = ROOT / "examples" / "served_authority" / "rounds.py"


def blocks():
    return re.findall(r"^```bash\n(.*?)^```$", doc(PAGE), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_what_the_page_says_to_type_runs(tmp_path):
    """As written, but for the ports, which others on this machine may have."""
    prepare, serve, run = blocks()
    shutil.copy(EXAMPLE, tmp_path)
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = {"cwd": tmp_path, "text": True, "env": os.environ | {"PATH": places, "PYTHONWARNINGS": "error"}}
    passphrase = prepare.splitlines()[0]
    done = subprocess.run(["bash", "-euc", prepare], capture_output=True, check=True, **shell)
    assert "clients      clinic-1, clinic-2, clinic-3\n" in done.stdout
    free = f"{passphrase}\nexec {serve.replace('7443', '0').replace('7444', '0')}"
    process = subprocess.Popen(["bash", "-euc", free], stderr=subprocess.PIPE, **shell)
    try:
        line = process.stderr.readline()
        address = json.loads(line)["address"]
        run = run.replace("127.0.0.1:7443", address)
        done = subprocess.run(["bash", "-euc", run], capture_output=True, check=False, **shell)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "".join(
            f"round {number}: every value of the model is {2 * number}.0000\n" for number in (1, 2)
        )
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0
        assert '"event": "stopping"' in errors.splitlines()[-1]
    finally:
        process.kill()
        process.wait()


def test_the_page_has_every_call_and_setting():
    stated = {re.sub(r".*ID/|`", "", row[0]) for row in table_rows(doc(PAGE), "address")}
    assert stated == CALLS.keys() | {"/v1/sessions", "/v1/offers"}
    named = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in table_rows(doc(PAGE), "setting"))))
    assert named == plain_settings(AuthorityPolicy()).keys()
