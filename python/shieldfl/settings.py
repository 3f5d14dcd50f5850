"""Settings, each stated once: a field with its range, its unit and what it is.

And the files they are read from.

A setting is a field of a frozen dataclass that derives from :class:`Settings`::

    ratio: Annotated[Share, about("the share of the parameters that is encrypted", symbol="p")] = 0.1

The constructor checks it, by msgspec. TOML files, the command line, public set-ups, error texts and the
tables of the documentation follow from :func:`settings_of`.
"""

from __future__ import annotations

import math
import operator
import re
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, inspect

from shieldfl.errors import DataError, ParameterError, shown

__all__ = [
    "Count",
    "Positive",
    "Setting",
    "Settings",
    "Share",
    "TrainingSettings",
    "about",
    "parse_toml",
    "plain_settings",
    "read_settings",
    "read_text",
    "refuse_unknown",
    "settings_of",
    "table_of",
    "tables_of",
]


# Ranges that several settings have. Every number is finite unless a word of the setting says otherwise.
Count = Annotated[int, Meta(ge=1, lt=2**31)]
"""A whole number from 1 to 2**31 - 1."""
Positive = Annotated[float, Meta(gt=0.0)]
"""A number above 0."""
NotNegative = Annotated[float, Meta(ge=0.0)]
Share = Annotated[float, Meta(gt=0.0, le=1.0)]
"""A number above 0 and at most 1."""
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Delta = Annotated[float, Meta(gt=0.0, lt=1.0)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
ThreadCounts = Annotated[tuple[Threads, ...], Meta(min_length=1)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text = Annotated[str, Meta(min_length=1, pattern=r"\S")]

# Units by their names, decimal prefixes as network equipment and the papers use them.
BYTES_PER_SECOND = {
    f"{prefix}{unit}/s": scale * factor
    for unit, scale in (("B", 1.0), ("bit", 0.125))
    for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))
}
SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_EXAMPLES = {id(BYTES_PER_SECOND): "50 MB/s", id(SECONDS): "20 ms"}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


def about(
    meaning: str, *, choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = (), **facts: Any
) -> Meta:
    """Return the annotation of a setting's field: its meaning, and attributes of :class:`Setting` by name.

    ``choices`` are the allowed texts, or a function that returns them, if no ``Literal`` states them.
    """
    facts["offered"] = choices
    return Meta(description=meaning, extra={name: value for name, value in facts.items() if value})


@dataclass(frozen=True)
class Setting:
    """One field of a settings class, for code that reads or describes settings.

    ``meaning`` is the text in help, errors and documentation; ``symbol`` is the paper's. ``key`` and
    ``options`` are the names in files and on the command line, if they differ from the field's. ``metavar``
    is what the command line's help calls a text that is no name, such as ``FILE``.
    """

    name: str
    declared: Any
    """Type of the setting, annotated with its range."""
    default: Any
    """Default value; ``dataclasses.MISSING`` for a setting without one."""
    meaning: str = ""
    symbol: str = ""
    key: str = ""
    units: Mapping[str, float] | None = None
    """Factors to the field's unit, by name of a unit. Files then have a text such as ``"20 ms"``. None for a
    setting without units."""
    words: Mapping[str, float] | None = None
    """Numbers by the words that stand for them, such as infinity by ``"iid"``; no other may be infinite."""
    offered: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    options: tuple[str, ...] = ()
    metavar: str = ""
    panel: str = ""
    beside_file: bool = False
    """Whether the command line may set it beside an experiment file: it says where and how that is run."""

    @property
    def title(self) -> str:
        """The setting's name in files, with the paper's symbol."""
        return f"{self.key} ({self.symbol})" if self.symbol else self.key

    @property
    def choices(self) -> tuple[str, ...]:
        """Allowed texts; empty if the type states them."""
        return self.offered() if callable(self.offered) else self.offered

    @property
    def kind(self) -> inspect.Type:
        """The type without annotations, as msgspec describes it."""
        found = inspect.type_info(self.declared)
        return found.type if isinstance(found, inspect.Metadata) else found

    @property
    def allowed(self) -> str:
        """Allowed values, in words."""
        return self._allowed(self.kind)

    @property
    def allowed_in_text(self) -> str:
        """Allowed values in files and on the command line, in words: these leave a setting out for None."""
        kind = self.kind
        if isinstance(kind, inspect.UnionType):
            kind = inspect.UnionType(tuple(one for one in kind.types if one != inspect.NoneType()))
        return self._allowed(kind)

    def _allowed(self, kind: inspect.Type) -> str:
        if self.units is not None:
            return f'{_allowed(kind)}, with a unit, such as "{_EXAMPLES[id(self.units)]}"'
        return " or ".join((_allowed(kind, self.choices), *(f'"{word}"' for word in self.words or ())))

    def fit(self, value: Any, given: Any = MISSING, where: str = "") -> Any:
        """Return a value in the declared type: whole numbers become floats. Raises ParameterError.

        The message begins with ``where`` and shows what was ``given`` in a file or a text, if that is not the
        value.
        """
        try:
            fitted = msgspec.convert(_plain(value), self.declared)
        except msgspec.ValidationError:
            fitted = math.nan
        infinite, choices = (self.words or {}).values(), self.choices
        for item in fitted if isinstance(fitted, tuple) else (fitted,):
            is_infinite = isinstance(item, float) and not math.isfinite(item) and item not in infinite
            if not is_infinite and (not choices or item in (None, *choices)):
                continue
            allowed, said = (self.allowed, value) if given is MISSING else (self.allowed_in_text, given)
            raise ParameterError(f"{where}{self.title} must be {allowed}, not {shown(said)}")
        return fitted

    def read(self, value: Any, where: str = "") -> Any:
        """Return a value of a file in the declared type; a single value may stand for a list."""
        words = self.words or {}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        if self.units is None:
            plain = _plain(value)
            is_alone = isinstance(self.kind, inspect.VarTupleType) and not isinstance(plain, list | tuple)
            return self.fit((plain,) if is_alone else plain, value, where)
        match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if match is None or match[2] not in self.units:
            raise ParameterError(
                f"{where}{self.title} must be a number and a unit ({', '.join(self.units)}), such as "
                f"{_EXAMPLES[id(self.units)]!r}, not {shown(value)}"
            )
        return self.fit(float(match[1]) * self.units[match[2]], value, where)

    def read_text(self, text: str, where: str = "") -> Any:
        """Return a value of the command line: written as in TOML, bare, or as a list with commas.

        A whole number may be written as 1e6 or 2.5e7. Raises ParameterError.
        """
        readings: tuple[Callable[[], Any], ...] = (
            lambda: tomllib.loads(f"value = {text}")["value"],
            lambda: [_number(part) for part in text.split(",")],
            lambda: [part.strip() for part in text.split(",") if part.strip()],
            lambda: _number(text),
            lambda: text,
        )
        for reading in readings:
            try:
                return self.read(reading(), where)
            except (ValueError, ParameterError, RecursionError):  # TOMLDecodeError is a ValueError
                continue
        return self.read(text, where)


def _plain(value: Any) -> Any:
    """Return numbers of other libraries as Python's, and their vectors as lists."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


def _number(text: str) -> float:
    number = float(text)
    is_whole = number.is_integer() and ("." not in text or "e" in text.lower())
    return int(number) if is_whole else number


def _settings_of(kind: type) -> Mapping[str, Setting]:
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in fields(kind):
        declared = hints[field.name]
        metadata = inspect.type_info(declared)
        facts: dict[str, Any] = {"key": field.name.replace("_", getattr(kind, "joins_words_by", "_"))}
        if isinstance(metadata, inspect.Metadata):
            facts |= metadata.extra or {}
            facts["meaning"] = (metadata.extra_json_schema or {}).get("description", "")
        setting = Setting(field.name, declared, field.default, **facts)
        found[setting.key] = setting
    return found


settings_of: Callable[[type], Mapping[str, Setting]] = cache(_settings_of)
"""Return the settings that a dataclass states, by their names in files."""


_struct_of: Callable[[type], type[msgspec.Struct]] = cache(
    lambda kind: msgspec.defstruct("", [(one.name, one.declared) for one in settings_of(kind).values()])
)
"""Return a msgspec struct with all fields of a settings class, which checks them at once."""


@dataclass(frozen=True)
class Settings:
    """Base of settings: every field has the type and range that its annotation states.

    Raises ParameterError. A class checks rules between several fields in its own ``__post_init__``.
    """

    def __post_init__(self) -> None:
        try:
            fitted: Any = msgspec.convert(vars(self), _struct_of(type(self)))
        except msgspec.ValidationError:
            fitted = None
        for setting in settings_of(type(self)).values():
            value = getattr(fitted, setting.name, None)
            odd = type(value) is tuple or (type(value) is float and not math.isfinite(value))
            if fitted is None or odd or setting.offered:  # which the decoder alone does not know
                value = setting.fit(getattr(self, setting.name))
            object.__setattr__(self, setting.name, value)


def plain_settings(settings: Settings | None) -> dict[str, Any]:
    """Return settings as JSON and TOML have them, infinity as its word."""
    entry = {}
    for key, setting in settings_of(type(settings)).items() if settings is not None else ():
        value = getattr(settings, setting.name)
        words = {number: word for word, number in (setting.words or {}).items()}
        entry[key] = list(value) if isinstance(value, tuple) else words.get(value, value)
    return entry


def _allowed(kind: inspect.Type, choices: tuple[str, ...] = ()) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            words = _allowed(inner, choices)
        case inspect.UnionType(types=several):
            words = " or ".join(_allowed(one, choices) for one in several)
        case inspect.LiteralType(values=values):
            words = f"one of {', '.join(map(str, values))}"
        case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
            listed = f"list of length {least} to {most}" if most else "non-empty list" if least else "list"
            words = f"a {listed} in which each item is {_allowed(item, choices)}"
        case inspect.IntType() | inspect.FloatType():
            noun = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            words = ", ".join(filter(None, (noun, _bounds(kind))))
        case inspect.StrType(min_length=least):
            named = ", ".join(filter(None, choices))
            words = f"one of {named}" if named else "a text that is not empty" if least else "a text"
        case inspect.BoolType():
            words = "true or false"
        case inspect.NoneType():
            words = "None"
        case _:
            words = f"of type {getattr(kind, 'cls', type(kind)).__name__}"
    return words


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    most = ("at most", kind.le)
    if isinstance(kind, inspect.IntType) and kind.le is not None and _power_of_two(kind.le + 1):
        most = ("below", kind.le + 1)
    stated = [("above", kind.gt), ("at least", kind.ge), ("below", kind.lt), most]
    return " and ".join(
        f"{words} {_power_of_two(bound) or f'{bound:g}'}" for words, bound in stated if bound is not None
    )


def _power_of_two(number: float) -> str:
    """Return ``"2^k"`` for a power that nobody knows by heart, an empty text for other numbers."""
    mantissa, exponent = math.frexp(number)
    return f"2^{exponent - 1}" if mantissa == 0.5 and abs(exponent) > 20 else ""


_training = partial(about, panel="Local training")


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """Settings of local SGD, with one default and range for plain training, DP-SGD and measurements."""

    local_epochs: Annotated[Count, _training("Passes over a client's data in a round.")] = 5
    batch_size: Annotated[
        Count,
        _training(
            "Samples in a mini-batch. The last batch of an epoch may be smaller. DP-SGD draws batches at "
            "random, of at most this size on average."
        ),
    ] = 32
    learning_rate: Annotated[Positive, _training("Learning rate of SGD.")] = 0.01
    momentum: Annotated[float, Meta(ge=0.0, lt=1.0), _training("SGD momentum, reset each round.")] = 0.9
    weight_decay: Annotated[NotNegative, _training("L2 penalty of SGD.")] = 0.0


S = TypeVar("S", bound=Settings)


def read_text(path: str | Path, what: str) -> str:
    """Return a file's text without a byte-order mark. Raises DataError, which names ``what`` and the path."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        said = "cannot be read: look whether it is there, and its permissions"
        raise DataError(f"the {what} {path} {said}") from error
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in content:
        raise DataError(f"the {what} {path} is UTF-16, or no text: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"the {what} {path} is not UTF-8: save it as that") from error


def parse_toml(text: str, sections: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return a file's sections. Raises ParameterError for text that is not TOML, and for unknown sections."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of int(), for too many digits
        raise ParameterError(f"{where} is not valid TOML, or too much to read: {error}") from None
    refuse_unknown(document, sections, where)
    return document


def table_of(document: Mapping[str, Any], name: str, where: str = "") -> Mapping[str, Any]:
    """Return a table, an empty one where there is none. Raises ParameterError for what is no table."""
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ParameterError(f"{where}{name} must be a table: write [{where}{name}]")
    return table


def tables_of(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the tables of an array, maybe none. Raises ParameterError for anything else."""
    tables = document.get(name, [])
    if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
        return tables
    raise ParameterError(f"{name} must be a list of tables: write [[{name}]], with two brackets")


def read_settings(kind: type[S], table: Mapping[str, Any], where: str, prefix: str = "") -> S:
    """Return the settings that a table states, under their names in files after ``prefix``.

    Raises ParameterError. Its message begins with ``where`` or, if there is a prefix, with the name in the
    table.
    """
    known = {f"{prefix}{key}": setting for key, setting in settings_of(kind).items()}
    refuse_unknown(table, known, where)
    for key, setting in known.items():
        if setting.default is MISSING and key not in table:
            raise ParameterError(f"{where} lacks {key}")
    head = prefix or f"{where} "
    values = {known[key].name: known[key].read(value, head) for key, value in table.items()}
    try:
        return kind(**values)
    except ParameterError as error:
        raise ParameterError(f"{'' if prefix else head}{error}") from None


def refuse_unknown(table: Mapping[str, Any], known: Any, where: str) -> None:
    """Raise ParameterError for a table with other keys than the known ones."""
    for key in table:
        if key not in known:
            raise ParameterError(f"{where} has the unknown key {key!r}: use {', '.join(known)}")
