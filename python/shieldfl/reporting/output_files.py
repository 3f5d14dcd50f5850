"""Files that are there as a whole or not at all, and folders that do not stay behind empty."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["kept_folder", "write_whole"]


def write_whole(path: Path, contents: str | bytes) -> None:
    """Write a file, text as UTF-8, so that whoever looks sees the old one or the new one, never a part.

    A disk that is full leaves the old one too. What is no regular file, such as a pipe, is written to as it is. Raises
    OSError, which names the file.
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


@contextmanager
def kept_folder(path: Path) -> Iterator[None]:
    """Make a folder, and remove what was made of it at the end where nothing was put there. Raises OSError."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # which says that it is not empty
            for folder in made:
                folder.rmdir()
