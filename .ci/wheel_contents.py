"""Licences of what a wheel contains, and the check of all that is in it.

usage: wheel_contents.py licences UNPACKED EXPRESSION FOLDER
       wheel_contents.py check WHEEL SDIST PATH...

``licences`` puts the files of a folder among the licences of an unpacked wheel, and adds what they are to its metadata.
``check`` ends with an error unless the wheel has the sdist's package, its extensions, GMP, licences and nothing else,
and names none of the paths, which are this machine's.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

EXTENSIONS = ("_core", "_seal_baseline")
LIBRARIES = ("libgmp",)
LICENCES = (
    "LICENSE",
    "GMP/NOTICE.txt",
    "GMP/copyright",
    "GMP/GPL-2.txt",
    "GMP/GPL-3.txt",
    "GMP/LGPL-3.txt",
    "SEAL/LICENSE",
    "SEAL/NOTICE",
    "pybind11/LICENSE",
)
OWN_SYMBOL = re.compile(r"_Z(T[ISV]|GV)?N?K?(4seal|8pybind11|8shieldfl)")
"""A function, a table or a guard of what is linked statically; templates of the C++ library are everybody's."""
LARGEST = 8 * 2**20
"""In bytes: far more than there should be."""


def add_licences(unpacked: Path, expression: str, folder: Path) -> None:
    """Add files and an SPDX expression to those that the wheel states already (core metadata 2.4)."""
    (information,) = unpacked.glob("*.dist-info")
    shutil.copytree(folder, information / "licenses", dirs_exist_ok=True)
    added = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    metadata = information / "METADATA"
    head, blank, description = metadata.read_text(encoding="utf-8").partition("\n\n")
    lines = []
    for line in head.split("\n"):
        if line.startswith("License-Expression: "):
            lines.append(f"{line} AND {expression}")
        else:
            lines.append(line)
        if line.startswith("License-File: "):
            lines += [f"License-File: {name}" for name in added]
    metadata.write_text("\n".join(lines) + blank + description, encoding="utf-8")


def package_of(sdist: Path) -> set[str]:
    """Return the files of the Python package in an sdist, by their places in a wheel."""
    with tarfile.open(sdist) as archive:
        parts = [PurePosixPath(member.name).parts[1:] for member in archive if member.isfile()]
    return {"/".join(path[1:]) for path in parts if path[:2] == ("python", "shieldfl")}


def check_files(names: set[str], package: set[str]) -> list[str]:
    """Return what is wrong with the list of a wheel's files."""
    wrong = [f"{name} is missing" for name in sorted(package - names)]
    rest = names - package
    expected = [rf"shieldfl/{name}\.cpython-\d+-x86_64-linux-gnu\.so" for name in EXTENSIONS]
    expected += [rf"shieldfl\.libs/{name}-[0-9a-f]+\.so[.\d]*" for name in LIBRARIES]
    expected += [rf"shieldfl-[^/]+\.dist-info/licenses/{re.escape(name)}" for name in LICENCES]
    expected += [
        rf"shieldfl-[^/]+\.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")
    ]
    # The list of what was put into the wheel. The tool that does so adds none if GMP's package is there for two
    # architectures, as the tests for ARM need it.
    rest -= {
        name for name in rest if re.fullmatch(r"shieldfl-[^/]+\.dist-info/sboms/auditwheel\.cdx\.json", name)
    }
    for pattern in expected:
        found = {name for name in rest if re.fullmatch(pattern, name)}
        rest -= found
        if len(found) != 1:
            wrong.append(f"{len(found)} files are {pattern}, not one")
    wrong += [f"{name} should not be in it" for name in sorted(rest)]
    if "shieldfl/py.typed" not in names:
        wrong.append("shieldfl/py.typed is missing: nobody's type checker would look at the package")
    return wrong


def check_metadata(metadata: Message, names: set[str]) -> list[str]:
    """Return what is wrong with a wheel's metadata."""
    wrong = []
    stated = {
        f"shieldfl-{metadata['Version']}.dist-info/licenses/{name}"
        for name in metadata.get_all("License-File", [])
    }
    there = {name for name in names if ".dist-info/licenses/" in name}
    if stated != there:
        wrong.append(f"the metadata state other licence files than there are: {sorted(stated ^ there)}")
    if "LGPL-3.0-or-later" not in metadata.get("License-Expression", ""):
        wrong.append("the metadata do not state GMP's licence")
    return wrong


def check_library(name: str, content: bytes) -> list[str]:
    """Return what is wrong with a shared library: where it looks for others, which it needs, what it shows them."""
    # Only the check needs it, and where that runs it has come with auditwheel.
    from elftools.elf.elffile import ELFFile

    wrong = []
    elf = ELFFile(io.BytesIO(content))
    dynamic = elf.get_section_by_name(".dynamic")
    tags = {"DT_RPATH": [], "DT_RUNPATH": [], "DT_NEEDED": []}
    for tag in dynamic.iter_tags():
        if tag.entry.d_tag in tags:
            tags[tag.entry.d_tag].append(getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower()))
    is_extension = name.startswith("shieldfl/")
    needs_ours = any(needed.startswith(LIBRARIES) for needed in tags["DT_NEEDED"])
    paths = tags["DT_RPATH"] + tags["DT_RUNPATH"]
    if paths != (["$ORIGIN/../shieldfl.libs"] if is_extension and needs_ours else []):
        wrong.append(f"{name} looks for libraries in {paths}")
    if any(re.fullmatch(r"libgmp\.so[.\d]*", needed) for needed in tags["DT_NEEDED"]):
        wrong.append(f"{name} needs the system's GMP")
    if elf.get_section_by_name(".debug_info") or elf.get_section_by_name(".symtab"):
        wrong.append(f"{name} is not stripped")
    shown = [
        symbol.name
        for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
        if symbol.entry.st_shndx != "SHN_UNDEF" and OWN_SYMBOL.match(symbol.name)
    ]
    if shown:
        wrong.append(f"{name} shows {len(shown)} of its symbols to other libraries, such as {shown[0]}")
    return wrong


def check(wheel: Path, sdist: Path, machine_paths: list[str]) -> list[str]:
    """Return what is wrong with a wheel."""
    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        wrong += check_files(names, package_of(sdist))
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        wrong += check_metadata(HeaderParser().parsestr(archive.read(metadata).decode()), names)
        for name in sorted(names):
            content = archive.read(name)
            if content.startswith(b"\x7fELF"):
                wrong += check_library(name, content)
            wrong += [f"{name} names {path}" for path in machine_paths if path.encode() in content]
    if wheel.stat().st_size > LARGEST:
        wrong.append(f"it has {wheel.stat().st_size:,} bytes")
    return wrong


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "licences":
        add_licences(Path(arguments[0]), arguments[1], Path(arguments[2]))
    elif problems := check(Path(arguments[0]), Path(arguments[1]), arguments[2:]):
        sys.exit("\n".join(f"{Path(arguments[0]).name}: {problem}" for problem in problems))
