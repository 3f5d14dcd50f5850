"""Peak memory, measured in processes of their own: no copies of updates, of frames, of what is selected."""

from __future__ import annotations

import os

import numpy as np
import pytest

import shieldfl as sf
from encryption.child_process import run_python
from encryption.paillier_keys import authority_for

# Resident bytes now, and the most since the process began. The most of later minus the now of earlier bounds from
# above what came on top in between. (getrusage will not do: a child inherits its parent's maximum.)
METERS = """
import sys
import numpy as np
import shieldfl as sf

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))

"""

measures_memory = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer takes memory of its own"
)


def measured(code, *arguments):
    """Run code that prints a figure, behind the meters."""
    done = run_python("-c", METERS + code, *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


ENCRYPT = """
with open(sys.argv[1], "rb") as file:
    key = sf.{scheme}.PublicKey.from_bytes(file.read())
encryptor = sf.{scheme}.Encryptor(key)
update = np.full(int(sys.argv[3]), 0.25, dtype=np.float32)
chosen = np.zeros(update.size, dtype=bool)
chosen[::2] = True
mask = sf.Mask.from_bool(chosen) if sys.argv[2] == "half" else None
encryptor.encrypt(update[: min(5000, update.size // 100)])  # makes tables, and the threads their scratch
before = status("VmRSS")
frame = encryptor.encrypt(update, mask).to_bytes()
print((status("VmHWM") - before) / len(frame))
"""

ADD = """
with open(sys.argv[1], "rb") as file:
    key = sf.{scheme}.PublicKey.from_bytes(file.read())
encryptor = sf.{scheme}.Encryptor(key)
update = np.full(int(sys.argv[2]), 0.25, dtype=np.float32)
*first, last = [encryptor.encrypt(update).to_bytes() for _ in range(int(sys.argv[3]))]
aggregator = sf.{scheme}.Aggregator(key)
for frame in first:
    aggregator.add(frame)
before = status("VmRSS")
aggregator.add(last)
print((status("VmHWM") - before) / len(last))
"""


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    single = authority_for(sf.paillier.Parameters(key_bits=2048, packing="single"))
    for scheme, authority in {"ckks": sf.KeyAuthority(sf.ckks.Parameters()), "paillier": single}.items():
        (folder / scheme).write_bytes(authority.public_key.to_bytes())
    return folder.joinpath


# Single values of Paillier take 512 bytes each: so many that the two megabytes of a huge page do not count.
@measures_memory
@pytest.mark.parametrize(
    ("scheme", "share", "values", "most"),
    [
        ("ckks", "all", 4_000_000, 1.2),
        ("ckks", "half", 8_000_000, 1.2),
        pytest.param("paillier", "all", 50_000, 1.1, marks=pytest.mark.slow),
    ],
)
def test_encrypting_takes_the_memory_of_the_frame(key_file, scheme, share, values, most):
    assert 0.9 < measured(ENCRYPT.format(scheme=scheme), key_file(scheme), share, values) <= most


@measures_memory
@pytest.mark.parametrize(
    ("scheme", "values", "frames"),
    [("ckks", 4_000_000, 3), pytest.param("paillier", 20_000, 2, marks=pytest.mark.slow)],
)
def test_adding_bytes_copies_nothing(key_file, scheme, values, frames):
    assert measured(ADD.format(scheme=scheme), key_file(scheme), values, frames) < 0.1


def test_reading_a_batch_keeps_the_one_copy_that_it_is_given():
    authority = sf.KeyAuthority(sf.ckks.Parameters())
    frame = sf.ckks.Encryptor(authority.public_key).encrypt(np.zeros(5000)).to_bytes()
    assert sf.ckks.CiphertextBatch.from_bytes(frame).to_bytes() is frame
