"""Methods make of fixed inputs what they made of them before."""

from __future__ import annotations

import functools
import json

import pytest

from methods.golden_rounds import GOLDEN, Variant, golden_rounds, golden_variants
from methods.variants import twins
from shieldfl.methods.registry import BUILT_IN, method_class


@functools.cache
def golden() -> dict:
    return json.loads(GOLDEN.read_text("utf-8"))


# Every other variant with roles that are restored, the rest of both ways in the long form. That both come to the same
# is a test of the conformance suite too, for the variants that are in it.
LASTING_OR_RESTARTED = [
    pytest.param(
        variant,
        restarts,
        id=f"{variant.label}-{'restarted' if restarts else 'lasting'}",
        marks=[] if restarts == bool(place % 2) else pytest.mark.slow,
    )
    for place, variant in enumerate(golden_variants())
    for restarts in (False, True)
]


@pytest.mark.parametrize(("variant", "restarts"), LASTING_OR_RESTARTED)
def test_rounds_come_to_what_they_did(variant: Variant, restarts: bool) -> None:
    """Also where every step runs in a new object, which was restored from the state of the one before."""
    now = json.loads(json.dumps(golden_rounds(variant, restarts_roles=restarts)))
    then = golden()[variant.label]
    assert now["settings"] == then["settings"]
    assert now["notes"] == then["notes"]
    for number, (new, old) in enumerate(zip(now["rounds"], then["rounds"], strict=True), 1):
        assert new == old, f"round {number}"
    assert now["events"] == then["events"]


def what_all_schemes_come_to(entry: dict) -> dict:
    """A record without what is of the scheme: how many bytes there are."""
    sizes = ("sent", "closed", "answers")
    of_scheme = ("encryption", "bytes_per_encrypted_value")
    rounds = [{name: fact for name, fact in one.items() if name not in sizes} for one in entry["rounds"]]
    settings = {name: value for name, value in entry["settings"].items() if name not in of_scheme}
    return entry | {"rounds": rounds, "settings": settings}


def has_bits_of_sums(variant: Variant) -> bool:
    """Whether sums have noise in steps that follow from how many bits a sum has; under ckks those of a value do."""
    return golden()[variant.label]["settings"].get("bits_of_a_sum") is not None


@pytest.mark.parametrize(
    "variant",
    [one for one in golden_variants() if one.enrols and not has_bits_of_sums(one)],
    ids=lambda variant: variant.label,
)
def test_models_do_not_depend_on_whether_clients_enrol(variant: Variant) -> None:
    """Both sum exactly what was quantised alike, with weights too: not a bit differs, whatever a method does."""
    (twin,) = twins([variant])
    assert what_all_schemes_come_to(golden()[variant.label]) == what_all_schemes_come_to(golden()[twin.label])
    assert golden()[variant.label]["settings"] != golden()[twin.label]["settings"]


@pytest.mark.parametrize(
    "variant", [one for one in golden_variants() if one.enrols], ids=lambda variant: variant.label
)
def test_models_under_pads_are_those_under_ckks(variant: Variant) -> None:
    """No record of its own: not a bit differs, whatever a method does; where sums have noise, from those under kahe."""
    now = json.loads(json.dumps(golden_rounds(variant.under("pads"), restarts_roles=False)))
    (twin,) = (variant,) if has_bits_of_sums(variant) else twins([variant])
    assert what_all_schemes_come_to(now) == what_all_schemes_come_to(golden()[twin.label])
    assert now["settings"] != golden()[variant.label]["settings"]


def test_every_method_that_takes_kahe_comes_to_the_same_under_it() -> None:
    """All are recorded under it but plain-he, whose paper's scheme is another one."""
    takes = {name for name in BUILT_IN if "kahe" in method_class(name).schemes}
    assert takes - {one.method for one in golden_variants() if one.enrols} == {"plain-he"}
    (plain,) = (one for one in golden_variants() if one.label == "plain-he")
    entries = [
        golden_rounds(plain.under(scheme), restarts_roles=False) for scheme in ("kahe", "pads", "ckks")
    ]
    *own, others = (what_all_schemes_come_to(json.loads(json.dumps(entry))) for entry in entries)
    assert own == [others, others]
    assert entries[0]["settings"] != entries[1]["settings"] != entries[2]["settings"]


def test_every_method_is_recorded() -> None:
    assert {label.partition("/")[0] for label in golden()} == set(BUILT_IN)
    assert set(golden()) == {variant.label for variant in golden_variants()}


def test_models_move_and_differ() -> None:
    """A record of the same digest everywhere would be none of anything."""
    last = {label: entry["rounds"][-1]["parameters"] for label, entry in golden().items()}
    for label, entry in golden().items():
        assert len({one["parameters"] for one in entry["rounds"]}) == len(entry["rounds"]), label
    assert len(set(last.values())) > len(BUILT_IN) // 2
