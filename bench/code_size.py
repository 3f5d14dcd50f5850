"""How large the package is: its text, its folders and classes, and what one run walks through.

    python bench/code_size.py [CHECKOUT] [--json]

Text is only read; lines of code are those without documentation and comments. What is entered is measured by the
checkout's own interpreter, ``.venv/bin/python`` there, or by this one where there is none: a key authority in a new
process, with all that it imports; and the second of two runs, when all is imported, of ``full-he`` on ``digits`` with
three clients and one round. Calls and frames are of the package's functions alone, in all threads; comprehensions and
resumed generators count. Of several stacks the deepest is shown.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import threading
import tokenize
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "shieldfl"
WORDS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (ast.ClassDef, *FUNCTIONS)
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
BRANCHES = (*LOOPS, ast.If, ast.IfExp, ast.ExceptHandler, ast.match_case)
ENDINGS = (".py", ".pyi", ".j2")
SCHEME = "pads"
RUN = {"clients": 3, "rounds": 1, "model": "linear", "local_epochs": 1}


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a string alone: the documentation of what is above it."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def words_and_code_lines(text: str) -> tuple[int, int]:
    """Count names, operators, numbers and strings; and the lines that have any but such as is documentation."""
    words = 0
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in WORDS:
            words += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in filter(is_text, ast.walk(ast.parse(text))):
        lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return words, len(lines)


def complexity(function: ast.AST) -> int:
    """Return one more than there are branches, each further operand of ``and`` and ``or`` among them."""
    found = 1
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, DEFINITIONS):  # one that stands within counts for itself
            continue
        if isinstance(node, BRANCHES):
            found += 1 + len(getattr(node, "ifs", ()))
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        waiting.extend(ast.iter_child_nodes(node))
    return found


class Names:
    """What the modules of a package define, and where they have from what they import; by module and name.

    A module itself has the name "".
    """

    def __init__(self, package: Path) -> None:
        self.documented: dict[tuple[str, str], bool] = {}
        self.imported: dict[tuple[str, str], tuple[str, str]] = {}
        self.classes: dict[tuple[str, str], ast.ClassDef] = {}
        self.public: list[tuple[str, str]] = []
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self._read(module, ast.parse(path.read_text("utf-8")))

    def _read(self, module: str, tree: ast.Module) -> None:
        self.documented[module, ""] = ast.get_docstring(tree) is not None
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.classes[module, node.name] = node
            elif isinstance(node, ast.ImportFrom):
                meant = {one.asname or one.name: (node.module or "", one.name) for one in node.names}
                self.imported |= {(module, name): place for name, place in meant.items()}
            elif isinstance(node, ast.Import):
                self.imported |= {(module, one.asname or one.name): (one.name, "") for one in node.names}
        for node, after in pairwise([*tree.body, ast.Pass()]):
            if isinstance(node, DEFINITIONS):
                self.documented[module, node.name] = ast.get_docstring(node) is not None
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for name in [one.id for one in targets if isinstance(one, ast.Name)]:
                self.documented[module, name] = is_text(after)
                if name == "__all__":
                    self.public += [(module, one) for one in ast.literal_eval(node.value)]

    def found(self, place: tuple[str, str]) -> tuple[str, str]:
        """Return where what a module means by a name is defined; the name alone where the package has none of it."""
        while place not in self.documented and place not in self.classes:
            if (".".join(place), "") in self.documented:
                return ".".join(place), ""
            if place not in self.imported:
                return "", place[1]
            place = self.imported[place]
        return place

    def bases(self, place: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """Yield where the classes are defined that one names as its bases."""
        for base in self.classes[place].bases if place in self.classes else ():
            module, found = place[0], ("", "")
            for part in ast.unparse(base).partition("[")[0].split("."):
                found = self.found((module, part))
                module = found[0]
            yield found

    def ancestors(self, place: tuple[str, str]) -> set[tuple[str, str]]:
        """Return all that a class derives from but protocols; of other packages the nearest alone."""
        found: set[tuple[str, str]] = set()
        for base in self.bases(place):
            found |= self.ancestors(base)
            if not {base, *self.bases(base)} & {("", "Protocol"), ("", "Generic")}:
                found.add(base)
        return found


def lines_of(folder: Path, *endings: str, without: str = "") -> int:
    """Count the lines of a folder's files."""
    files = [path for ending in endings for path in folder.rglob(f"*{ending}")]
    kept = [path for path in files if without not in path.relative_to(folder).parts]
    return sum(len(path.read_text("utf-8").splitlines()) for path in kept)


def figures_of_text(root: Path) -> dict[str, int]:
    """Return what is counted in the files of a checkout."""
    package = root / "python" / PACKAGE
    texts = {path: path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}
    counted = [words_and_code_lines(text) for text in texts.values()]
    nodes = [node for text in texts.values() for node in ast.walk(ast.parse(text))]
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    of_classes = [one.name for kind in classes for one in kind.body if isinstance(one, FUNCTIONS)]
    names = Names(package)
    outside = [text for path, text in texts.items() if SCHEME not in path.with_suffix("").parts]
    documented = [names.documented.get(names.found(one), False) for one in names.public]
    return {
        "lines": lines_of(package, *ENDINGS),
        "lines outside of lab": lines_of(package, *ENDINGS, without="lab"),
        "code lines": sum(lines for _, lines in counted),
        "tokens": sum(words for words, _ in counted),
        "public names": len(documented),
        "public names with a docstring": sum(documented),
        "functions of a complexity above 10": sum(complexity(one) > 10 for one in functions),
        "longest line": max(len(line) for text in texts.values() for line in text.splitlines()),
        "files": sum(len(list(package.rglob(f"*{ending}"))) for ending in ENDINGS),
        "folders directly in the package": sum(any(one.glob("**/*.py")) for one in package.glob("*/")),
        ".py files directly in the package": len(list(package.glob("*.py"))),
        "classes": len(classes),
        "functions": len(functions),
        "lines of tests, without twins": lines_of(root / "tests", ".py", without="reference"),
        "lines of bench": lines_of(root / "bench", ".py"),
        "most bases of a class, without protocols": max(len(names.ancestors(one)) for one in names.classes),
        "__getattr__ in classes": of_classes.count("__getattr__") + of_classes.count("__getattribute__"),
        f"files that name the scheme {SCHEME}, without its own": sum(
            bool(re.search(rf"\b{SCHEME}\b", text)) for text in outside
        ),
    }


class Watch:
    """Counts calls of the package's functions, and the files that these are in, while it is entered."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.calls = 0
        self.files: set[str] = set()

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self.folder):
            self.calls += 1
            self.files.add(frame.f_code.co_filename)

    def __enter__(self) -> Watch:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def figures_of_stack(frame: FrameType | None, folder: str) -> tuple[int, int, int]:
    """Return how many frames of the package are above one, of how many objects' classes, in how many files."""
    frames, classes, files = 0, set(), set()
    while frame is not None:
        if frame.f_code.co_filename.startswith(folder):
            frames += 1
            files.add(frame.f_code.co_filename)
            own = frame.f_locals.get("self", frame.f_locals.get("cls"))
            if own is not None:
                classes.add(own if isinstance(own, type) else type(own))
        frame = frame.f_back
    return frames, len(classes), len(files)


def measured_run() -> dict[str, int]:
    """Run once to import everything, once to count, and once to see from where the core encrypts and opens."""
    import shieldfl._core as core
    from shieldfl import run

    folder = str(Path(sys.modules[PACKAGE].__file__ or "").parent) + os.sep
    run("digits", ["full-he"], **RUN)
    with Watch(folder) as watch:
        run("digits", ["full-he"], **RUN)
    stacks: dict[str, list[tuple[int, int, int]]] = {"encrypt": [], "open": []}

    def watched(verb: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            stacks[verb].append(figures_of_stack(sys._getframe(1), folder))
            return function(*arguments, **named)

        return call

    for kind in filter(lambda one: isinstance(one, type), vars(core).values()):
        for verb in stacks:
            for name in [one for one in vars(kind) if one == verb or one.startswith(f"{verb}_")]:
                setattr(kind, name, watched(verb, getattr(kind, name)))
    run("digits", ["full-he"], **RUN)
    found = {"Python calls of a run": watch.calls, "files that a run enters": len(watch.files)}
    for verb, title in (("encrypt", "encryption"), ("open", "opening")):
        for count, what in zip(max(stacks[verb]), ("frames", "distinct classes", "files"), strict=True):
            found[f"stack at {title}: {what}"] = count
    return found


def measured_authority() -> dict[str, int]:
    """Make a first key authority, and see what is entered, imported modules among it."""
    import shieldfl as sf

    with Watch(str(Path(sf.__file__).parent) + os.sep) as watch:
        sf.KeyAuthority(sf.kahe.Parameters(max_clients=64, value_bits=24, fraction_bits=20))
    return {"files that a key authority enters": len(watch.files)}


def figures_of_runs(root: Path) -> dict[str, int]:
    """Return what is measured by running a checkout's package."""
    own = root / ".venv" / "bin" / "python"
    python = str(own if own.exists() else sys.executable)
    places = [str(root / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    found: dict[str, int] = {}
    for part in ("run", "authority"):
        done = subprocess.run(
            [python, __file__, "--measure", part], env=environment, stdout=subprocess.PIPE, check=True
        )
        found |= json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--measure", choices=["run", "authority"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(measured_run() if chosen.measure == "run" else measured_authority()))
        return
    root = chosen.checkout.resolve()
    figures = figures_of_text(root) | figures_of_runs(root)
    if chosen.json:
        print(json.dumps(figures, indent=1))
        return
    for name, figure in figures.items():
        print(f"{name:<52} {figure:>8,}")


if __name__ == "__main__":
    main()
