"""Every instruction set that the machine has gives the same bits; SHIELDFL_SIMD chooses it, or says why not."""

from __future__ import annotations

import json

import pytest

import shieldfl as sf
from encryption.child_process import INSTRUCTION_SETS, TESTS, lower_instruction_sets, run_python
from encryption.instruction_set_probe import SETTINGS
from encryption.wire_twin import make_known_key


def name_in_use(instruction_set):
    code = "import shieldfl; print(shieldfl.build_info()['instruction_set'])"
    return run_python("-c", code, SHIELDFL_SIMD=instruction_set)


@pytest.fixture(scope="module")
def best():
    done = name_in_use(None)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def probes(best, tmp_path_factory):
    """What each set that the machine has makes of the same inputs."""
    made = {name: make_known_key(sf.ckks.Parameters(**settings)) for name, settings in SETTINGS.items()}
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(
        json.dumps({name: [key.public_frame.hex(), key.exported_secret.hex()] for name, key in made.items()})
    )
    results = {}
    for name in (*lower_instruction_sets(best), best):
        done = run_python(
            str(TESTS / "encryption" / "instruction_set_probe.py"), str(keys), SHIELDFL_SIMD=name
        )
        assert done.returncode == 0, done.stderr
        results[name] = json.loads(done.stdout)
    return results


def test_all_sets_give_the_same_frames_totals_sums_masks_samples_and_noise(probes):
    for name, result in probes.items():
        assert result["instruction set"] == name
        assert result["outputs"] == probes["scalar"]["outputs"], name


def test_the_outputs_that_are_compared_differ_from_each_other(probes):
    groups = [list(group.values()) for group in probes["scalar"]["outputs"].values()]
    assert sum(map(len, groups)) > 25
    for digests in groups:
        assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_a_set_that_is_asked_for_is_used_or_refused(name, best):
    done = name_in_use(name)
    if name in (*lower_instruction_sets(best), best):
        assert done.stdout.strip() == name
    else:
        assert done.returncode != 0
        assert f"SHIELDFL_SIMD asks for {name}" in done.stderr
        assert f"the most is {best}" in done.stderr


@pytest.mark.parametrize("name", ["sse", "AVX2", "avx512 "])
def test_an_unknown_set_is_refused_at_import(name):
    done = run_python("-c", "import shieldfl", SHIELDFL_SIMD=name)
    assert done.returncode != 0
    assert done.stderr.endswith("ParameterError: SHIELDFL_SIMD must be scalar, neon, avx2 or avx512\n")


def test_an_empty_name_means_the_best(best):
    assert name_in_use("").stdout.strip() == best
