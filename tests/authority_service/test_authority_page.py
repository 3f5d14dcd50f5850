"""The page about a served authority: what it says to type is typed, and what it states is the code's."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from documentation_pages import ROOT, doc, table_rows
from shieldfl.authority_service.served_session import CALLS
from shieldfl.authority_service.service import AuthorityPolicy
from shieldfl.settings import plain_settings

EXAMPLE = ROOT / "examples" / "served_authority" / "rounds.py"


def blocks():
    return re.findall(r"^```bash\n(.*?)^```$", doc("docs/authority.md"), re.MULTILINE | re.DOTALL)


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
    stated = {re.sub(r".*ID/|`", "", row[0]) for row in table_rows(doc("docs/authority.md"), "address")}
    assert stated == CALLS.keys() | {"/v1/sessions", "/v1/offers"}
    named = set(
        re.findall(r"`(\w+)`", " ".join(row[0] for row in table_rows(doc("docs/authority.md"), "setting")))
    )
    assert named == plain_settings(AuthorityPolicy()).keys()
