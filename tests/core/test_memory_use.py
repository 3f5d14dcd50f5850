"""Peak memory, measured in processes of their own: no copies of updates, of frames, of what is selected."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from core.memory_meter import measured, measures_memory

pytestmark = measures_memory

VALUES = 4_000_000

ENCRYPT = """
with open(sys.argv[1], "rb") as file:
    key = sf.ckks.PublicKey.from_bytes(file.read())
encryptor = sf.ckks.Encryptor(key)
update = np.zeros(int(sys.argv[3]), dtype=np.float32)
update[:] = 0.25
chosen = np.zeros(update.size, dtype=bool)
chosen[::2] = True
mask = sf.Mask.from_bool(chosen) if sys.argv[2] == "half" else None
encryptor.encrypt(update[:5000])
before = status("VmRSS")
frame = encryptor.encrypt(update, mask).to_bytes()
print((status("VmHWM") - before) / len(frame))
"""

ADD = """
with open(sys.argv[1], "rb") as file:
    key = sf.ckks.PublicKey.from_bytes(file.read())
encryptor = sf.ckks.Encryptor(key)
update = np.zeros(int(sys.argv[2]), dtype=np.float32)
frames = [encryptor.encrypt(update).to_bytes() for _ in range(3)]
aggregator = sf.ckks.Aggregator(key)
aggregator.add(frames[0])
aggregator.add(frames[1])
before = status("VmRSS")
aggregator.add(frames[2])
print((status("VmHWM") - before) / len(frames[2]))
"""


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "public"
    path.write_bytes(sf.KeyAuthority(sf.ckks.Parameters()).public_key.to_bytes())
    return path


@pytest.mark.parametrize("share", ["all", "half"])
def test_encrypting_takes_the_memory_of_the_frame(key_file, share):
    values = VALUES if share == "all" else 2 * VALUES
    taken = measured(ENCRYPT, key_file, share, values)
    assert 0.9 < taken <= 1.2


def test_adding_bytes_copies_nothing(key_file):
    assert measured(ADD, key_file, VALUES) < 0.1


def test_reading_a_batch_keeps_the_one_copy_that_it_is_given():
    authority = sf.KeyAuthority(sf.ckks.Parameters())
    frame = sf.ckks.Encryptor(authority.public_key).encrypt(np.zeros(5000)).to_bytes()
    assert sf.ckks.CiphertextBatch.from_bytes(frame).to_bytes() is frame
