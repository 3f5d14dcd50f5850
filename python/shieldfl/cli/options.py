"""What commands take: an option for each field of a settings class, described and read as it states."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar

import typer
from msgspec import inspect

from shieldfl.errors import ParameterError
from shieldfl.settings import Setting, Settings, settings_of

S = TypeVar("S", bound=Settings)


def with_options(
    *kinds: tuple[type[Settings], str],
    without: tuple[str, ...] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting of some classes, instead of its ``**settings``.

    Each class comes with the panel of the help that its settings are listed under where they name none. A
    setting that says nothing about itself is for code alone, and so is one that ``without`` names. Defaults
    are the class's.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(Signature.from_callable(command, eval_str=True).parameters)
        del own["settings"]
        made = {
            setting.name: _option_of(setting, panel)
            for kind, panel in kinds
            for setting in settings_of(kind).values()
            if setting.meaning and setting.name not in without
        }
        first = [own.pop("context")] if "context" in own else []
        parameters = [*first, *made.values(), *own.values()]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return decorate


def _option_of(setting: Setting, panel: str) -> Parameter:
    is_flag = isinstance(setting.kind, inspect.BoolType)
    names = _names(setting)
    # Errors then speak of what was written.
    asked = replace(setting, key=names[-1])

    def read(text: Any) -> Any:
        with refused_as(None):
            return asked.read_text(text) if isinstance(text, str) else text

    option = typer.Option(
        *names,
        help=setting.meaning,
        rich_help_panel=setting.panel or panel or None,
        parser=None if is_flag else read,
        metavar=None if is_flag else _metavar(setting),
    )
    default = Parameter.empty if setting.default is MISSING else setting.default
    taken: Any = bool if is_flag else Any
    return Parameter(
        setting.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[taken, option]
    )


def given_settings(kind: type[S], values: Mapping[str, Any]) -> S:
    """Fill a settings class from the options of the same names; what it refuses is wrong usage."""
    try:
        return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})
    except ParameterError as error:
        text = str(error)
        for setting in settings_of(kind).values():
            # A name without underscores is a word of English, too, and reads well as it is.
            if "_" in setting.name:
                text = re.sub(rf"\b{setting.name}\b", _names(setting)[-1].partition("/")[0], text)
        raise typer.BadParameter(text) from None


@contextmanager
def refused_as(option: str | None) -> Iterator[None]:
    """Turn a ParameterError into wrong usage, a typer.BadParameter; ``option`` is what is to be looked at."""
    try:
        yield
    except ParameterError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _names(setting: Setting) -> tuple[str, ...]:
    """Return the names of a setting on the command line.

    A flag that is on by default has the name that turns it off too.
    """
    name = setting.name.replace("_", "-")
    is_on = isinstance(setting.kind, inspect.BoolType) and setting.default
    return setting.options or (f"--{name}/--no-{name}" if is_on else f"--{name}",)


def _metavar(setting: Setting) -> str:
    several = isinstance(setting.kind, inspect.VarTupleType)
    names = () if several else tuple(filter(None, setting.choices))
    return setting.metavar or "|".join((*(names or _metavars(setting.kind)), *(setting.words or ())))


def _metavars(kind: inspect.Type) -> tuple[str, ...]:
    match kind:
        case inspect.Metadata(type=inner):
            return _metavars(inner)
        case inspect.UnionType(types=several):
            return tuple(name for one in several for name in _metavars(one))
        case inspect.LiteralType(values=values):
            return tuple(map(str, values))
        case inspect.VarTupleType(item_type=inspect.StrType()):
            # What has commas between is no free text.
            return ("NAME,...",)
        case inspect.VarTupleType(item_type=item):
            return (f"{'|'.join(_metavars(item))},...",)
    names: dict[type, str] = {inspect.IntType: "INTEGER", inspect.FloatType: "FLOAT", inspect.NoneType: ""}
    name = names.get(type(kind), "TEXT")
    return (name,) if name else ()


def is_given(context: typer.Context, name: str) -> bool:
    """Say whether the parameter of this name was given, be it with the value that it has by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def refuse_given(context: typer.Context, names: Container[str], why: str) -> None:
    """Raise typer.BadParameter for one of these parameters that was given."""
    for one in context.command.params:
        if one.name is not None and one.name in names and is_given(context, one.name):
            raise typer.BadParameter(why, param_hint=one.opts[0])


def where_not_given(context: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not is_given(context, name)}
