"""What several commands of ``shieldfl authority`` take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from shieldfl.errors import ParameterError
from shieldfl.toml_files import read_text

__all__ = ["Days", "Folder", "Hosts", "PassphraseFile", "passphrase_of"]

_VARIABLE = "SHIELDFL_AUTHORITY_PASSPHRASE"

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False, help="Where the authority lives.")]

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="A file whose first line is the passphrase of the authority's keys. "
        f"Without one, ${_VARIABLE} is it, or you are asked.",
    ),
]

Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="A name or address under which aggregators reach the authority, for its certificate; may be given more "
        "than once. By default the loopback's.",
    ),
]

Days = Annotated[int, typer.Option(min=1, max=3650, help="That certificates are good for.")]


def passphrase_of(file: Path | None, *, new: bool = False) -> str:
    """Return the passphrase, from wherever it is given. Raises DataError, and ParameterError for an empty one."""
    if file is not None:
        given = read_text(file, "passphrase's file").split("\n")[0].removesuffix("\r")
    elif (from_environment := os.environ.get(_VARIABLE)) is not None:
        given = from_environment
    else:
        given = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    if not given:
        raise ParameterError("the passphrase is empty: the authority's keys need one")
    return given
