"""What a type checker says of code that uses the library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).parents[1]

CODE = """
import numpy as np
import torch
import shieldfl as sf

authority = sf.KeyAuthority(sf.ckks.Parameters())
reveal_type(authority.public_key)
reveal_type(sf.KeyAuthority(sf.paillier.Parameters()).public_key)
reveal_type(sf.KeyAuthority(sf.kahe.Parameters(max_clients=8), most_values=1000))
sf.KeyAuthority(sf.pads.Parameters(max_clients=8)).enrol("clinic")
authority.enrol("clinic")  # wrong
sf.KeyAuthority(sf.ckks.Parameters(), most_values=1000)  # wrong
encryptor = sf.ckks.Encryptor(authority.public_key)
encryptor.encrypt(np.zeros(3, dtype=np.float32))
encryptor.encrypt(np.zeros(3))
encryptor.encrypt(torch.zeros(3))
encryptor.encrypt("oops")  # wrong
encryptor.encrypt([0.0])  # wrong
sf.paillier.Encryptor(authority.public_key)  # wrong
"""


def test_wrong_calls_are_found_and_right_ones_are_not(tmp_path: Path):
    code = tmp_path / "snippet.py"
    code.write_text(CODE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", code],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
    )
    said = done.stdout.splitlines()
    errors = {int(line.split(":")[1]) for line in said if ": error:" in line}
    wrong = {number for number, line in enumerate(CODE.splitlines(), start=1) if line.endswith("# wrong")}
    assert errors == wrong, done.stdout + done.stderr
    shown = [line.partition("Revealed type is ")[2].strip('"') for line in said if "Revealed type" in line]
    assert shown == [
        "shieldfl.ckks.parameters.PublicKey",
        "shieldfl.paillier.parameters.PublicKey",
        "shieldfl.roles.sum_key_authority.SumKeyAuthority[shieldfl.kahe.parameters.PublicKey]",
    ]
