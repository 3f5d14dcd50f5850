"""``shieldfl authority enrol``, ``revoke`` and ``show``: whom an authority knows, and what it does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.authority_service.identity import checked_public_key
from shieldfl.authority_service.policy import AuthorityPolicy
from shieldfl.authority_service.service import AuthorityFolder
from shieldfl.cli.authority.options import Folder
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import JsonFile, is_stdout, write_json
from shieldfl.settings import plain_settings
from shieldfl.toml_files import read_text

__all__ = ["enrol", "revoke", "show"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The client's, as it names itself when it enrols.")]


def enrol(
    folder: Folder,
    name: Name,
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="Its public key: 64 hexadecimal digits, or a file that has them."),
    ],
) -> None:
    """Vouch for a client: from now on it may enrol in sessions. An authority that is being served knows it at once."""
    with failures_on_stderr():
        own = AuthorityFolder(folder)
        own.check()
        given = Path(key)
        own.registry.register(
            name, checked_public_key(read_text(given, "public key").strip() if given.is_file() else key)
        )
        typer.echo(f"{name} may enrol")


def revoke(folder: Folder, name: Name) -> None:
    """Take a client out, for good: no list that has it in it is answered any more, in any session."""
    with failures_on_stderr():
        own = AuthorityFolder(folder)
        own.check()
        own.registry.revoke(name)
        typer.echo(f"{name} is revoked")


def show(folder: Folder, json_file: JsonFile = None) -> None:
    """Say what an authority is, allows and does. Needs no passphrase and shows no secret."""
    with failures_on_stderr():
        own = AuthorityFolder(folder)
        own.check()
        sessions = [
            {"id": one.path.name, **asdict(one.facts()), "ended": one.is_ended}
            for one in own.session_folders()
        ]
        facts: dict[str, Any] = {
            "public_key": own.public_key.read_text().strip(),
            "policy": plain_settings(AuthorityPolicy.from_file(own.policy)),
            "clients": own.registry.names(),
            "revoked": sorted(own.registry.revoked()),
            "sessions": sessions,
        }
        write_json(facts, json_file)
        if not is_stdout(json_file):
            typer.echo(_text(facts))


def _text(facts: dict[str, Any]) -> str:
    lines = [f"public key   {facts['public_key']}"]
    lines += [f"policy       {key} = {value}" for key, value in facts["policy"].items()]
    lines.append(f"clients      {', '.join(facts['clients']) or 'none'}")
    lines.append(f"revoked      {', '.join(facts['revoked']) or 'none'}")
    lines.append(f"sessions     {len(facts['sessions'])}")
    for one in facts["sessions"]:
        ended = ", ended" if one["ended"] else ""
        lines.append(
            f"  {one['id']}  {one['method']}, {one['clients']:,} clients, {one['rounds']:,} rounds, "
            f"{one['values']:,} values, begun by {one['aggregator']}{ended}"
        )
    return "\n".join(lines)
