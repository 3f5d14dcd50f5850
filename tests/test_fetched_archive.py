"""SEAL's source comes from the index that pip is set to, by its hash, and nothing of its archive is executed."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = "pyfhel-3.5.0.tar.gz"
RUN = Path("the-build-was-run")


def packed(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            one = tarfile.TarInfo(f"pyfhel-3.5.0/{name}")
            one.size = len(text)
            archive.addfile(one, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Index:
    """What a package index on the loopback says to each path: the body, or where to go on."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | str] = {}

    def __enter__(self) -> Index:
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = index.pages.get(self.path)
                self.send_response(404 if page is None else 302 if isinstance(page, str) else 200)
                if isinstance(page, str):
                    self.send_header("Location", page)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                if isinstance(page, bytes):
                    self.wfile.write(page)

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as opened:
        yield opened


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    """An archive whose build, with no packages but its own, leaves a trace; beside it, a SEAL of one line."""
    trace = f"open({str(tmp_path / RUN)!r}, 'w').close()\n"
    seal = "Pyfhel/backend/SEAL"
    return packed(
        {
            "setup.py": trace,
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n',
            f"{seal}/CMakeLists.txt": (
                "cmake_minimum_required(VERSION 3.18)\nproject(SEAL NONE)\n"
                "install(FILES SEALConfig.cmake SEALConfigVersion.cmake DESTINATION lib/cmake/SEAL)\n"
                "install(FILES SEALConfig.cmake DESTINATION include)\n"
            ),
            f"{seal}/SEALConfig.cmake": "set(SEAL_FOUND TRUE)\n",
            f"{seal}/SEALConfigVersion.cmake": (
                "set(PACKAGE_VERSION 4.1.2)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
            ),
        }
    )


def settings_of_pip(index_url: str, **others: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("PIP_")}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index_url,
        "PIP_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        **others,
    }


def fetch(folder: Path, wanted: bytes, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    script = ROOT / "cmake" / "fetch_archive.py"
    digest = hashlib.sha256(wanted).hexdigest()
    folder.mkdir()
    return subprocess.run(
        [sys.executable, "-P", script, "Pyfhel", NAME, digest, folder],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def page(link: str) -> bytes:
    return f'<!DOCTYPE html><html><body><a href="{link}">{NAME}</a></body></html>'.encode()


def test_configuring_the_core_executes_nothing_of_the_archive_that_has_seal(tmp_path, index, archive):
    index.pages = {"/simple/pyfhel/": page(f"/files/{NAME}"), f"/files/{NAME}": archive}
    project = tmp_path / "project"
    (project / "cmake").mkdir(parents=True)
    for path in (ROOT / "cmake").iterdir():
        (project / "cmake" / path.name).write_bytes(path.read_bytes())
    pinned = re.sub(
        r'(SHIELDFL_SEAL_SHA256) "\w+"',
        rf'\1 "{hashlib.sha256(archive).hexdigest()}"',
        (project / "cmake" / "seal.cmake").read_text(),
    )
    (project / "cmake" / "seal.cmake").write_text(pinned)
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(core NONE)\ninclude(cmake/seal.cmake)\n"
    )
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [
            *(programs / "cmake", "-S", project, "-B", tmp_path / "build", "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DSHIELDFL_CACHE_DIR={tmp_path / 'cache'}",
            "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
        ],
        env=settings_of_pip(f"{index.address}/simple"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (tmp_path / RUN).exists()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cache" / NAME).read_bytes() == archive
    assert len(list((tmp_path / "cache").iterdir())) == 2  # the archive and what was built of it


@pytest.mark.parametrize("kind", ["relative link with a hash", "redirects", "extra index", "folder"])
def test_every_way_to_an_archive_that_pip_knows_is_taken(tmp_path, index, archive, kind):
    environment = settings_of_pip(f"{index.address}/simple")
    digest = hashlib.sha256(archive).hexdigest()
    index.pages = {"/simple/pyfhel/": page(f"../../files/{NAME}#sha256={digest}"), f"/files/{NAME}": archive}
    match kind:
        case "redirects":
            index.pages["/simple/pyfhel/"] = "/moved"
            index.pages["/moved"] = page(f"/elsewhere/{NAME}")
            index.pages[f"/elsewhere/{NAME}"] = f"/files/{NAME}"
        case "extra index":  # beside one whose archive of that name is another
            index.pages["/other/pyfhel/"] = page(f"/other/{NAME}")
            index.pages[f"/other/{NAME}"] = b"another"
            environment |= {"PIP_EXTRA_INDEX_URL": f"{index.address}/other", "PIP_ONLY_BINARY": ":all:"}
        case "folder":
            (tmp_path / "links").mkdir()
            (tmp_path / "links" / NAME).write_bytes(archive)
            environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "links")}
    done = fetch(tmp_path / "cache", archive, environment)
    assert done.returncode == 0, done.stderr
    assert [path.read_bytes() for path in (tmp_path / "cache").iterdir()] == [archive]
    assert not (tmp_path / RUN).exists()


@pytest.mark.parametrize(
    ("served", "said"),
    [(b"another", "and is refused"), (None, "could not be fetched"), ("nothing", "lists that name")],
)
def test_an_archive_of_another_hash_is_refused_and_leaves_no_file(tmp_path, index, archive, served, said):
    if served != "nothing":
        index.pages = {"/simple/pyfhel/": page(f"/files/{NAME}"), f"/files/{NAME}": served}
    done = fetch(tmp_path / "cache", archive, settings_of_pip(f"{index.address}/simple"))
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "cache").iterdir()) == []
