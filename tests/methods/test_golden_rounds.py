"""Methods make of fixed inputs what they made of them before."""

from __future__ import annotations

import functools
import json

import pytest

from methods.golden_rounds import GOLDEN, Variant, golden_rounds, golden_variants
from shieldfl.methods.discovery import BUILT_IN


@functools.cache
def golden() -> dict:
    return json.loads(GOLDEN.read_text("utf-8"))


@pytest.mark.parametrize("variant", golden_variants(), ids=lambda variant: variant.label)
@pytest.mark.parametrize("restarts", [False, True], ids=["lasting", "restarted"])
def test_rounds_come_to_what_they_did(variant: Variant, restarts: bool) -> None:
    """Also where every step runs in a new object, which was restored from the state of the one before."""
    now = json.loads(json.dumps(golden_rounds(variant, restarts_roles=restarts)))
    then = golden()[variant.label]
    assert now["settings"] == then["settings"]
    assert now["notes"] == then["notes"]
    for number, (new, old) in enumerate(zip(now["rounds"], then["rounds"], strict=True), 1):
        assert new == old, f"round {number}"
    assert now["events"] == then["events"]


def test_every_method_is_recorded() -> None:
    assert {label.partition("/")[0] for label in golden()} == set(BUILT_IN)
    assert set(golden()) == {variant.label for variant in golden_variants()}


def test_models_move_and_differ() -> None:
    """A record of the same digest everywhere would be none of anything."""
    last = {label: entry["rounds"][-1]["parameters"] for label, entry in golden().items()}
    for label, entry in golden().items():
        assert len({one["parameters"] for one in entry["rounds"]}) == len(entry["rounds"]), label
    assert len(set(last.values())) > len(BUILT_IN) // 2
