"""Every setting of every class refuses what lies outside of what it states, and says so: drawn from the schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")
from msgspec import inspect

from documentation_pages import ROOT
from shieldfl.errors import ParameterError
from shieldfl.settings import Setting, Settings, settings_of

PACKAGE = ROOT / "python" / "shieldfl"


def derived(kind: type[Settings]) -> Iterator[type[Settings]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("shieldfl."):
            yield one
            yield from derived(one)


def settings_classes() -> list[type[Settings]]:
    """Every class of the package that derives from Settings; whoever defines one imports something of settings.py."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "@dataclass(frozen=True)" in text and re.search(r"^class \w+\(.*\):", text, re.MULTILINE):
            import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    return sorted(set(derived(Settings)), key=lambda one: (one.__module__, one.__qualname__))


def refused(kind: inspect.Type, setting: Setting) -> list[Any]:
    """What a type refuses: the nearest value beyond each bound, and values of other types."""
    match kind:
        case inspect.Metadata(type=inner):
            return refused(inner, setting)
        case inspect.UnionType(types=several):
            # A list of one type is wrong for all others too; so is each number beyond a bound.
            known = [value for one in several for value in refused(one, setting)]
            return [value for value in known if value is not None or not _takes_none(several)]
        case inspect.IntType():
            return [*beyond(kind, lambda bound, up: bound + up), 1.5, "7", True, None]
        case inspect.FloatType():
            beside = beyond(kind, lambda bound, up: math.nextafter(bound, up * math.inf))
            ends = [end for end in (math.inf, -math.inf) if end not in (setting.words or {}).values()]
            return [*beside, *ends, math.nan, "0.5", True, None]
        case inspect.VarTupleType(item_type=item):
            return [
                *((value,) for value in refused(item, setting)),
                *wrong_lengths(kind),
                "some",
                None,
            ]
        case inspect.StrType(min_length=None | 1, max_length=None, pattern=None | r"\S"):
            blank = [""] if kind.min_length else []
            return [
                5,
                None,
                *(["no such choice"] if setting.choices else []),
                *blank,
                *([" "] if kind.pattern else []),
            ]
        case inspect.StrType(pattern="^([0-9a-f]{64})?$"):
            return ["0" * 63, "0" * 65, "A" * 64, " ", 5, None]
        case inspect.LiteralType():
            return ["no such choice", 1.5, None]
        case inspect.BoolType():
            return [1, "true", None]
        case inspect.DataclassType():
            return [5, "some", None]
        case inspect.NoneType():
            return []
    raise NotImplementedError(f"{setting.name}: say what {kind} refuses")


def beyond(kind: inspect.IntType | inspect.FloatType, step: Any) -> list[Any]:
    if kind.multiple_of is not None:
        raise NotImplementedError("say what is refused for multiple_of")
    inner = [bound for bound in (kind.gt, kind.lt) if bound is not None]
    lower = [step(kind.ge, -1)] if kind.ge is not None else []
    return [*inner, *lower, *([step(kind.le, 1)] if kind.le is not None else [])]


def wrong_lengths(kind: inspect.VarTupleType) -> list[Any]:
    lengths = [kind.min_length - 1] if kind.min_length else []
    lengths += [kind.max_length + 1] if kind.max_length is not None else []
    if any(lengths) and not isinstance(kind.item_type, inspect.FloatType):
        raise NotImplementedError("say what items a list of another length has")
    return [(1.0,) * length for length in lengths]


def _takes_none(several: tuple[inspect.Type, ...]) -> bool:
    return any(isinstance(one, inspect.NoneType) for one in several)


def some(setting: Setting) -> Any:
    """A value that a setting without a default takes."""
    return next(value for value in (1, 2048, "some", (1.0,), *setting.choices) if fits(setting, value))


def fits(setting: Setting, value: Any) -> bool:
    try:
        setting.fit(value)
    except ParameterError:
        return False
    return True


CLASSES = settings_classes()

# What is taken and what is refused at the ends of ranges that promises of privacy and encryption rest on: written out,
# so that a range that changes is noticed here.
ENDS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "delta": ((5e-324, 0.9999999999999999), (0.0, -1e-5, 1.0)),
    "noise_multiplier": ((0.0, 1e300), (-5e-324, math.inf)),
    "DdpFedAvgSettings.noise_multiplier": ((5e-324, 1e300), (0.0, -1.0, math.inf)),
    "colluders": ((1,), (0, -1)),
    "clip_norm": ((5e-324, 1e300), (0.0, -1.0, math.inf)),
    "min_clients": ((1,), (0, -1)),
    "value_bits": ((2, 40), (1, 41)),
    "fraction_bits": ((0, 52), (-1, 53)),
    "width": ((2, 32), (1, 33)),
    "target_epsilon": ((5e-324, 1e300, None), (0.0, -1.0, math.inf, math.nan)),
    "synthetic_epsilon": ((5e-324, 1e300), (0.0, math.inf, math.nan)),
    "max_grad_norm": ((5e-324, 1e300), (0.0, -1.0, math.inf, math.nan)),
    "sample_rate": ((5e-324, 1.0), (0.0, -0.5, 1.0000000000000002, math.nan)),
    "consensus": ((5e-324, 1.0), (0.0, -0.5, 1.0000000000000002, math.nan)),
    "encrypted_share": ((0.0, 1.0), (-5e-324, 1.0000000000000002, math.nan)),
    "threshold": ((-1.0, 1.0, (0.1, 1.0)), (1.0000000000000002, math.nan, (), (0.1, math.nan))),
}


def test_all_settings_classes_are_found() -> None:
    names = {one.__name__ for one in CLASSES}
    assert {
        "RunConfig",
        "SelectiveShieldSettings",
        "CalibrationSettings",
        "ClientKind",
        "Grid",
    } <= names


@pytest.mark.parametrize("kind", CLASSES, ids=lambda one: one.__name__)
def test_what_is_beyond_a_bound_or_of_another_type_is_refused(kind: type[Settings]) -> None:
    known = settings_of(kind).values()
    made = {field.name for field in fields(kind) if field.default_factory is not MISSING}
    needed = {one.name: some(one) for one in known if one.default is MISSING and one.name not in made}
    for setting in known:
        for value in refused(setting.kind, setting):
            with pytest.raises(ParameterError) as caught:
                kind(**{**needed, setting.name: value})
            assert str(caught.value) == f"{setting.title} must be {setting.allowed}, not {value!r}"


@pytest.mark.parametrize("name", ENDS)
def test_the_ends_of_ranges_are_these(name: str) -> None:
    *owner, own_name = name.split(".")
    found = [
        setting
        for kind in CLASSES
        if owner in ([], [kind.__name__]) and (owner or f"{kind.__name__}.{name}" not in ENDS)
        for setting in settings_of(kind).values()
        if setting.name == own_name
    ]
    taken, refused_ones = ENDS[name]
    assert found
    for setting in found:
        assert [value for value in (*taken, *refused_ones) if fits(setting, value)] == list(taken)
