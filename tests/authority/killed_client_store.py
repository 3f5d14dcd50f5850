"""Starts clients that make frame after frame, each until it is killed, as ``killed_store`` starts authorities."""

from __future__ import annotations

import hashlib
import os
import sys
from itertools import count
from pathlib import Path

from authority.client_store_cases import PUBLIC_KEY, encrypt, kept, opened
from authority.killed_store import start_each_until_killed


def send_until_killed(path, _):
    with opened(path) as store:
        # The newest that was made may have left, or not: it is made again, of the same values.
        for number in count(max(1, store.round(PUBLIC_KEY))):
            stored = kept(store, number)
            frame = encrypt(store, number)
            assert stored in (None, frame)
            # Short enough for a pipe to take it whole or not at all.
            os.write(1, f"answer {number} {hashlib.sha256(frame).hexdigest()}\n".encode())


if __name__ == "__main__":
    start_each_until_killed(send_until_killed, Path(sys.argv[1]))
