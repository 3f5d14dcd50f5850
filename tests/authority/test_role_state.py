"""A role's state as bytes: what is refused leaves nothing held and nothing readable."""

from __future__ import annotations

import pytest

from shieldfl.array_view import mapped_frame
from shieldfl.authority.role_state import pack_state, unpack_state
from shieldfl.errors import CapacityError, KeyMismatchError, WireFormatError
from shieldfl.rounds.reports import Reporter
from shieldfl.stateful import encode_record

KEY = bytes(range(32))


def test_a_file_of_a_state_can_be_closed_while_its_refusal_is_on_its_way(tmp_path):
    """What mapped it could not, and its BufferError stood in the place of the refusal."""
    owner, record = b"owner" * 8, b"record" * 100
    for key in (None, KEY):
        state = pack_state(owner, bytearray(record), key)
        for content, kind in (
            (b"other" + state, WireFormatError),
            (state[:40], WireFormatError),
            (state[:-1] + bytes([state[-1] ^ 1]), (WireFormatError, KeyMismatchError)),
        ):
            (tmp_path / "state").write_bytes(content)
            with pytest.raises(kind), mapped_frame(tmp_path / "state") as mapped:
                unpack_state(owner, mapped, key)
        (tmp_path / "state").write_bytes(state)
        with mapped_frame(tmp_path / "state") as mapped:
            opened_record = unpack_state(owner, mapped, key)
            assert bytes(opened_record) == record
            del opened_record
    with pytest.raises(WireFormatError):
        unpack_state(owner, memoryview(b"other" * 20).cast("b"), None)


def test_a_state_overwrites_its_record_whether_it_can_be_sealed_or_not(monkeypatch):
    records: list[bytearray] = []

    def encode(*parts):
        records.append(encode_record(*parts))
        return records[-1]

    monkeypatch.setattr("shieldfl.rounds.reports.encode_record", encode)
    role = Reporter()
    role.bind(bytes(32), "client", 1)
    role.state(KEY)
    monkeypatch.setattr("shieldfl.authority.role_state.LONGEST_SEALED_BYTES", 1)
    with pytest.raises(CapacityError, match="divide the model into parts"):
        role.state(KEY)
    assert [record == bytes(len(record)) != b"" for record in records] == [True, True]
