"""Examples that are packages: as if they were installed, beside the package itself."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def places_of(tmp_path_factory) -> Callable[[Path], list[str]]:
    """Say where Python finds a folder's package and, beside it, its metadata, as an installation puts them."""

    def places(folder: Path) -> list[str]:
        site = tmp_path_factory.mktemp("site")
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        name, version = project["name"], project["version"]
        metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        groups = [
            f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
            for group, entries in project["entry-points"].items()
        ]
        (metadata / "entry_points.txt").write_text("\n".join(groups))
        return [str(site), str(folder)]

    return places
