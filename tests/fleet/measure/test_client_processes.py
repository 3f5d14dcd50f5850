from __future__ import annotations

import os
import tempfile

from shieldfl.fleet.measure.client_processes import ClientProcesses


def test_what_a_client_said_is_read_without_moving_where_others_write():
    processes = object.__new__(ClientProcesses)
    with tempfile.TemporaryFile("w+") as errors:
        processes._errors = errors
        os.write(errors.fileno(), b"first\nlast\n")
        os.lseek(errors.fileno(), 6, os.SEEK_SET)
        assert processes._last_words() == "last"
        assert os.lseek(errors.fileno(), 0, os.SEEK_CUR) == 6
