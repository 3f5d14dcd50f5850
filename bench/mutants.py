"""Which wrong statements does no test notice? Of the statements that two checkouts share, some are made wrong, one at a
time, and the tests that run each are run: what passes them all survives.

    python bench/mutants.py pick . --beside ../old --output build/mutants.json
    python bench/mutants.py contexts . --output build/contexts.json
    python bench/mutants.py run . build/mutants.json build/contexts.json --output build/survivors.json

`contexts` runs the fast tests once and keeps which of them runs which line. `run` runs the shortest tests first. What
survives here is run in the other checkout, with that one's interpreter and contexts.
"""

import argparse
import ast
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FIRST_TESTS = 30
FOLDERS = ("encryption", "authority", "privacy", "rounds")
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def evaluated(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those of types, which nothing computes."""
    yield tree
    for name, value in ast.iter_fields(tree):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name != "annotation":
                yield from evaluated(child)


def wrong_expressions(tree: ast.AST) -> Iterator[None]:
    """Makes one part of `tree` wrong at each step, in place, and right again after it."""
    for node in list(evaluated(tree)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            kept, node.ops = node.ops, [COMPARED[type(node.ops[0])]()]
            yield
            node.ops = kept
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in COMPUTED:
            operator, node.op = node.op, COMPUTED[type(node.op)]()
            yield
            node.op = operator
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
            value, node.value = (
                node.value,
                (not node.value if isinstance(node.value, bool) else node.value + 1),
            )
            yield
            node.value = value


def wrong_versions(part: ast.AST) -> Iterator[str]:
    """What may stand in place of a simple statement, or of the condition of an `if` or `while`."""
    for _ in wrong_expressions(part):
        yield ast.unparse(part)
    if isinstance(part, ast.expr):
        yield f"not ({ast.unparse(part)})"
    elif isinstance(part, ast.Return) and part.value is not None:
        yield "return None"
    elif isinstance(part, ast.Raise | ast.Expr | ast.AugAssign):
        yield "pass"


def parts_of_functions(text: str) -> Iterator[tuple[str, ast.AST]]:
    """Each simple statement and condition with the name of its function; texts and types are left out."""
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        pending: list[ast.AST] = list(function.body)
        while pending:
            part = pending.pop(0)
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if isinstance(part, ast.If | ast.While):
                yield function.name, part.test
            is_text = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
            if isinstance(part, ast.stmt) and not hasattr(part, "body") and not is_text:
                yield function.name, part
            pending += [
                one for one in ast.iter_child_nodes(part) if isinstance(one, ast.stmt | ast.ExceptHandler)
            ]


def places(root: Path, folders: tuple[str, ...] = ("",)) -> dict[tuple[str, str], list[tuple[Path, ast.AST]]]:
    """Where each statement of each function stands, by the function's name and the statement's text."""
    found: dict[tuple[str, str], list[tuple[Path, ast.AST]]] = {}
    for folder in folders:
        for path in sorted((root / "python/shieldfl" / folder).rglob("*.py")):
            for function, part in parts_of_functions(path.read_text()):
                found.setdefault((function, ast.unparse(part)), []).append((path, part))
    return found


def pick(root: Path, beside: Path, count: int, seed: int) -> list[dict[str, str]]:
    """`count` wrong statements of those that stand once in each of two checkouts."""
    others = places(beside)
    mutants = [
        {"function": function, "right": right, "wrong": wrong}
        for (function, right), here in places(root, FOLDERS).items()
        if len(here) == 1 and len(others.get((function, right), [])) == 1
        for wrong in dict.fromkeys(wrong_versions(here[0][1]))
    ]
    print(f"{len(mutants)} wrong statements that both checkouts may have")
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


class LinesOfTests:
    """A plugin of pytest: coverage says which test runs a line, and a file says how long each took."""

    def __init__(self, durations: Path) -> None:
        self.durations = durations

    def pytest_runtest_setup(self, item) -> None:
        from coverage import Coverage

        Coverage.current().switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report) -> None:
        with self.durations.open("a") as file:
            file.write(json.dumps([report.nodeid, report.duration]) + "\n")


def contexts(root: Path, workers: int) -> dict[str, object]:
    """For each file and line the tests that run it, and each test's seconds."""
    from coverage import Coverage

    folder = root / "build/mutants"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "rc").write_text(
        f"[run]\nsource = python/shieldfl\nparallel = true\ndata_file = {folder}/lines\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import mutants, pytest, pathlib\n"
        "if __name__ == '__main__':  # and not in processes that tests spawn\n"
        f"    plugin = mutants.LinesOfTests(pathlib.Path({str(folder / 'seconds')!r}))\n"
        "    sys.exit(pytest.main(sys.argv[1:], [plugin]))\n"
    )
    (folder / "tests.py").write_text(code)
    files = sorted(
        str(path.relative_to(root))
        for path in (root / "tests").rglob("test_*.py")
        if not path.is_relative_to(root / "tests/packaging")
    )
    command = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        f"--rcfile={folder / 'rc'}",
        str(folder / "tests.py"),
        "-q",
    ]
    command += ["-p", "no:benchmark", "-p", "no:cacheprovider", "-m", "not slow"]
    running = [
        subprocess.Popen([*command, *files[worker::workers]], cwd=root, stdout=subprocess.DEVNULL)
        for worker in range(workers)
    ]
    for process in running:
        process.wait()
    measured = Coverage(data_file=str(folder / "lines"), config_file=str(folder / "rc"))
    measured.combine([str(path) for path in folder.glob("lines.*")])
    data = measured.get_data()
    lines = {
        str(Path(file).relative_to(root)): data.contexts_by_lineno(file) for file in data.measured_files()
    }
    seconds: dict[str, float] = {}
    for line in (folder / "seconds").read_text().splitlines():
        test, duration = json.loads(line)
        seconds[test] = seconds.get(test, 0.0) + duration
    return {"lines": lines, "seconds": seconds}


def made_wrong(text: str, part: ast.AST, wrong: str) -> str:
    """The file's text with `wrong` in the place of `part`."""
    rows = [row.encode() for row in text.splitlines(keepends=True)]
    before = b"".join(rows[: part.lineno - 1]) + rows[part.lineno - 1][: part.col_offset]
    after = rows[part.end_lineno - 1][part.end_col_offset :] + b"".join(rows[part.end_lineno :])
    return (before + wrong.encode() + after).decode()


class WrongModule:
    """A finder of imports that takes one module from another text."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self.name, self.path, self.text = name, path, text

    def find_spec(self, name: str, path=None, target=None):
        if name != self.name:
            return None
        places = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=self, submodule_search_locations=places
        )

    def create_module(self, spec) -> None:
        return None

    def exec_module(self, module) -> None:
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)


def outcome(root: Path, path: Path, text: str, tests: list[str], limit_s: float) -> str:
    """Runs `tests` in a process of their own on the wrong text of one file."""
    child = os.fork()
    if child == 0:
        os.setsid()
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.chdir(root)
        name = ".".join(path.relative_to(root / "python").with_suffix("").parts).removesuffix(".__init__")
        sys.meta_path.insert(0, WrongModule(name, path, text))
        import pytest

        code = 1
        try:
            code = int(
                pytest.main(
                    [*tests, "-x", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider", "-p", "no:xdist"]
                )
            )
        finally:
            os._exit(code)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "out of time"


def run(
    root: Path, mutants: list, known: dict, output: Path, budget_s: float, shard: tuple[int, int]
) -> None:
    """What becomes of each mutant; those which the tests do not kill are written to `output`."""
    # What tests import is imported once.
    for name in ("numpy", "torch", "flwr", "opacus"):
        importlib.import_module(name)

    here, left, counts = places(root), [], {}
    for number, mutant in enumerate(mutants):
        if number % shard[1] != shard[0]:
            continue
        [(path, part)] = here[mutant["function"], mutant["right"]]
        text = path.read_text()
        lines = known["lines"].get(str(path.relative_to(root)), {})
        covering = {
            test for line in range(part.lineno, part.end_lineno + 1) for test in lines.get(str(line), [])
        } - {""}
        tests, spent = [], 0.0
        for test in sorted(covering, key=lambda test: known["seconds"].get(test, 0.0)):
            spent += known["seconds"].get(test, 0.0)
            if tests and spent > budget_s:
                break
            tests.append(test)
        wrong, what = made_wrong(text, part, mutant["wrong"]), "not run"
        # Most are killed before more need be collected.
        for some in (tests[:FIRST_TESTS], tests[FIRST_TESTS:]):
            if some and what in ("not run", "survived"):
                what = outcome(root, path, wrong, some, 60 + 5 * budget_s)
        counts[what] = counts.get(what, 0) + 1
        if what != "killed":
            left.append({**mutant, "file": str(path.relative_to(root)), "line": part.lineno, "outcome": what})
        print(
            f"{number} {what} {path.relative_to(root)}:{part.lineno} {len(tests)} of {len(covering)}",
            flush=True,
        )
        output.write_text(json.dumps(left, indent=1))
    print(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    picked = commands.add_parser("pick", help="wrong statements, drawn by a seed")
    picked.add_argument("--beside", type=Path, required=True)
    picked.add_argument("--count", type=int, default=400)
    picked.add_argument("--seed", type=int, default=50)
    lines = commands.add_parser("contexts", help="which test runs which line")
    lines.add_argument("--workers", type=int, default=os.cpu_count())
    ran = commands.add_parser("run", help="the tests, on each wrong statement")
    for one in (picked, lines, ran):
        one.add_argument("root", type=Path)
        one.add_argument("--output", type=Path, required=True)
    ran.add_argument("mutants", type=Path)
    ran.add_argument("contexts", type=Path)
    ran.add_argument("--budget-s", type=float, default=45.0, help="of tests, for each mutant")
    ran.add_argument("--shard", default="0/1", help="K/N: each Nth mutant from the Kth on")
    given = parser.parse_args()
    root = given.root.resolve()
    if given.command == "pick":
        given.output.write_text(
            json.dumps(pick(root, given.beside.resolve(), given.count, given.seed), indent=1)
        )
    elif given.command == "contexts":
        given.output.write_text(json.dumps(contexts(root, given.workers)))
    else:
        mutants, known = json.loads(given.mutants.read_text()), json.loads(given.contexts.read_text())
        first, of = map(int, given.shard.split("/"))
        run(root, mutants, known, given.output.resolve(), given.budget_s, (first, of))


if __name__ == "__main__":
    main()
