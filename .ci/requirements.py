"""Prints what an extra of the package needs, one requirement a line, so that it can be installed beside the build.

usage: requirements.py EXTRA [PYPROJECT]      (an EXTRA of '' is none, one of build-system what compiles the package)
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
    stated = tomllib.loads(pyproject.read_text())
    # scikit-build-core asks for CMake and Ninja itself where the system has none.
    build = [*stated["build-system"]["requires"], "cmake", "ninja"]
    print("\n".join(build if sys.argv[1] == "build-system" else requirements(stated["project"], sys.argv[1])))
