"""Key files that somebody damaged or made up."""

from __future__ import annotations

import pytest

from shieldfl.roles import key_file

MAGIC = b"shieldfl key file 1\n"


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (b"[" * 200_000, RecursionError),
        (
            b'{"salt": "", "nonce": "", "public_key": "", "min_clients": 1e999, "one_total_per_round": true, '
            b'"opened": {}}',
            OverflowError,
        ),
    ],
    ids=["nested", "infinite"],
)
def test_a_made_up_header_ends_the_reader_with_pythons_own_error(tmp_path, header, error):
    path = tmp_path / "k"
    path.write_bytes(MAGIC + header + b"\n" + bytes(64))
    with pytest.raises(error):
        key_file.read(path, "pass")
