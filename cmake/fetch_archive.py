"""Fetches an archive by its SHA-256 from the indexes that pip is set to, and executes nothing of it.

usage: fetch_archive.py PROJECT ARCHIVE SHA256 FOLDER

`pip download` would run the archive's build, with the packages that it asks for, to learn its version. This takes pip's
own way to an index, which has no public interface: its settings, proxies, certificates and passwords hold here, too.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pip._internal.commands import create_command

_CHUNK_BYTES = 1 << 20


def fetch(project: str, archive: str, sha256: str, folder: Path) -> None:
    """Write ``archive`` into ``folder``, whole and of that SHA-256, or end the process with a message."""
    command = create_command("download")
    options, _ = command.parse_args(["--no-input", "--no-binary", project])
    failures = []
    with command.main_context(), TemporaryDirectory(dir=folder) as unchecked:
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session, ignore_requires_python=True)
        links = [one.link for one in finder.find_all_candidates(project) if one.link.filename == archive]
        for link in links:
            digest = hashlib.sha256()
            try:
                # The archive's own bytes: a server may compress them once more for those who accept that.
                reply = session.get(
                    link.url_without_fragment, headers={"Accept-Encoding": "identity"}, stream=True
                )
                reply.raise_for_status()
                with (Path(unchecked) / archive).open("wb") as file:
                    for chunk in reply.iter_content(_CHUNK_BYTES):
                        digest.update(chunk)
                        file.write(chunk)
            except OSError as error:  # also what requests raises
                failures.append(f"{link} could not be fetched ({type(error).__name__})")
                continue
            if digest.hexdigest() == sha256:
                (Path(unchecked) / archive).replace(folder / archive)
                return
            failures.append(f"{link} has the SHA-256 {digest.hexdigest()} and is refused")
    found = "; ".join(failures) or "none of its indexes lists that name"
    sys.exit(f"pip's settings lead to no {archive} with the SHA-256 {sha256}: {found}")


if __name__ == "__main__":
    fetch(*sys.argv[1:4], Path(sys.argv[4]))
