"""The authority of key-additive encryption with a million clients: to derive and sum their secrets, and to commit that.

python bench/million_clients.py                        # three minutes of one core, 1.3 GB of memory, 1 GB of disk
python bench/million_clients.py --clients 1000
python bench/million_clients.py --without-store        # derive and sum alone: half a minute

An authority sees who is in a total, and a digest of it. So no client encrypts here, and there is no total: the list is
written as an aggregator writes it. The keys are there, one for each client.
"""

from __future__ import annotations

import argparse
import secrets
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peak_memory import with_extra_peak_bytes
from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.authority.authority_store import AuthorityStore, StoredKeys
from shieldfl.authority.key_authority import SumKeyAuthority
from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import ResultConsole
from shieldfl.encryption import kahe
from shieldfl.encryption.opening import sum_key
from shieldfl.lab.bench.comparison import describe_machine
from target import Target, at_most, print_targets

NAME = "authority of kahe, N = 4096, one secret each"
MOST_ENROLLED_AT_ONCE = 100_000

_PARTICIPANT = np.dtype([("client", "<u4"), ("frame_id", "V16")])
_HEADER = struct.Struct("<4sHHQ")
_AFTER_NUMBER_OF_CLIENTS = 16 + 4  # the purpose and the part of the model
_DIGEST_BYTES, _CHECKSUM_BYTES = 32, 4


@dataclass(frozen=True)
class Cost:
    """Of one call."""

    seconds: float
    processor_seconds: float
    extra_bytes: int | None
    """The peak of memory above what there was before; None where the kernel does not tell."""

    @property
    def note(self) -> str:
        """What is not in the figure itself."""
        memory = (
            "" if self.extra_bytes is None else f", {self.extra_bytes / 1e6:,.1f} MB of memory at its peak"
        )
        return f"{self.processor_seconds:.2f} s of processor time{memory}"


def measured(function: Callable[[], Any]) -> tuple[Any, Cost]:
    """Call a function once; return what it returns, and what it cost."""
    times: list[float] = []

    def timed() -> Any:
        times.extend((time.perf_counter(), time.process_time()))
        result = function()
        times.extend((time.perf_counter(), time.process_time()))
        return result

    try:
        result, extra = with_extra_peak_bytes(timed)
    except PermissionError:
        if times:  # it is what was measured that has raised
            raise
        result, extra = timed(), None
    return result, Cost(times[2] - times[0], times[3] - times[1], extra)


def crc32c(data: bytes) -> int:
    """Return the checksum of frames, bit by bit into a table and byte by byte from there: seconds for a million."""
    table = []
    for byte in range(256):
        entry = byte
        for _ in range(8):
            entry = (entry >> 1) ^ (0x82F63B78 if entry & 1 else 0)
        table.append(entry)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def request_with(request: bytes, participants: np.ndarray) -> bytes:
    """Return the request of a total of one client, of another list in place of that client.

    Parameters
    ----------
    request : what ``Total.request`` gave.
    participants : of :data:`_PARTICIPANT`, by client in ascending order.
    """
    end = len(request) - _DIGEST_BYTES - _CHECKSUM_BYTES
    begin = end - _PARTICIPANT.itemsize
    number = begin - _AFTER_NUMBER_OF_CLIENTS - 4
    before = bytearray(request[:begin])
    struct.pack_into("<I", before, number, len(participants))
    magic, version, kind, length = _HEADER.unpack_from(before)
    more = _PARTICIPANT.itemsize * (len(participants) - 1)
    _HEADER.pack_into(before, 0, magic, version, kind, length + more)
    frame = bytes(before) + participants.tobytes() + request[end:-_CHECKSUM_BYTES]
    return frame + struct.pack("<I", crc32c(frame))


def request_of_all(
    public_key: kahe.PublicKey, clients: int, round_number: int = 0, values: int = 100
) -> bytes:
    """Return what an aggregator asks for, whose total has the first so many clients; a digest of no total."""
    key = kahe.ClientKey.of_secret(public_key, 0, secrets.token_bytes(32))
    aggregator = kahe.Aggregator(public_key, 1)
    aggregator.add(kahe.Encryptor(key, 1).encrypt(np.ones(values, np.float32), round=round_number))
    participants = np.empty(clients, _PARTICIPANT)
    participants["client"] = np.arange(clients)
    participants["frame_id"] = np.frombuffer(secrets.token_bytes(16 * clients), "V16")
    return request_with(aggregator.total().request(), participants)


def parameters_for(clients: int) -> kahe.Parameters:
    """Return what so many clients can sum 24-bit values with."""
    return kahe.Parameters(max_clients=clients, value_bits=24, fraction_bits=20, ring_degree=4096)


def measure_sum(clients: int, threads: tuple[int | None, ...] = (1, None)) -> Iterator[Target]:
    """Yield the lines of deriving and summing; None stands for all cores."""
    public_key = kahe.PublicKey.of_session(
        parameters_for(clients), secrets.token_bytes(32), secrets.token_bytes(16)
    )
    keys = [
        kahe.ClientKey.of_secret(public_key, client, secrets.token_bytes(32)) for client in range(clients)
    ]
    request = request_of_all(public_key, clients)
    answers = set()
    for number in threads:
        answer, cost = measured(lambda number=number: sum_key(public_key, request, keys, threads=number))
        answers.add(bytes(answer))
        on = "all cores" if number is None else f"{number} thread"
        yield at_most(f"{NAME}: {clients:,} clients, {on}", cost.seconds, 10.0, unit="s", note=cost.note)
    if len(answers) > 1:
        raise RuntimeError("the answer depends on the number of threads")
    note = f"the request has {len(request):,} bytes"
    yield at_most(f"{NAME}: answer for {clients:,} clients", len(answer) / 1e3, 16.0, unit="kB", note=note)


class TimedAuthority(SumKeyAuthority[kahe.PublicKey]):
    """Knows how long it has computed in the midst of what its store does."""

    seconds = 0.0

    def _computed(self, asked: Any, frame: bytes, held: StoredKeys) -> bytes:
        begin = time.perf_counter()
        computed = super()._computed(asked, frame, held)
        self.seconds = time.perf_counter() - begin
        return computed


def measure_store(clients: int) -> Iterator[Target]:
    """Yield the lines of an authority whose store is a file: enrolment, and the answers of two rounds."""
    owner = AuthoritySecrets()
    with tempfile.TemporaryDirectory() as folder:
        store = AuthorityStore.create(Path(folder, "store"), owner.store_key, owner.store_id)
        with TimedAuthority(parameters_for(clients), owner=owner, store=store) as authority:
            public_key = authority.public_key

            def enrol() -> None:
                for first in range(0, clients, MOST_ENROLLED_AT_ONCE):
                    some = range(first, min(first + MOST_ENROLLED_AT_ONCE, clients))
                    keys = [authority.shared(client, secrets.token_bytes(32)) for client in some]
                    store.enrol({public_key.id: StoredKeys.joined(keys)}, {public_key.id: {}})

            _, cost = measured(enrol)
            yield at_most(f"store: enrol {clients:,} clients", cost.seconds, None, unit="s", note=cost.note)
            # The first round has keys that were sealed one by one, every later one those of one transaction.
            for round_number in (0, 1):
                request = request_of_all(public_key, clients, round_number)
                _, cost = measured(lambda request=request: authority.sum_key(request))
                name = f"store: answer for {clients:,} clients, round {round_number}"
                note = f"{authority.seconds:.1f} s of it to compute, the rest is the store's; {cost.note}"
                yield at_most(name, cost.seconds, None, unit="s", note=note)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--without-store", action="store_true")
    arguments = parser.parse_args()
    machine, console = describe_machine(), ResultConsole()
    targets = list(measure_sum(arguments.clients))
    if not arguments.without_store:
        targets += measure_store(arguments.clients)
    print_machine(machine, console)
    print_targets(targets, console)


if __name__ == "__main__":
    main()
