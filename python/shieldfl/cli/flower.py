"""``shieldfl flower``: ``new`` writes a runnable app, ``restored`` says that a node's store is a backup."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from shieldfl.errors import DataError, ParameterError
from shieldfl.methods.registry import BUILT_IN, method_class, named_method
from shieldfl.settings import settings_of

_TEMPLATE = Path(__file__).parent / "app_template"
_SUFFIX = ".txt"  # of every file there, so that nothing takes a template for what it will be
_PACKAGE = "APP_PACKAGE"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MOST_LETTERS = 32  # that Flower allows
_RENAMED = {"APP": _PACKAGE, "gitignore": ".gitignore"}


def new(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the app: lower-case letters, digits and hyphens. A folder of this name is made "
            "here.",
        ),
    ],
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Method that protects the updates.")
    ] = "full-he",
    clients: Annotated[int, typer.Option(min=2, help="Number of nodes in the federation.")] = 3,
) -> None:
    """Create a Flower app that protects its clients' updates, with a script to simulate and deploy it."""
    protection = method_class(method)
    server_can_open = protection.clients_can_open and not protection.needs_shared_secret
    package = _package_of(name)
    folder = Path(name)
    values = {
        _PACKAGE: package,
        "APP_NAME": name,
        "APP_VARIABLE": f"{package.upper()}_STATE",
        "APP_SETTINGS": "\n".join(_settings_of(method, protection.schemes)),
        "APP_METHOD": method,
        "APP_SEEN": f"{protection.aggregator_sees}{', and the mean' if server_can_open else ''}",
        # One person has all parts of a deployment on one machine, and is every node's operator.
        "APP_NODE_CONFIG": 'shieldfl-openers="aggregator,clients,authority"'
        + ("" if protection.hides_all else f' shieldfl-methods="{method}"'),
        "APP_CLIENTS": str(clients),
        "APP_LEAST": str(min(clients, 3)),
    }
    try:
        folder.mkdir()
    except FileExistsError:
        raise DataError(f"there is {folder} already: choose another name, or another folder") from None
    for template in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}")):
        _write(template, folder, values)
    typer.echo(f"the app: {folder}, of which {folder / 'README.md'} says how it is run")


def _package_of(name: str) -> str:
    """Return the package of an app of this name.

    Raises ParameterError for one that Flower or Python does not take.
    """
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _MOST_LETTERS or keyword.iskeyword(package):
        raise ParameterError(
            f"{name!r} is no name of an app: it has at most {_MOST_LETTERS} lower-case letters, digits and "
            "hyphens, begins with a letter, and is no word of Python's own"
        )
    if find_spec(package) is not None:
        raise ParameterError(f"there is a Python package {package!r} already: choose another name")
    return package


def _settings_of(method: str, schemes: Container[str]) -> list[str]:
    """Return a line for each setting that a method has: only those in an app's configuration can be changed.

    Left to the method are all but how it encrypts, where it can by what authorities that are served allow by
    default.
    """
    entries = (named_method(name).settings for name in {*BUILT_IN, method})
    keys = sorted({key for entry in entries if entry is not None for key in settings_of(type(entry))})
    # Not where it is the default: another method without that setting can then be taken for a run.
    default = getattr(named_method(method).settings, "encryption", "kahe")
    written = {"encryption": "kahe"} if "kahe" in schemes and default != "kahe" else {}
    return [f'{key} = "{written.get(key, "")}"' for key in keys]


def _write(template: Path, folder: Path, values: dict[str, str]) -> None:
    text = template.read_text(encoding="utf-8")
    for placeholder, value in values.items():
        text = re.sub(rf"\b{placeholder}\b", value, text)
    relative = template.relative_to(_TEMPLATE).as_posix().removesuffix(_SUFFIX)
    parts = [_RENAMED.get(part, part) for part in relative.split("/")]
    path = folder.joinpath(*(values.get(part, part) for part in parts))
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def restored(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            file_okay=False,
            help="Folder of the node's memory, as in its setting shieldfl-store.",
        ),
    ],
) -> None:
    """Prepare a node whose memory was restored from a backup, before it takes part in a run again.

    The backup does not know what the node has sent since, so the node leaves all runs that have begun.
    """
    from shieldfl.flower.mod import DiskMemory

    if not (folder / "store").exists() or not (folder / "key").exists():
        raise DataError(f"{folder} is no store of a node: give the folder of its setting shieldfl-store")
    DiskMemory(folder).begin_anew()
    typer.echo("the node takes no further part in runs that had begun, and can take part in new ones")
