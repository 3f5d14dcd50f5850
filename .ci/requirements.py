"""Prints what an extra of the package needs, one requirement a line, so that it can be installed beside the build.

usage: requirements.py EXTRA [PYPROJECT]      (an EXTRA of '' is none)
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(project: dict, extra: str) -> list[str]:
    """Return the package's own requirements and an extra's, with the extras that it names in turn."""
    own = project["name"] + "["
    found = list(project["dependencies"])
    for requirement in project["optional-dependencies"][extra] if extra else ():
        if requirement.startswith(own):
            for other in requirement.removeprefix(own).removesuffix("]").split(","):
                found += requirements(project, other.strip())
        else:
            found.append(requirement)
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    pyproject = Path(sys.argv[2] if len(sys.argv) > 2 else "pyproject.toml")
    print("\n".join(requirements(tomllib.loads(pyproject.read_text())["project"], sys.argv[1])))
