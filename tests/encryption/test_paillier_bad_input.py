"""What Paillier refuses: all that every scheme does, and what unions, integer weights and residues bring along."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from encryption.paillier_keys import authority_for, base_for, primes, public_key_frame
from encryption.scheme_refusals import SIZE, UPDATE, SchemeRefusals, values_out_of_range, wrong_arrays
from encryption.wire_twin import reseal


class TestRefusals(SchemeRefusals):
    """An update fills three ciphertexts."""

    scheme = sf.paillier

    @staticmethod
    def make_authority(**parameters):
        chosen = {"key_bits": 2048, "max_clients": 3, "max_weight": 2, **parameters}
        return authority_for(sf.paillier.Parameters(**chosen))

    def test_foreign_key(self, aggregator, authority):
        parameters = authority.public_key.parameters
        p, q = primes(parameters.key_bits)
        other_base = base_for(parameters, p * q) * 9 % (p * q)
        key = sf.paillier.PublicKey.from_bytes(public_key_frame(parameters, p * q, other_base))
        with pytest.raises(sf.KeyMismatchError):
            aggregator.add(sf.paillier.Encryptor(key).encrypt(UPDATE, round=1))

    @wrong_arrays
    def test_wrong_arrays_in_a_union(self, encryptor, update):
        order = sf.paillier.UnionOrder.from_masks([sf.Mask.full(10)])
        with pytest.raises(sf.ArrayTypeError):
            encryptor.encrypt_in_union(update, order, sf.Mask.full(10))
        with pytest.raises(sf.ArrayTypeError):
            order.clear_fields(update, sf.Mask.full(10))

    @values_out_of_range
    def test_first_bad_position_in_a_union_is_named(self, encryptor, value):
        update = np.full(500, 0.25)
        update[[300, 400]] = value
        mask = sf.Mask.from_indices([5, 300], 500)
        order = sf.paillier.UnionOrder.from_masks([mask, sf.Mask.from_indices([7], 500)])
        with pytest.raises(sf.RangeError, match="position 300"):
            encryptor.encrypt_in_union(update, order, mask)

    def test_a_batch_in_a_union_among_others(self, aggregator, encryptor):
        order = sf.paillier.UnionOrder.from_masks([sf.Mask.full(SIZE)])
        with pytest.raises(sf.ParameterError):
            aggregator.add(encryptor.encrypt_in_union(UPDATE, order, sf.Mask.full(SIZE), round=1))

    @pytest.mark.parametrize("weight", [0, 3, 2**32 + 1, 2**70, -1, 1.5, None])
    def test_bad_integer_weights(self, aggregator, encryptor, weight):
        with pytest.raises(sf.ParameterError, match="weight"):
            aggregator.add(encryptor.encrypt(UPDATE, round=1), weight=weight)

    def test_a_batch_with_an_encrypted_weight_takes_no_other(self, authority, encryptor):
        aggregator = sf.paillier.Aggregator(authority.public_key)
        with pytest.raises(sf.ParameterError, match="weight"):
            aggregator.add(encryptor.encrypt(UPDATE, weight=1.0), weight=2)
        aggregator.add(encryptor.encrypt(UPDATE, weight=1.0))

    @pytest.mark.parametrize(
        "ask",
        [
            lambda encryptor: encryptor.precompute(-1),
            lambda encryptor: encryptor.precompute(2**24 + 1),
            lambda encryptor: encryptor.ciphertexts_for(-1),
            lambda encryptor: encryptor.encrypt_in_union(UPDATE, None, sf.Mask.full(SIZE)),
        ],
    )
    def test_bad_settings(self, encryptor, ask):
        with pytest.raises(sf.ParameterError):
            ask(encryptor)

    def test_residues_that_are_none_under_a_fitting_checksum(self, aggregator, encryptor):
        """Above n^2, zero, and with a factor in common with n, which only whoever knows it can send."""
        p, q = primes(2048)
        frame = encryptor.encrypt(UPDATE, round=1).to_bytes()
        for residue in ((p * q) ** 2, 2**4096 - 1, 0, p, q * q, p * q, 12345 * p):
            for block in range(3):
                altered = bytearray(frame)
                begin = len(frame) - 4 - (3 - block) * 512
                altered[begin : begin + 512] = residue.to_bytes(512, "big")
                with pytest.raises(sf.WireFormatError, match=rf"\b{block}\b"):
                    aggregator.add(reseal(bytes(altered)))

    def test_frames_of_the_other_scheme(self, aggregator):
        other = sf.KeyAuthority(sf.ckks.Parameters(max_clients=3))
        batch = sf.ckks.Encryptor(other.public_key).encrypt(UPDATE, round=1)
        read = sf.ckks.CiphertextBatch.from_bytes(batch.to_bytes())
        for source in (batch, batch.to_bytes(), read):
            with pytest.raises(sf.WireFormatError, match="ckks batch"):
                aggregator.add(source)
            with pytest.raises(sf.WireFormatError, match="ckks batch"):
                aggregator.add(source, clear=np.zeros(SIZE))

    @pytest.mark.parametrize(
        ("clear", "error"),
        [
            (np.zeros(SIZE - 1), sf.ParameterError),
            (np.zeros(0), sf.ParameterError),
            (np.zeros(SIZE, dtype=np.int64), sf.ArrayTypeError),
            ([0.0] * SIZE, sf.ArrayTypeError),
            (np.full(SIZE, 8.0), sf.RangeError),
            (np.full(SIZE, np.nan, dtype=np.float32), sf.RangeError),
        ],
        ids=["too few", "none", "integers", "list", "too large", "nan"],
    )
    def test_bad_clear_fields(self, aggregator, encryptor, clear, error):
        batch = encryptor.encrypt(UPDATE, round=1)
        for source in (batch.to_bytes(), sf.paillier.CiphertextBatch.from_bytes(batch.to_bytes())):
            with pytest.raises(error):
                aggregator.add(source, clear=clear)

    def test_a_forged_weight_does_not_pass(self, authority, total):
        """Clients and weight stand in the frame: more weight than clients can have is refused when it is read."""
        frame = total.to_bytes()
        offset = 48 + 16 + 8 + 16 + 8 + 4 + 4
        assert frame[offset : offset + 8] == (1).to_bytes(8, "little")
        for weight in (0, 3, 2**63):
            with pytest.raises(sf.WireFormatError, match="weights"):
                authority.open(reseal(frame[:offset] + weight.to_bytes(8, "little") + frame[offset + 8 :]))

    @pytest.mark.parametrize("thing", [None, 10**15, "frame", np.zeros(4)])
    def test_an_order_is_read_from_bytes(self, thing):
        with pytest.raises(sf.WireFormatError):
            sf.paillier.UnionOrder.from_bytes(thing)
