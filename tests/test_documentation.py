"""What the documentation promises: examples run, links lead somewhere, names exist, numbers are the code's."""

from __future__ import annotations

import ast
import doctest
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from documentation_pages import PAGES, ROOT, doc, name_of, prose_of, table_rows, text_of
from setting_tables import pages_of_methods, table_of
from shieldfl.encryption.registry import scheme_of
from shieldfl.methods.registry import BUILT_IN, named_method

FENCE = re.compile(r"^```(\w*)(?: title=\"[^\"]+\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""One that runs on its own. Those with a title are a page's files, which its own test runs together."""

# fmt: off
BINDING_NAMES = (
    "Mask", "Mask.from_bool", "Mask.from_indices", "Mask.from_bytes", "Mask.size", "Mask.count",
    "Mask.to_bool", "Mask.to_indices", "Mask.to_bytes", "Mask.__and__", "Mask.__or__", "Mask.__sub__",
    "Mask.__invert__", "Mask.__eq__", "negotiate", "Votes", "Votes.add", "Votes.consensus",
    "Votes.counts", "ckks.Parameters", "ckks.Parameters.describe", "ckks.Parameters().bytes_per_value",
    "ckks.Parameters().security_bits", "ckks.Parameters.plan", "ckks.Parameters.fit",
    "kahe.Parameters.plan", "kahe.Parameters.fit", "kahe.Parameters.describe",
    "kahe.Parameters().security_bits", "KeyAuthority", "KeyAuthority.open", "KeyAuthority.open_mean",
    "ckks.Encryptor", "ckks.Encryptor.encrypt", "ckks.CiphertextBatch", "ckks.CiphertextBatch.to_bytes",
    "ckks.CiphertextBatch.from_bytes", "ckks.Aggregator", "ckks.Aggregator.add",
    "ckks.Aggregator.add_total", "ckks.Aggregator.total", "ckks.Total.clients", "paillier.Parameters",
    "paillier.Parameters.fit", "paillier.Encryptor", "paillier.Encryptor.encrypt",
    "paillier.CiphertextBatch", "paillier.Aggregator", "paillier.Aggregator.add",
    "paillier.Aggregator.total", "paillier.Total.clients", "ShieldError", "ParameterError",
    "KeyMismatchError", "WireFormatError", "RangeError", "CapacityError", "PolicyError",
    "DuplicateFrameError", "ConvergenceError", "build_info", "encrypted_mean",
)
# fmt: on


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


WIRE_FORMAT = "docs/reference/wire-format.md"
LONG_EXAMPLES = ("docs/explanation/paillier.md-0", "docs/how-to/own-task.md-1")  # several seconds each
EXAMPLES = [
    pytest.param(code, id=name, marks=pytest.mark.slow if name in LONG_EXAMPLES else ())
    for page in PAGES
    for number, code in enumerate(PROGRAM.findall(text_of(page)))
    for name in (f"{name_of(page)}-{number}",)
]
PROMPTED = re.compile(r"^ *-------\n((?: *(?:>>>|\.\.\.) .*\n)+)", re.MULTILINE)
EXAMPLES += [
    pytest.param("".join(line.source for line in doctest.DocTestParser().get_examples(found)), id=path.name)
    for path in sorted((ROOT / "python").rglob("*.py"))
    for found in PROMPTED.findall(text_of(path))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run_as_written(code, tmp_path, request):
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    if re.search(r"torch|shieldfl\.(simulation|methods)", code):
        pytest.importorskip("opacus")
        pytest.importorskip("sklearn")
        warm = request.getfixturevalue("warm_python")
        run_script = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
        done = warm.run(run_script, folder=tmp_path)
    else:
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""


def test_examples_import_what_they_use():
    """What of the package they name as ``sf.NAME`` is there without torch, or an import of theirs brings it."""
    names = "import shieldfl; print(*dir(shieldfl))"
    there = set(subprocess.check_output([sys.executable, "-c", names], text=True).split())
    for example in EXAMPLES:
        code = example.values[0]
        named = set(re.findall(r"\bsf\.(\w+)", code))
        imported = set(re.findall(r"^import shieldfl\.(\w+)", code, re.MULTILINE))
        assert named <= there | imported, example.id


@pytest.mark.parametrize("code", EXAMPLES)
def test_assertions_of_examples_only_look(code):
    """``python -O`` leaves them out, and the steps of a protocol with them."""
    asserted = [ast.unparse(one.test) for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Assert)]
    steps = r"\.(accept|add|encrypt|enrol|request|sum_key|take_grant)\("
    assert [one for one in asserted if re.search(steps, one)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    prose = FENCE.sub("", text_of(page))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors_of(linked), f"{target} names no heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page):
    for path in re.findall(r"`((?:cpp|cmake|docs|python|tests)/[\w./-]+)`", text_of(page)):
        assert (ROOT / path).exists(), f"{path} does not exist"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page):
    makefile = doc("Makefile")
    for target in re.findall(r"(?:^|`)make ([a-z][a-z0-9-]*)", text_of(page), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target} does not exist"


@pytest.mark.parametrize("name", BINDING_NAMES)
def test_binding_names_exist(name):
    assert eval(f"sf.{name}") is not None


def test_the_table_of_methods_says_what_their_classes_say():
    rows = table_rows(doc("docs/how-to/choosing-a-method.md"), "method")
    stated = {name: row[1:] for name, row in zip(pages_of_methods(), rows, strict=True)}
    said = {name: named_method(name) for name in BUILT_IN}
    assert stated == {name: [one.sends, one.purpose] for name, one in said.items()}


@pytest.mark.parametrize("name", BUILT_IN)
def test_settings_of_methods_are_documented(name):
    page, settings = doc(f"docs/reference/methods/{pages_of_methods()[name]}"), named_method(name).settings
    assert ("| setting |" in page) == (settings is not None)
    assert settings is None or table_of(settings) in page, "run python tests/setting_tables.py"


def test_wire_header_table_is_the_core_s():
    header, source = doc("cpp/common/wire.h"), doc("cpp/common/wire.cpp")
    constants = {name: int(value) for name, value in re.findall(r"constexpr \S+ (k\w+) = (\d+);", header)}
    magic = "".join(re.findall(r"'(\w)'", re.search(r"kMagic = \{(.*?)\}", source).group(1)))
    rows = {row[2]: row for row in table_rows(doc(WIRE_FORMAT), "offset")}
    assert rows["magic"][3] == f"`{magic}`"
    assert rows["version"][3] == f"u16, {constants['kWireVersion']}"
    assert int(rows["body"][0]) == constants["kFrameHeaderBytes"]
    assert int(rows["checksum"][1]) == constants["kFrameTrailerBytes"]
    fixed = [
        (int(row[0]), int(row[1])) for row in rows.values() if row[0] != "end" and row[1] != "body bytes"
    ]
    ends = [offset + size for offset, size in fixed]
    assert [offset for offset, _ in fixed] + [constants["kFrameHeaderBytes"]] == [0, *ends]


def test_frame_kinds_are_the_core_s():
    enumerators = re.search(r"enum class FrameKind.*?\{(.*?)\}", doc("cpp/common/wire.h"), re.DOTALL).group(1)
    numbers = [int(number) for number in re.findall(r"= (\d+)", enumerators)]
    kinds = {1: "mask"}
    for frame, _, *numbered in table_rows(doc(WIRE_FORMAT), "frame"):
        for scheme, number in zip(("ckks", "paillier", "kahe", "pads"), numbered, strict=True):
            if number:
                kinds[int(number)] = frame if frame == "union order" else f"{scheme} {frame}"
    assert sorted(kinds) == numbers
    for number, name in kinds.items():
        frame = b"SHFL" + struct.pack("<HHQ", 2, number, 0) + bytes(36)
        assert _core.summarise_frame(frame).kind_name == name


def test_example_mask_is_the_documented_one():
    frame = sf.Mask.from_indices([1, 5, 70], 100).to_bytes()
    page = prose_of(WIRE_FORMAT)
    assert f"`{frame[66:-4].hex(' ')}`" in page
    assert f"the frame takes {len(frame)} bytes" in page


def test_packing_limits_in_the_wire_format_are_the_core_s():
    headers = doc("cpp/scheme/fixed_point.h") + doc("cpp/rlwe/packed_digits.h")
    rows = {row[2]: row[3] for row in table_rows(doc(WIRE_FORMAT).partition("## Parameters")[2], "offset")}
    limit = {name: int(value) for name, value in re.findall(r"constexpr \w+ (k\w+) = (\d+);", headers)}
    assert rows["value_bits"] == f"{limit['kMinValueBits']} to {limit['kMaxValueBits']}"
    assert rows["fraction_bits"] == f"0 to {limit['kMaxFractionBits']}"
    assert f"at most {limit['kMaxFieldBits']}" in rows["max_clients"]
    assert f"{limit['kMinPrimeBits']} to {limit['kMaxPrimeBits']} bits" in rows["primes"]
    for half in (0, 1):
        assert rows[f"dropped bits of c{half}"] == f"0 to {limit['kMaxDroppedBits']}"


def test_sizes_in_the_wire_format_are_the_core_s():
    page = prose_of(WIRE_FORMAT)
    authority = sf.KeyAuthority(sf.ckks.Parameters())
    facts = authority.public_key.parameters._facts
    assert f"the frame takes {len(authority.public_key.to_bytes()):,} bytes" in page
    assert f"that is {facts['ciphertext_bytes']:,} and {facts['total_ciphertext_bytes']:,} bytes" in page
    encoded = re.search(
        r"encoded_bytes\(.*?return (\d+) \+ (\d+) \* prime_count", doc("cpp/ckks/parameters.h")
    )
    fixed, each = encoded.groups()
    assert f"{fixed} bytes and {each} more for each prime. They open the body" in page
    assert page.count(f"| {fixed} + {each} · primes | parameters |") == 2
    rows = table_rows(doc(WIRE_FORMAT).partition("## Parameters")[2], "offset")
    ends = [int(row[0]) + int(row[1].removesuffix(" each")) for row in rows]
    assert [int(row[0]) for row in rows] == [0, *ends[:-1]]
    assert rows[-1][0] == fixed


def test_what_a_small_update_costs_is_measured():
    for count, *frames in table_rows(doc("docs/how-to/own-loop.md"), "values"):
        size = int(count.replace(",", ""))
        planned = sf.kahe.Parameters.plan(max_clients=8, count=size)
        made = sf.kahe.Parameters(max_clients=8), planned, sf.pads.Parameters(max_clients=8)
        for parameters, frame in zip(made, frames, strict=True):
            scheme = scheme_of(parameters)
            encryptor = scheme.Encryptor(sf.KeyAuthority(parameters).enrol("clinic-1"))
            assert f"{encryptor.encrypt(np.zeros(size)).nbytes:,}" == frame


def test_costs_of_full_encryption_are_computed():
    page = prose_of("docs/reference/methods/full-he.md")
    for settings, words in (
        ({}, "a model of a million values {:.2f} bytes for each"),
        ({"value_bits": 16, "fraction_bits": 14}, "it is {:.2f}: values"),
    ):
        planned = sf.ckks.Parameters.plan(max_clients=20, goal="size", count=10**6, **settings)
        ciphertexts = -(-(10**6) // planned._facts["values_per_ciphertext"])
        assert words.format(ciphertexts * planned._facts["ciphertext_bytes"] / 10**6) in page


def test_costs_of_selective_shield_are_computed():
    page = prose_of("docs/reference/methods/selective-shield.md")
    updates = sf.ckks.Parameters(max_clients=20)
    size = 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10
    votes = sf.ckks.Parameters.plan(max_clients=20, value_bits=2, fraction_bits=0, goal="size", count=size)
    ballots = -(-size // votes._facts["values_per_ciphertext"])
    assert f"{updates.bytes_per_value:.2f} bytes on the wire" in page
    ballot_bytes, update_bytes = (one._facts["ciphertext_bytes"] for one in (votes, updates))
    assert f"{ballots * ballot_bytes / size:.2f} bytes for each parameter" in page
    assert f"that is {ballots} ciphertexts" in page
    for number in (size, 4 * size, ballots * ballot_bytes, update_bytes):
        assert f"{number:,}" in page


def test_privacy_table_of_selective_shield_is_computed():
    pytest.importorskip("dp_accounting")
    from shieldfl.privacy.accountant import epsilon_of
    from shieldfl.privacy.events import Noise

    for sigma, paper, added in table_rows(doc("docs/reference/methods/selective-shield.md"), "σ"):
        multipliers = float(sigma), float(sigma) * 20**0.5
        spent = [epsilon_of({Noise(multiplier, "client"): 10}, 1e-5) for multiplier in multipliers]
        documented = [float(cell.replace(",", "")) for cell in (paper, added)]
        np.testing.assert_allclose(documented, spent, rtol=5e-3)


WORDS = """two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty"""
NUMBERS = {word: number for number, word in enumerate(WORDS.split(), 2)}
EXAMPLE_PAGES = [*sorted((ROOT / "examples").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.ipynb"))]


def numbers_before(noun, pages):
    """The numbers that stand in words before a noun, at most a bracket between them, by page."""
    words = re.compile(rf"\b({'|'.join(NUMBERS)})\s+\[?(?:{noun})", re.IGNORECASE)
    return {
        (name_of(page), found): NUMBERS[found.lower()]
        for page in pages
        for found in words.findall(text_of(page))
    }


def test_pages_say_how_many_methods_there_are():
    """Of all of them; a page of a method, or of a measurement, speaks of some."""
    pages = [
        ROOT / "README.md",
        *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name not in ("methods", "papers")),
        *EXAMPLE_PAGES,
    ]
    of_some = {"docs/how-to/audit.md", "docs/explanation/audit-papers.md", "docs/explanation/benchmarks.md"}
    numbers = numbers_before("methods|ways of protecting", pages).items()
    said = {key: one for key, one in numbers if key[0] not in of_some and one > len(BUILT_IN) // 2}
    assert len(said) >= 2
    assert set(said.values()) == {len(BUILT_IN)}, said


def test_pages_say_how_many_lines_protect_a_flower_app():
    diffs = sorted((ROOT / "examples/flower").rglob("protected.diff"))
    in_readme = re.search(r"^```diff\n(.*?)^```$", doc("README.md"), re.MULTILINE | re.DOTALL)[1]
    counts = {
        len(re.findall(r"^\+(?!\+\+)", text, re.MULTILINE)) for text in (in_readme, *map(text_of, diffs))
    }
    assert len(diffs) == 3
    assert len(counts) == 1
    pages = (ROOT / "README.md", ROOT / "docs/how-to/flower.md", ROOT / "docs/tutorial.md", *EXAMPLE_PAGES)
    said = numbers_before(r"lines\b", pages)
    assert len(said) >= 4
    assert set(said.values()) == counts, said


def test_examples_tell_an_aggregator_what_was_agreed_on():
    """What it is not told, the first batch decides, which may be an attacker's."""
    pages = (*PAGES, *EXAMPLE_PAGES, *sorted((ROOT / "examples").rglob("*.py")))
    calls = {
        (name_of(page), call)
        for page in pages
        for call in re.findall(r"= sf\.(?:kahe|pads)\.Aggregator\(((?:[^()]|\([^()]*\))*)\)", text_of(page))
    }
    assert len(calls) >= 10
    agreed = ("round=", "positions=", "weighted=")
    assert not [(page, call) for page, call in calls if not all(one in call for one in agreed)]
