"""Messages survive the wire unchanged, and nothing that is not one gets through."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, WireFormatError

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60).filter(
    lambda name: len(name.encode()) <= 255
)
messages = st.dictionaries(names, st.binary(max_size=200), max_size=6).map(Message)


@given(messages, st.binary(min_size=1, max_size=20))
def test_what_is_read_is_what_was_written_and_nothing_shorter_or_longer(message, rest):
    wire = message.to_bytes()
    for other in (wire + rest, *(wire[:length] for length in range(len(wire)))):
        with pytest.raises(WireFormatError):
            Message.from_bytes(other)
    again = Message.from_bytes(message.to_bytes())
    assert again == message
    assert list(again) == list(message)
    assert again.to_bytes() == message.to_bytes()
    assert message.nbytes == len(message.to_bytes())
    assert len(again) == len(message)


@given(messages, st.data())
def test_a_flipped_bit_is_refused_or_read_as_another_message(message, data):
    """Messages carry no checksum (frames in them do), but what is read is never the same by accident."""
    wire = bytearray(message.to_bytes())
    position = data.draw(st.integers(0, len(wire) * 8 - 1))
    wire[position // 8] ^= 1 << (position % 8)
    try:
        other = Message.from_bytes(bytes(wire))
    except WireFormatError:
        return
    assert other != message
    assert other.to_bytes() == bytes(wire)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_or_read_consistently(data):
    for candidate in (data, b"SHMS" + data):
        try:
            message = Message.from_bytes(candidate)
        except WireFormatError:
            continue
        assert message.to_bytes() == candidate


OF_ONE_LETTER = struct.pack("<BQ", 1, 0)


@pytest.mark.parametrize(
    ("count", "parts", "words"),
    [
        (1, struct.pack("<BQ", 1, 2**63) + b"ab", "truncated"),
        (1, struct.pack("<BQ", 1, 2**64 - 1) + b"ab", "truncated"),
        (2, (OF_ONE_LETTER + b"a") * 2, "twice"),
        (1, OF_ONE_LETTER + b"\xff", "damaged"),
    ],
)
def test_parts_that_are_too_long_come_twice_or_have_no_name_are_refused(count, parts, words):
    with pytest.raises(WireFormatError, match=words):
        Message.from_bytes(struct.pack("<4sH", b"SHMS", count) + parts)


def test_what_the_wire_cannot_carry_is_refused_when_it_is_made():
    with pytest.raises(ParameterError, match="255 bytes"):
        Message({"n" * 256: b""})
    assert "n" * 255 in Message({"n" * 255: b""})
    with pytest.raises(ParameterError, match="65,535 parts"):
        Message({str(index): b"" for index in range(65_536)})


def test_a_message_keeps_its_parts_when_the_callers_dictionary_changes():
    parts = {"a": b"1"}
    message = Message(parts)
    parts["a"] = b"2"
    assert message["a"] == b"1"


def test_parts_that_were_read_are_views_of_the_bytes_and_read_only():
    wire = Message({"frame": b"12345", "other": b""}).to_bytes()
    part = Message.from_bytes(wire)["frame"]
    assert isinstance(part, memoryview)
    assert part.obj is wire
    with pytest.raises(TypeError, match="read-only"):
        part[0] = 0


@pytest.mark.parametrize("kind", [bytearray, lambda wire: memoryview(bytearray(wire))])
def test_bytes_that_change_after_reading_change_no_part(kind):
    data = kind(Message({"frame": b"12345"}).to_bytes())
    message = Message.from_bytes(data)
    data[-1] = 0
    assert message["frame"] == b"12345"


@pytest.mark.parametrize("before", range(8))
def test_vectors_are_aligned_wherever_they_lie_in_a_message(before):
    values = np.arange(5, dtype=np.float64)
    message = Message.from_bytes(Message({"a": bytes(before), "v": values.tobytes()}).to_bytes())
    vector = message.vector("v", np.float64, 5)
    assert vector.flags.aligned
    assert not vector.flags.writeable
    np.testing.assert_array_equal(vector, values)
    assert np.shares_memory(vector, message.vector("v", np.float64, 5))


@pytest.mark.parametrize("size", [0, 4, 6, 2**62])
def test_a_vector_of_another_size_is_refused(size):
    message = Message({"v": np.zeros(5, dtype=np.float32).tobytes()})
    with pytest.raises(WireFormatError, match="20 bytes"):
        message.vector("v", np.float32, size)


@given(st.integers(0, 2**64 - 1))
def test_numbers(value):
    assert Message({"n": Message.from_number(value)}).number("n") == value


def test_a_missing_part_is_named():
    with pytest.raises(WireFormatError, match="'update'"):
        Message({"mask": b""})["update"]
    assert "mask" in Message({"mask": b""})
    assert "update" not in Message({"mask": b""})


def test_the_representation_shows_sizes_and_no_contents():
    assert repr(Message({"update": b"secret" * 200})) == "Message(update: 1,200 bytes)"


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"a": None}, "NoneType"),
        ({"a": 5}, "int"),
        ({"a": "text"}, "str"),
        ({"a": bytearray(3)}, "bytearray"),
        ({"a": np.zeros(2)}, "ndarray"),
        ({"a": memoryview(bytes(8)).cast("I")}, "flat"),
        ({"a": memoryview(bytes(8))[::2]}, "flat"),
        ({"\ud800": b""}, "name"),
        ({1: b""}, "name"),
        ({b"a": b""}, "name"),
    ],
)
def test_what_cannot_be_sent_is_no_message(parts, what):
    with pytest.raises(ParameterError, match=what):
        Message(parts)


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, None, "7"])
def test_what_is_no_unsigned_number_is_no_part(value):
    with pytest.raises(ParameterError, match="a message's number"):
        Message.from_number(value)
