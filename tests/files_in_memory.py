"""Where tests keep their temporary files: in memory, where a machine has room for them there.

Stores write through to the disk, for which hundreds of tests would wait.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["memory_folder"]

_MEMORY = Path("/dev/shm")
_LEAST_BYTES = 1 << 30


def memory_folder() -> Path | None:
    """Return a folder whose files are in memory, or None: it needs a gigabyte, and programs have to run from it."""
    try:
        system = os.statvfs(_MEMORY)
    except OSError:
        return None
    has_room = system.f_bavail * system.f_frsize >= _LEAST_BYTES
    is_usable = not system.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK)
    return _MEMORY if has_room and is_usable else None
