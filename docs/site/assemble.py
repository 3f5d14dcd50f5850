"""Puts the pages of the site together in build/docs-source, from pages and files where they lie in the repository.

`make docs` calls it before mkdocs. Pages of docs/ come to the top, others keep their folders. A link to a file that is
no page leads to a page that shows it; a link to what is not there is an error.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "build" / "docs-source"
ASSETS = ROOT / "docs" / "site" / "assets"

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURES = {".png", ".svg"}
LANGUAGES = {".py": "python", ".toml": "toml", ".diff": "diff", ".service": "ini", ".ipynb": "json"}

# Page of the reference: its title, and what is on it: a module with all that it exports, or some of a module's names.
REFERENCE: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "shieldfl": ("shieldfl", {"shieldfl.build_info": ("build_info",)}),
    "masks": ("shieldfl.masks", {"shieldfl.masks": ()}),
    "encrypted-mean": ("encrypted_mean", {"shieldfl.rounds.encrypted_mean": ("encrypted_mean",)}),
    "kahe": ("shieldfl.encryption.kahe", {"shieldfl.encryption.kahe": ()}),
    "pads": ("shieldfl.encryption.pads", {"shieldfl.encryption.pads": ()}),
    "ckks": ("shieldfl.encryption.ckks", {"shieldfl.encryption.ckks": ()}),
    "paillier": ("shieldfl.encryption.paillier", {"shieldfl.encryption.paillier": ()}),
    "key-authority": (
        "KeyAuthority",
        {
            "shieldfl.authority.key_authority": ("KeyAuthority", "SumKeyAuthority"),
        },
    ),
    "client-store": ("ClientStore", {"shieldfl.authority.client_store": ("ClientStore",)}),
    "simulation": (
        "run, Task, ComparedRuns",
        {
            "shieldfl.lab.simulation.runner": ("run",),
            "shieldfl.lab.simulation.task": ("Task",),
            "shieldfl.lab.simulation.compared_runs": ("ComparedRuns", "Spread"),
            "shieldfl.lab.simulation.config": ("RunConfig",),
            "shieldfl.lab.simulation": ("DATASETS",),
        },
    ),
    "torch": ("shieldfl.models", {"shieldfl.models": ()}),
    "flower": ("shieldfl.flower", {"shieldfl.flower": ()}),
    "authority-client": (
        "AuthorityClient, SeveralAuthorities",
        {
            "shieldfl.authority_service.authority_client": (
                "AuthorityClient",
                "RemoteAuthority",
                "SeveralAuthorities",
            ),
        },
    ),
    "testing": ("shieldfl.testing", {"shieldfl.testing": ()}),
    "errors": ("shieldfl.errors", {"shieldfl.errors": ()}),
}


COMMANDS = Path("api") / "commands.md"


def pages() -> dict[Path, Path]:
    """Return for each page of the repository where it comes on the site, both relative."""
    found = {page: page.relative_to("docs") for page in _below("docs")}
    found |= {page: page for page in _below("examples")}
    found |= {Path(name): Path(name.lower()) for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")}
    return found | {Path("README.md"): Path("overview.md")}


def _below(folder: str) -> list[Path]:
    return [page.relative_to(ROOT) for page in sorted((ROOT / folder).rglob("*.md"))]


class Site:
    """What was written so far; files come when a page links to them."""

    def __init__(self) -> None:
        self.places = pages()

    def write_page(self, source: Path, place: Path) -> None:
        """Write a page of the repository, with links that lead to its neighbours' new places."""
        text = (ROOT / source).read_text(encoding="utf-8")
        pieces, end = [], 0
        for fence in FENCE.finditer(text):
            pieces += [self._prose(text[end : fence.start()], source, place), fence.group()]
            end = fence.end()
        write(place, "".join(pieces) + self._prose(text[end:], source, place))

    def _prose(self, text: str, source: Path, place: Path) -> str:
        # Where a code host takes two columns for the depth of a list, Python-Markdown takes four.
        text = re.sub(r"^ {2,3}(?=(?:[-*]|\d+\.) )", "    ", text, flags=re.MULTILINE)
        return LINK.sub(lambda link: f"]({self._moved(link.group(1), source, place)})", text)

    def _moved(self, target: str, source: Path, place: Path) -> str:
        path, hash_sign, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return target
        file = Path(os.path.normpath(source.parent / path))
        if file not in self.places:
            self._add_file(file, source)
        return os.path.relpath(self.places[file], place.parent) + hash_sign + anchor

    def _add_file(self, file: Path, named_in: Path) -> None:
        if not (ROOT / file).is_file():
            raise SystemExit(f"{named_in} links to {file}, which is no file")
        if file.suffix in PICTURES:
            self.places[file] = file.relative_to("docs")
            (TARGET / self.places[file]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, TARGET / self.places[file])
        else:
            self.places[file] = Path("files") / f"{file}.md"
            text = (ROOT / file).read_text(encoding="utf-8")
            write(
                self.places[file],
                f"# {file.name}\n\n`{file}`\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text}````\n",
            )


def write(place: Path, text: str) -> None:
    """Write a page of the site."""
    (TARGET / place).parent.mkdir(parents=True, exist_ok=True)
    (TARGET / place).write_text(text, encoding="utf-8")


def exported(module: str) -> list[str]:
    """Return the names in a module's ``__all__``."""
    path = ROOT / "python" / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(statement.value))
    raise SystemExit(f"{module} says not what it exports")


def write_reference() -> None:
    """Write the pages of the reference, which mkdocstrings fills in."""
    for page, (title, modules) in REFERENCE.items():
        lines = ["---", f"title: {title}", "---", ""]
        if all(modules.values()):
            lines += [f"# {title}", ""]
        if page == "shieldfl":
            lines += [*_names_of_package(), ""]
        for module, names in modules.items():
            for name in names:
                lines += [f"::: {module}.{name}", "    options: {heading_level: 2}", ""]
            if not names:
                lines += [f"::: {module}", "    options:", "      heading_level: 1"]
                lines += [f"      members: [{', '.join(exported(module))}]", ""]
        write(Path("api") / f"{page}.md", "\n".join(lines))


def write_commands() -> None:
    """Write what every command prints with ``--help``. This alone imports the package."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from shieldfl.cli.app import app

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, (*words, name))

    lines = ["# Options of every command", ""]
    for words in below(get_command(app), ()):
        printed = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
        lines += [f"## {' '.join(('shieldfl', *words))}", "", "```text", printed.strip("\n"), "```", ""]
    write(COMMANDS, "\n".join(lines))


def _names_of_package() -> list[str]:
    homes = {}
    for page, (_, modules) in REFERENCE.items():
        for module, names in modules.items():
            homes |= {name: (page, f"{module}.{name}") for name in names or exported(module)}
    table = ["| `import shieldfl as sf` | page |", "| --- | --- |"]
    for name in exported("shieldfl"):
        page, anchor = homes[name] if name in homes else (name, next(iter(REFERENCE[name][1])))
        table.append(f"| [`sf.{name}`]({page}.md#{anchor}) | {REFERENCE[page][0]} |")
    return [
        "All that needs NumPy alone, and, loaded when they are first asked for, `KeyAuthority`, `run`, `Task` and",
        "`ComparedRuns`. Other modules are imported by name: `import shieldfl.models`.",
        "",
        *table,
    ]


def main() -> None:
    """Write everything anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    site = Site()
    for source, place in pages().items():
        site.write_page(source, place)
    write_reference()
    write_commands()
    shutil.copytree(ASSETS, TARGET / "assets")


if __name__ == "__main__":
    main()
