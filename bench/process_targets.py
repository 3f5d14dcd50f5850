"""Figures that need a process of their own: a forced instruction set, and peak memory.

SHIELDFL_SIMD=avx2 python bench/process_targets.py speed
SHIELDFL_SIMD=scalar python bench/process_targets.py kahe
python bench/process_targets.py memory
python bench/process_targets.py parts
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import shieldfl as sf
from peak_memory import with_extra_peak_bytes
from shieldfl.lab.bench.comparison import (
    EnrolledSession,
    authority_of,
    own_scheme,
    own_schemes,
    parameter_sets,
)
from shieldfl.lab.bench.measurement import Scheme, select
from shieldfl.lab.bench.measurement import measure as measure_schemes
from shieldfl.lab.bench.others import seal_baselines
from sizes import QUICK, Sizes
from target import Target, at_least, at_most

_PART_VALUES = 1 << 22
"""Of a part of a large update."""


def measure(sizes: Sizes) -> Iterator[Target]:
    """Yield the lines of this page."""
    for instruction_set, target, stretch in (("scalar", 2, 3), ("avx2", 6, 12)):
        yield _forced(
            "speed", instruction_set, "encrypt, against SEAL's encode and encrypt", target, stretch, sizes
        )
    for instruction_set, target in (("scalar", 12), ("avx2", 50)):
        stages = "kahe 24/64: encrypt and serialise, against SEAL"
        yield _forced("kahe", instruction_set, stages, target, None, sizes)
    facts = _in_a_process("memory", sizes, {})
    name = f"extra peak memory over the frame, encrypting {sizes.sparse:,} values"
    if "extra_bytes" not in facts:
        yield at_most(name, None, 1.2, 1.05, note=facts["problem"])
        return
    note = f"{facts['extra_bytes']:,} bytes for a frame of {facts['frame_bytes']:,}"
    yield at_most(name, facts["extra_bytes"] / facts["frame_bytes"], 1.2, 1.05, note=note)
    yield _of_parts(sizes)


def _of_parts(sizes: Sizes) -> Target:
    name = f"kahe: extra peak memory of a client, encrypting {sizes.in_parts:,} values in parts"
    facts = _in_a_process("parts", sizes, {})
    if "extra_bytes" not in facts:
        return at_most(name, None, 200.0, unit="MB", note=facts["problem"])
    note = f"parts of {_PART_VALUES:,} values; frames of {facts['frame_bytes']:,} bytes together"
    return at_most(name, facts["extra_bytes"] / 1e6, 200.0, unit="MB", note=note)


def _forced(
    what: str, instruction_set: str, stages: str, target: float, stretch: float | None, sizes: Sizes
) -> Target:
    name = f"{instruction_set} path, {stages}"
    facts = _in_a_process(what, sizes, {"SHIELDFL_SIMD": instruction_set})
    if facts.get("instruction_set") != instruction_set:
        problem = facts.get("problem", f"the process used {facts.get('instruction_set')}")
        return at_least(name, None, target, stretch, problem)
    note = f"{facts['own_ns']:.2f} ns a value beside {facts['seal_ns']:,.1f}"
    return at_least(name, facts["seal_ns"] / facts["own_ns"], target, stretch, note)


def _in_a_process(what: str, sizes: Sizes, environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), what, *(["--quick"] if sizes == QUICK else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)
    if done.returncode != 0:
        problem = (done.stderr.strip().splitlines() or [""])[-1]
        # What a machine cannot do is said in the table; anything else is an error of ours.
        if not problem.startswith(("shieldfl.errors.ParameterError: SHIELDFL_SIMD asks", "PermissionError")):
            raise RuntimeError(f"{what}: {problem or f'the process ended with {done.returncode}'}")
        return {"problem": problem}
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def _speed(sizes: Sizes) -> dict[str, Any]:
    from scheme_targets import fastest

    return _beside_seal(own_scheme("speed", authority_of(fastest(), 1), 1), "encrypt", sizes)


def _kahe(sizes: Sizes) -> dict[str, Any]:
    return _beside_seal(own_schemes("kahe", 1)[0], "encrypt and serialise", sizes)


def _beside_seal(scheme: Scheme, stage: str, sizes: Sizes) -> dict[str, Any]:
    from scheme_targets import effort_of

    schemes = [scheme, *seal_baselines(1, sizes.baseline_values)[:1]]
    own, seal = measure_schemes(schemes, select(sizes.dense, 1.0), effort_of(sizes))
    return {
        "instruction_set": sf.build_info()["instruction_set"],
        "own_ns": own.stage_ns[stage],
        "seal_ns": seal.stage_ns[stage],
    }


def _parts(sizes: Sizes) -> dict[str, Any]:
    """Encrypt a large update part by part, each written before the next is begun, as a client sends it."""
    update = np.ones(sizes.in_parts, np.float32)
    session = EnrolledSession(parameter_sets("kahe")["kahe 24/64"], 1)
    (key,) = session.client_keys

    def encrypt() -> int:
        written = 0
        with Path(os.devnull).open("wb") as sink:
            for part, first in enumerate(range(0, update.size, _PART_VALUES)):
                encryptor = sf.kahe.Encryptor(key, part=part)
                written += sink.write(encryptor.encrypt(update[first : first + _PART_VALUES]).to_bytes())
        return written

    sf.kahe.Encryptor(key).encrypt(update[:100_000])  # tables and threads' stacks are there from now on
    frame_bytes, extra_bytes = with_extra_peak_bytes(encrypt)
    return {"extra_bytes": extra_bytes, "frame_bytes": frame_bytes}


def _memory(sizes: Sizes) -> dict[str, Any]:
    from scheme_targets import fastest

    authority = sf.KeyAuthority(fastest(), min_clients=1)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    update = select(sizes.sparse, 1.0).update
    encryptor.encrypt(update[:100_000])  # tables, threads' stacks and the like are there from now on
    batch, extra_bytes = with_extra_peak_bytes(lambda: encryptor.encrypt(update))
    return {"extra_bytes": extra_bytes, "frame_bytes": batch.nbytes}


def main() -> None:
    """Measure one thing in this process and print it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = {"speed": _speed, "kahe": _kahe, "memory": _memory, "parts": _parts}
    parser.add_argument("what", choices=parts)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    print(json.dumps(parts[arguments.what](sizes)))


if __name__ == "__main__":
    main()
