"""A file that grows line by line: a line that was written as a whole stays, whatever ends the process."""

from __future__ import annotations

import os
from pathlib import Path

from shieldfl.reporting.output_files import write_whole

__all__ = ["LineFile"]


class LineFile:
    """Lines of text, UTF-8. Raises OSError where the file cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def whole_lines(self) -> list[bytes]:
        """Return the lines that there are, without their ends; one that was cut off as it was written is dropped."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):
            write_whole(self.path, b"".join(whole))
        return [line.rstrip(b"\r\n") for line in whole]

    def add(self, line: str) -> None:
        """Write a line, which is on the disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
