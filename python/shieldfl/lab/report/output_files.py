"""Files that are written whole or not at all, as JSON, CSV or lines, and folders that do not stay empty."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Any


def write_whole(path: Path, contents: str | bytes) -> None:
    """Write a file, text as UTF-8, so that readers see the old file or the new one, never a part.

    A full disk leaves the old file too. Anything but a regular file, such as a pipe, is written to directly.
    Raises OSError, which names the file.
    """
    data = contents.encode("utf-8") if isinstance(contents, str) else contents
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))  # a link stays one
        temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            temporary.write_bytes(data)
            if target.exists():
                temporary.chmod(target.stat().st_mode)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        error.filename = str(path)
        raise


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(facts, indent=2, allow_nan=False) + "\n")


def csv_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return lines below a line of all their names. None and NaN are left empty; infinity is ``inf``."""
    written = list(lines)
    text = StringIO()
    names = list(dict.fromkeys(name for line in written for name in line))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for line in written:
        empty = {name: "" for name, one in line.items() if isinstance(one, float) and math.isnan(one)}
        writer.writerow({**line, **empty})
    return text.getvalue()


class LineFile:
    """Lines of text, UTF-8: a line that was written whole stays, however the process ends.

    Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def whole_lines(self) -> list[bytes]:
        """Return the lines without their ends.

        A line that was cut off as it was written is dropped.
        """
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):
            write_whole(self.path, b"".join(whole))
        return [line.rstrip(b"\r\n") for line in whole]

    def add(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def kept_folder(path: Path) -> Iterator[None]:
    """Make a folder, and at the end remove the new folders in which nothing was put.

    Raises OSError.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # which says that it is not empty
            for folder in made:
                folder.rmdir()
