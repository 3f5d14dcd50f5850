"""The dependency lists of the design, enforced: who may include and import whom, and how large a file may get."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shieldfl
from code_size import Names

ROOT = Path(__file__).parents[1]
CPP = ROOT / "cpp"
PACKAGE = ROOT / "python" / "shieldfl"

# What each folder of the core may include besides itself. Schemes never include each other.
CPP_LAYERS = {
    "common": set(),
    "parallel": {"common"},
    **{name: {"parallel", "common"} for name in ("mask", "ring")},
    "selection": {"mask", "parallel", "common"},
    "noise": {"mask", "ring", "parallel", "common"},
    "scheme": {"mask", "parallel", "common"},
    "packed": {"scheme", "mask", "ring", "parallel", "common"},
    "enrolled": {"packed", "scheme", "mask", "parallel", "common"},
    "rlwe": {"packed", "scheme", "mask", "ring", "parallel", "common"},
    "ckks": {"noise", "rlwe", "packed", "scheme", "mask", "ring", "parallel", "common"},
    "kahe": {"rlwe", "enrolled", "packed", "scheme", "mask", "ring", "parallel", "common"},
    "pads": {"enrolled", "packed", "scheme", "mask", "parallel", "common"},
    "paillier": {"scheme", "mask", "parallel", "common"},
}
CPP_LAYERS["bindings"] = set(CPP_LAYERS)
# Includes of other libraries, and the only files that may have them.
CPP_LIBRARIES = {
    "seal": {
        "ckks/seal_bridge.cpp",
        "ckks/seal_bridge.h",
        "ckks/seal_general_path.cpp",
        "common/digest.cpp",
        "rlwe/moduli.cpp",
    },
    "gmp": {"paillier/"},
    "pybind11": {"bindings/"},
    "Python": set(),
}

# What each part of the Python package may import of the others, from the bottom up.
GROUND = {"_core", "array_view", "build_info", "errors", "masks", "stateful"}
PYTHON_LAYERS = {
    "array_view": {"_core", "errors"},
    "build_info": {"_core", "errors"},
    "errors": set(),
    "masks": {"_core", "array_view", "errors"},
    "quantities": {"errors"},
    "settings": {"errors"},
    "stateful": {"array_view", "errors"},
    "encryption": GROUND,
    "authority": GROUND | {"encryption"},
    # Models as people hold them; of NumPy's arrays without torch.
    "models": {"array_view", "errors", "masks"},
    "privacy": GROUND | {"models", "settings"},
    "learning": {"array_view", "errors", "models", "privacy", "settings"},
    "rounds": GROUND | {"authority", "encryption", "learning", "models", "privacy", "settings"},
    "methods": GROUND | {"authority", "encryption", "learning", "models", "privacy", "rounds", "settings"},
    # What a package with a method of its own tests it with.
    "testing": GROUND | {"authority", "encryption", "learning", "methods", "privacy", "rounds", "settings"},
    "authority_service": GROUND | {"authority", "encryption", "methods", "privacy", "rounds", "settings"},
    "flower": GROUND
    | {
        "",
        "authority",
        "authority_service",
        "learning",
        "methods",
        "models",
        "privacy",
        "quantities",
        "rounds",
    }
    | {"settings"},
    # What is attacked, compared or predicted knows nothing of who does it.
    "lab": GROUND
    | {
        "",
        "_seal_baseline",
        "authority",
        "encryption",
        "learning",
        "methods",
        "models",
        "privacy",
        "quantities",
    }
    | {"rounds", "settings"},
    "cli": GROUND
    | {"", "authority", "authority_service", "encryption", "flower", "lab", "learning", "methods", "privacy"}
    | {"quantities", "rounds", "settings"},
    "_aliases": set(),
    "__init__": GROUND | {"_aliases", "authority", "encryption", "lab", "methods", "rounds"},
    "__main__": {"cli"},
}
# Libraries, and the only parts of the package that may import them.
PYTHON_LIBRARIES = {
    "torch": {"flower", "lab", "learning", "methods", "models", "privacy", "rounds"},
    "opacus": {"privacy"},
    "dp_accounting": {"methods", "privacy"},
    "scipy": {"lab", "privacy"},
    "sklearn": {"lab", "methods"},
    "matplotlib": {"lab"},
    "jinja2": {"lab"},
    "rich": {"cli", "lab"},
    "typer": {"cli"},
    "cryptography": {"authority", "authority_service", "encryption"},
    **{served: {"authority_service"} for served in ("aiohttp", "httpx", "prometheus_client")},
    "sqlite3": {"authority"},
    "msgspec": {
        "authority_service",
        "cli",
        "flower",
        "lab",
        "methods",
        "models",
        "rounds",
        "settings",
        "authority",
    }
    | {"stateful"},
    "pytest": {"testing"},
    **{compared: {"lab"} for compared in ("tenseal", "phe", "gmpy2", "heu")},
    "flwr": {"flower", "lab"},
}

# More than this is several concepts in one file, and more than a reader keeps in mind.
MOST_LINES = 350
MOST_PYTHON_LINES = 700
SOURCE_SUFFIXES = {".py", ".h", ".cpp", ".cc", ".hpp", ".j2", ".toml", ".cmake"}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES and "__pycache__" not in path.parts:
                yield path


def core_sources() -> list[Path]:
    return [path for path in sources("cpp") if path.relative_to(CPP).parts[0] != "tests"]


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def python_sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The package's part that a file belongs to: a folder, or a module of its own."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> set[str]:
    """Absolute names of everything a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            if node.module == "shieldfl":
                names |= {f"shieldfl.{alias.name}" for alias in node.names}
            else:
                names.add(node.module)
    return names


def test_there_is_something_to_look_at():
    assert len(core_sources()) > 40
    assert len(python_sources()) > 30
    assert {path.relative_to(CPP).parts[0] for path in core_sources()} <= set(CPP_LAYERS) | {"tests"}


def test_includes_point_down():
    for path, include in ((one, include) for one in core_sources() for include in includes(one)):
        name = path.relative_to(CPP).as_posix()
        layer = name.split("/")[0]
        folder = include.split("/")[0]
        if folder in CPP_LAYERS:
            assert folder == layer or folder in CPP_LAYERS[layer], f"{name} includes {include}"
            assert (CPP / include).is_file(), f"{name} includes {include}, which does not exist"
        for library, allowed in CPP_LIBRARIES.items():
            if re.match(rf"{library}(xx)?[./]", include):
                assert any(name.startswith(place) for place in allowed), f"{name} includes {include}"


def test_core_headers_are_included_once():
    for path in (one for one in sources("cpp") if one.suffix == ".h"):
        assert path.read_text().count("#pragma once") == 1, path


def test_imports_point_down():
    for path, name in ((one, name) for one in python_sources() for name in imports(one)):
        part = part_of(path)
        allowed = PYTHON_LAYERS[part] | {part}
        top, _, rest = name.partition(".")
        if top == "shieldfl":
            assert rest.split(".")[0] in allowed, f"{path} imports {name}"
        elif top in PYTHON_LIBRARIES:
            assert part in PYTHON_LIBRARIES[top], f"{path} imports {name}"


def test_only_the_key_authority_makes_what_holds_a_secret_key():
    def naming(pattern: str) -> set[str]:
        return {
            path.relative_to(PACKAGE).as_posix()
            for path in python_sources()
            if re.search(pattern, path.read_text())
        }

    assert naming(r"CkksDecryptor|PaillierDecryptor") == {"encryption/opening.py"}
    assert naming(r"encryption\.opening\b|encryption import .*\bopening\b") == {
        "authority/key_authority.py",
        "lab/bench/comparison.py",
    }
    # Nor does anybody else import an authority's memory, but for its type.
    typing = {"rounds/authorities.py", "rounds/method.py"}
    importing = naming(r"authority\.(authority_store|store) import") - typing
    assert {name.partition("/")[0] for name in importing} == {"authority", "authority_service"}
    for name in typing:
        runs, _, types = (PACKAGE / name).read_text().partition("if TYPE_CHECKING:\n")
        assert "authority_store" in types
        assert "authority_store" not in runs
    assert "KeyAuthority" not in (PACKAGE / "methods" / "selective_shield" / "method.py").read_text()


@pytest.mark.parametrize("folder", ["cpp", "python", "tests", "bench", "examples"])
def test_no_file_is_too_long(folder):
    def most(path: Path) -> int:
        return MOST_PYTHON_LINES if path.suffix == ".py" else MOST_LINES

    too_long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in sources(folder)
        if (lines := len(path.read_text().splitlines())) > most(path)
    }
    assert not too_long, "split them by concept"


def test_no_line_of_the_package_is_too_long():
    too_long = [
        path for path in python_sources() if max(map(len, path.read_text().splitlines()), default=0) > 110
    ]
    assert not too_long


def test_nothing_is_left_undone():
    words = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
    for path in [
        *sources("cpp", "python", "tests", "bench", "examples", "cmake"),
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
    ]:
        assert not words.search(path.read_text()), path


def test_public_names_exist_and_are_all_there_is():
    assert sorted(shieldfl.__all__) == shieldfl.__all__
    assert all(hasattr(shieldfl, name) for name in shieldfl.__all__)


def test_every_exported_name_is_described():
    names = Names(PACKAGE)
    assert [one for one in names.public if not names.documented.get(names.found(one))] == []


# Kernels are compiled once for each instruction set, and of an inline function that several objects have the linker
# keeps one copy. Were it that for the newest processor, older ones would crash. So these files emit nothing under a
# name that another file may use too.
VECTOR_SOURCE = re.compile(r"_(avx2|avx512|neon)\.cpp$")
KERNEL_SOURCES = [path for path in core_sources() if VECTOR_SOURCE.search(path.name)]
KERNEL_LIBRARY = {"arm_acle.h", "arm_neon.h", "immintrin.h", "cstddef", "cstdint"}
KERNEL_TYPES = {
    "size_t",
    "uintptr_t",
    *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


def shared_declarations(path: Path) -> list[str]:
    """First lines of what a file declares outside of anonymous namespaces; bodies are indented."""
    text = re.sub(r"^namespace \{\n.*?^\}  // namespace$", "", path.read_text(), flags=re.M | re.S)
    text = re.sub(r"//.*|^#(?:.*\\\n)*.*", "", text, flags=re.M)
    text = re.sub(r"^(template <.*>)\n", r"\1 ", text, flags=re.M)
    return [line for line in re.findall(r"^\S.*", text, re.M) if not re.match(r"\}|namespace \w", line)]


@pytest.mark.parametrize("path", KERNEL_SOURCES, ids=lambda path: str(path.relative_to(CPP)))
def test_kernels_share_no_code_between_instruction_sets(path):
    interface = {
        VECTOR_SOURCE.sub(".h", path.relative_to(CPP).as_posix()),
        "common/cpu_features.h",
        "common/verify.h",
    }
    waiting, shared = [path], set()
    while waiting:
        source = waiting.pop()
        assert set(re.findall(r"std::(\w+)", re.sub(r"//.*", "", source.read_text()))) <= KERNEL_TYPES, source
        for include in set(includes(source)) - KERNEL_LIBRARY - interface:
            assert (path.parent / Path(include).name) == CPP / include, f"{source} includes {include}"
            if CPP / include not in shared:
                shared.add(CPP / include)
                waiting.append(CPP / include)
    # A template is instantiated for a type of the including file's own, and so under a name of its own.
    for header in shared:
        for line in shared_declarations(header):
            assert re.match(r"template <typename (Lanes|Steps)> ", line), f"{header}: {line}"
    for line in shared_declarations(path):
        assert re.match(r"const \w+Kernels k\w+(Avx2|Avx512|Neon)\b", line), f"{path}: {line}"
    for header in interface:
        body = re.search(r"\)( const)?( noexcept)? \{", (CPP / header).read_text())
        assert body is None, f"{header} defines a function, which every includer would emit"
