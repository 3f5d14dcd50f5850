"""Settings are stated once: what reads, checks and describes them follows from the field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from msgspec import Meta

from shieldfl.encryption.registry import KeyBits
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import MaskSettings
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.settings import (
    BYTES_PER_SECOND,
    SECONDS,
    Count,
    NotNegative,
    Positive,
    Settings,
    Share,
    Text,
    TrainingSettings,
    about,
    parse_toml,
    plain_settings,
    read_settings,
    settings_of,
)


@dataclass(frozen=True)
class Everything(Settings):
    needed: Annotated[Text, about("What it is called.")]
    share: Annotated[Share, about("Of all.", symbol="rho")] = 0.5
    count: Count = 3
    rate: Annotated[Positive, about("Up.", key="upload", units=BYTES_PER_SECOND)] = 1.0
    wait: Annotated[NotNegative, about("Between.", units=SECONDS)] = 0.0
    bound: Annotated[NotNegative, about("Of it.", words={"none": math.inf})] = 2.0
    kind: Literal["a", "b"] = "a"
    made: Annotated[str, about("By a registry.", choices=("x", "y"))] = "x"
    key_bits: KeyBits = 3072
    several: Annotated[tuple[Positive, ...], Meta(min_length=1)] = (1.0,)
    names: tuple[str, ...] = ()
    some: Annotated[tuple[str, ...], about("Of a registry.", choices=("x", "y"))] = ("x",)
    one_or_more: Annotated[float, Meta(le=1.0)] | tuple[float, ...] = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    flag: bool = False


KNOWN = settings_of(Everything)

ALLOWED = {
    "needed": "a text that is not empty",
    "share": "a number, above 0 and at most 1",
    "count": "a whole number, at least 1 and below 2^31",
    "upload": 'a number, above 0, with a unit, such as "50 MB/s"',
    "wait": 'a number, at least 0, with a unit, such as "20 ms"',
    "bound": 'a number, at least 0 or "none"',
    "kind": "one of a, b",
    "made": "one of x, y",
    "key_bits": "one of 2048, 3072, 4096",
    "several": "a non-empty list in which each item is a number, above 0",
    "names": "a list in which each item is a text",
    "some": "a list in which each item is one of x, y",
    "one_or_more": "a number, at most 1 or a list in which each item is a number",
    "seed": "a whole number, at least 0 and below 2^63 or None",
    "flag": "true or false",
}


def test_what_is_allowed_in_words():
    assert {key: setting.allowed for key, setting in KNOWN.items()} == ALLOWED
    assert (KNOWN["share"].title, KNOWN["share"].meaning) == ("share (rho)", "Of all.")
    (curve,) = (one for one in settings_of(MaskSettings).values() if one.name == "curve")
    assert curve.allowed == "of type SensitivityCurve"


def test_what_is_none_is_left_out_of_texts():
    """Neither TOML nor the command line can say None, so nobody who writes them is told to."""
    said = {key: setting.allowed_in_text for key, setting in KNOWN.items()}
    assert said == ALLOWED | {"seed": ALLOWED["seed"].removesuffix(" or None")}
    for read in (KNOWN["seed"].read, KNOWN["seed"].read_text):
        with pytest.raises(ParameterError, match=r"at least 0 and below 2\^63, not"):
            read("many")
    assert KNOWN["seed"].read(None) is None


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("share", 1, 1.0),
        ("share", np.float32(0.5), 0.5),
        ("count", np.uint8(4), 4),
        ("several", [1, 2.5], (1.0, 2.5)),
        ("one_or_more", [1, 0], (1.0, 0.0)),
        ("bound", math.inf, math.inf),
        ("seed", None, None),
        ("seed", 2**63 - 1, 2**63 - 1),
        ("key_bits", 2048, 2048),
    ],
)
def test_a_value_becomes_what_is_declared(name: str, value: Any, taken: Any):
    stored = getattr(Everything("it", **{name: value}), name)
    assert (stored, type(stored)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("key", "text", "taken"),
    [
        ("upload", "50 MB/s", 50e6),
        ("upload", "400 Mbit/s", 50e6),
        ("upload", "1Gbit/s", 125e6),
        ("upload", " 2.5e3 kB/s ", 2.5e6),
        ("upload", "8 bit/s", 1.0),
        ("wait", "20 ms", 0.02),
        ("wait", "0 s", 0.0),
        ("wait", "3 us", 3e-6),
        ("wait", "2 min", 120.0),
        ("bound", "None", math.inf),
        ("several", 3, (3.0,)),
        ("names", "fc", ("fc",)),
    ],
)
def test_what_files_write(key: str, text: Any, taken: Any):
    assert KNOWN[key].read(text) == pytest.approx(taken)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("upload", one) for one in ("50 MBps", "50", 50, "fast", "1 2 MB/s", "-3 MB/s", "1e999 MB/s")),
        *(("upload", one) for one in (True, "0 MB/s")),
        *(("wait", one) for one in ("-1 ms", "20 MB/s", 20, None)),
    ],
)
def test_what_files_may_not_write(key: str, value: Any):
    with pytest.raises(ParameterError, match=f"^phone's {key} must be a number"):
        KNOWN[key].read(value, "phone's ")


@pytest.mark.parametrize(
    ("key", "text", "taken"),
    [
        ("share", ".5", 0.5),
        ("share", "1", 1.0),
        ("count", "7", 7),
        ("count", "1e6", 10**6),
        ("some", "x, y", ("x", "y")),
        ("needed", "7", "7"),
        ("needed", "true", "true"),
        ("flag", "true", True),
        ("bound", "none", math.inf),
        ("several", "1, 2", (1.0, 2.0)),
        ("several", "[1, 2]", (1.0, 2.0)),
        ("several", "3", (3.0,)),
        ("names", "fc", ("fc",)),
        ("one_or_more", "-1", -1.0),
        ("wait", "20 ms", 0.02),
    ],
)
def test_what_the_command_line_says(key: str, text: str, taken: Any):
    read = KNOWN[key].read_text(text)
    assert (read, type(read)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("key", "text"), [("count", "many"), ("count", "2.0"), ("share", "nan"), ("share", "")]
)
def test_what_the_command_line_may_not_say(key: str, text: str):
    with pytest.raises(ParameterError, match=f"{key}.* must be"):
        KNOWN[key].read_text(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "the file is not valid TOML"),
        ("other = 1", "the file has the unknown key 'other': use table"),
        ("[table]\nshares = 1", r"\[table\] has the unknown key 'shares': use needed, share"),
        ("[table]\nrate = 1", r"\[table\] has the unknown key 'rate'"),
        ("[table]", r"\[table\] lacks needed"),
        ('[table]\nneeded = ""', r"\[table\] needed must be a text that is not empty, not ''"),
    ],
)
def test_tables_that_are_refused(text: str, words: str):
    with pytest.raises(ParameterError, match=words):
        read_settings(Everything, parse_toml(text, ("table",), "the file")["table"], "[table]")


def test_plain_settings_come_back():
    settings = Everything("it", bound=math.inf, several=(1.0, 2.0))
    plain = plain_settings(settings)
    assert (plain["bound"], plain["several"], plain["needed"]) == ("none", [1.0, 2.0], "it")
    units = {"upload": "1 B/s", "wait": "0 s"}
    assert read_settings(Everything, plain | units, "it") == settings
    assert plain_settings(None) == {}


def test_a_run_trains_as_every_other_training():
    assert RunConfig().momentum == TrainingSettings().momentum == 0.9
    shared = settings_of(TrainingSettings)
    assert {key: settings_of(RunConfig)[key] for key in shared} == dict(shared)
