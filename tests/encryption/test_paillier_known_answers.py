"""Paillier's numbers as they always are: the twin's and both engines', against numbers that are written here."""

from __future__ import annotations

import pytest

from encryption.test_paillier_engines import each_engine, encrypt
from reference.paillier import PublicKey, SecretKey


class TestKnownAnswers:
    """Numbers that pow and Python's integers alone gave, for a modulus of 192 bits, far too short for use."""

    p, q = 0xDEADBEEFCAFEF00D012346EB, 0xFEDCBA98765432100000001F
    n = 0xDDB06310DC4C4FB1FC7CD8449F1325DE2209664323459675
    x = 0x0123456789ABCDEF0123456789ABCDEF
    h = 0x8EF07809EF2E4E64B75193583E1898B88C4828FC9563FE8B
    h_n = int(
        "93ba4a828586ef5442cf0749599bfa67dd29e19c911bbc266cc7ef2ea5dc4f752281eea473e840d7f7db1ba56656195f", 16
    )
    exponents = (0xB0B5CAFF1E5DE6A7E5EED5, 0xFEEDFACEFEEDFACEFEEDFACE)
    plaintexts = (0x123456789ABCDEF, n - 5)
    ciphertexts = (
        int(
            "992da1d21cd52413e1efc5988c4bd20d209417d8a89b9974"
            "a4dc8e53e2321dae34d8ac37aa43a47412bdfb81dd4a3af3",
            16,
        ),
        int(
            "a88fe2d254230a6cba1a78192dd1215e5437e8ab814be76b"
            "15e68dc7ae1bfaad67ff2288446d856e77a226e9c1a04ae5",
            16,
        ),
    )
    total = int(
        "09aee8e703214cefe1a7cd0baefd1c125bbe2336f6b8dbf87557450bc5d4aec7f481f5270d9d87a73c9e7c5f6ac24dfa", 16
    )
    sum_of_plaintexts = 0x123456789ABCDEA
    # The first ciphertext to the power 7, with another plaintext added in the clear.
    weight, addend = 7, 0xABCDEF
    weighted = int(
        "59f79d11df8dbc4467e558a3497b45134fbea3d35256d7a6554b1c26f0df7fc31d2513e3b0d5065d982cc38885161343", 16
    )
    weighted_plaintext = 0x7F6E5D4C45E6F78
    r = 0x1234567890ABCDEF1234567890ABCDEF
    classical = int(
        "5a72d98bf9ddce324dbca5f539498493b9661158e3d496903f5124f70182df6b35035d25791b2661499d151bf9b80f9e", 16
    )

    def test_of_the_twin(self):
        key, secret = PublicKey(self.n, self.h), SecretKey(self.p, self.q)
        key.check()
        secret.check(key)
        assert key.base == -(self.x**2) % self.n
        assert key.short_randomizer(1) == self.h_n
        first, second = self.ciphertexts
        for plaintext, exponent, ciphertext in zip(
            self.plaintexts, self.exponents, self.ciphertexts, strict=True
        ):
            assert key.encrypt(plaintext, key.short_randomizer(exponent)) == ciphertext
            assert secret.decrypt(ciphertext) == plaintext
        assert key.encrypt(self.plaintexts[0], key.classical_randomizer(self.r)) == self.classical
        assert secret.decrypt(self.classical) == self.plaintexts[0]
        assert key.add(first, second) == self.total
        assert secret.decrypt(self.total) == self.sum_of_plaintexts
        assert key.add_plaintext(key.multiply(first, self.weight), self.addend) == self.weighted
        assert secret.decrypt(self.weighted) == self.weighted_plaintext

    @each_engine
    @pytest.mark.parametrize("vartime", [False, True])
    def test_of_the_core(self, engine, vartime):
        n = self.n

        def power(base, exponents, plaintexts, exponent_bits):
            return encrypt(engine, n, base, exponents, plaintexts, exponent_bits, vartime)

        assert power(self.h, [n], [0], 192) == [self.h_n]
        assert power(self.h_n, self.exponents, self.plaintexts, 96) == list(self.ciphertexts)
        assert power(self.r, [n], self.plaintexts[:1], 192) == [self.classical]
        assert power(self.ciphertexts[0], [self.weight], [self.addend], 3) == [self.weighted]
