"""What CKKS refuses: all that every scheme does, a foreign key, parameters; and buffers that change under it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.scheme_refusals import UPDATE, SchemeRefusals


class TestRefusals(SchemeRefusals):
    @staticmethod
    def make_authority(**parameters):
        chosen = sf.ckks.Parameters(**{"max_clients": 3, **parameters})
        return sf.KeyAuthority(chosen, min_clients=1, one_total_per_round=False)

    def test_foreign_key(self, aggregator):
        with pytest.raises(sf.KeyMismatchError):
            aggregator.add(sf.ckks.Encryptor(self.make_authority().public_key).encrypt(UPDATE, round=1))

    @pytest.mark.parametrize("wrap", [bytearray, lambda frame: memoryview(bytearray(frame))])
    def test_a_buffer_that_changes_while_it_is_added_spoils_that_sum_at_worst(
        self, authority, encryptor, wrap
    ):
        """Whoever writes to it breaks the contract: the frame is refused or the sum is wrong, and no more than that."""
        frame = encryptor.encrypt(np.zeros(300_000, dtype=np.float32), round=1).to_bytes()
        stop = threading.Event()
        buffer = wrap(frame)

        def scribble():
            while not stop.is_set():
                buffer[len(frame) // 2 :] = b"\xff" * (len(frame) - len(frame) // 2)
                buffer[:] = frame

        writer = threading.Thread(target=scribble)
        writer.start()
        try:
            for _ in range(20):
                aggregator = sf.ckks.Aggregator(authority.public_key)
                try:
                    aggregator.add(buffer)
                except sf.WireFormatError:
                    assert aggregator.clients == 0
                else:
                    assert aggregator.clients == 1
        finally:
            stop.set()
            writer.join()
        buffer[:] = frame
        aggregator = sf.ckks.Aggregator(authority.public_key)
        aggregator.add(buffer)
        assert not authority.open(aggregator.total()).any()


@pytest.mark.parametrize(
    "settings",
    [
        {"packing": "dense"},
        {"max_clients": 0},
        {"max_clients": 2**20 + 1},
        {"max_clients": 2**40},
        {"max_clients": -1},
        {"value_bits": 1},
        {"value_bits": 41},
        {"value_bits": 2.5},
        {"fraction_bits": 53},
        {"ring_degree": 1024},
        {"ring_degree": 2048, "value_bits": 40},
        {"max_clients": 2**20, "value_bits": 40},
        {"packing": "slots", "fraction_bits": 52},
    ],
)
def test_bad_parameters(settings):
    with pytest.raises(sf.ParameterError):
        sf.ckks.Parameters(**settings)


def test_parameters_cannot_be_changed():
    parameters = sf.ckks.Parameters()
    with pytest.raises(AttributeError):
        parameters.max_clients = 5


def test_the_core_takes_no_packing_that_it_does_not_know():
    _core.CkksParameters("slots", 4, 24, 20, None)
    with pytest.raises(sf.ParameterError, match="unknown name 'slot'"):
        _core.CkksParameters("slot", 4, 24, 20, None)
