"""Peak memory, measured in processes of their own: a large frame of single values, once, and little more."""

from __future__ import annotations

import pytest

import shieldfl as sf
from core.memory_meter import measured, measures_memory
from core.paillier_keys import authority_for

pytestmark = measures_memory

# 512 bytes each: so many that the two megabytes of a huge page do not count.
CIPHERTEXTS = 50_000
FEWER_CIPHERTEXTS = 20_000

ENCRYPT = """
with open(sys.argv[1], "rb") as file:
    key = sf.paillier.PublicKey.from_bytes(file.read())
encryptor = sf.paillier.Encryptor(key)
update = np.full(int(sys.argv[2]), 0.25, dtype=np.float32)
encryptor.encrypt(update[:500])  # makes the table, and the threads their scratch
before = status("VmRSS")
frame = encryptor.encrypt(update).to_bytes()
print((status("VmHWM") - before) / len(frame))
"""

ADD = """
with open(sys.argv[1], "rb") as file:
    key = sf.paillier.PublicKey.from_bytes(file.read())
encryptor = sf.paillier.Encryptor(key)
update = np.full(int(sys.argv[2]), 0.25, dtype=np.float32)
frames = [encryptor.encrypt(update).to_bytes() for _ in range(2)]
aggregator = sf.paillier.Aggregator(key)
aggregator.add(frames[0])
before = status("VmRSS")
aggregator.add(frames[1])
print((status("VmHWM") - before) / len(frames[1]))
"""


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "public"
    authority = authority_for(sf.paillier.Parameters(key_bits=2048, packing="single"))
    path.write_bytes(authority.public_key.to_bytes())
    return path


@pytest.mark.slow
def test_encrypting_takes_the_memory_of_the_frame(key_file):
    assert 0.9 < measured(ENCRYPT, key_file, CIPHERTEXTS) <= 1.1


@pytest.mark.slow
def test_adding_bytes_copies_nothing(key_file):
    assert measured(ADD, key_file, FEWER_CIPHERTEXTS) < 0.1
