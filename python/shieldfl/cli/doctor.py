"""``shieldfl doctor``: whether this installation works on this machine."""

from __future__ import annotations

import logging
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import typer
from rich.text import Text

from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.build_info import (
    EXTRAS,
    build_info,
    cryptographic,
    how_to_install,
    instruction_sets_of,
    machine_facts,
)
from shieldfl.cli.console import JsonFile, ResultConsole, write_json
from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.encryption.enrolment import open_answered
from shieldfl.encryption.parameters import SumNeeds
from shieldfl.encryption.registry import REGISTRY, Scheme
from shieldfl.errors import ShieldError
from shieldfl.masks import Mask

_VARIABLE = "SHIELDFL_SIMD"
_CLIENTS = 3
_VALUES, _VALUES_OF_SLOW = 5000, 200  # several ciphertexts each
_FINE, _BAD, _DOUBTFUL = "green", "bold red", "yellow"


@interruptible()
def doctor(json_file: JsonFile = None) -> None:
    """Test the installation: print versions, instruction sets and packages, and run a short self-test.

    Missing packages are no failure; the command prints how to install them. The exit code is 1 if the
    self-test fails.
    """
    found = diagnosis()
    if write_json(found, json_file):
        _print(found)
    if found["problems"]:
        raise ShieldError("; ".join(found["problems"]))


def doctor_alone() -> None:
    """Run the command if packages are missing that the other commands need."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(failures_on_stderr()(doctor))
    app(sys.argv[2:], prog_name="shieldfl doctor")


def diagnosis() -> dict[str, Any]:
    """Gather facts and run the self-test, as plain JSON types: nothing that names the machine or its user."""
    facts = build_info()
    in_use, sets = facts["instruction_set"], instruction_sets_of(platform.machine())
    forced = os.environ.get(_VARIABLE) or None
    logger = logging.getLogger("shieldfl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it tells of keys that are shorter than those of real work
    checks = [_checked(scheme) for scheme in REGISTRY.values()]
    logger.setLevel(level)
    warnings = []
    if forced is not None:
        warnings.append(f"{_VARIABLE} keeps the core to {in_use}: another set may be faster.")
    elif in_use == sets[0] and len(sets) > 1:
        warnings.append(
            f"This processor has no {sets[1].upper()}: encryption works, and takes several times as long."
        )
    problems = [f"{check['name']}: {check['problem']}" for check in checks if check["problem"]]
    return {
        "works": not problems,
        "problems": problems,
        "warnings": warnings,
        "installation": machine_facts()
        | {
            "seal": facts["seal_version"],
            "gmp": facts["gmp_version"],
            "paillier_engine": facts["paillier_engine"],
            "platform": platform.platform(),
        },
        "instruction_sets": {"core": list(sets), "in_use": in_use, "forced": forced},
        "packages": [_part(name) for name in EXTRAS],
        "self_test": checks,
    }


def _part(name: str) -> dict[str, Any]:
    """Return which packages of a part are installed, without importing them, and how to install the rest."""
    pip, command, *requirements = shlex.split(how_to_install(name))
    installed: dict[str, str] = {}
    wanted: dict[str, str] = {}
    for requirement in requirements:
        package, _, least = requirement.partition(">=")
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
        if package not in installed or _numbers(installed[package]) < _numbers(least):
            wanted[package] = requirement
    install = shlex.join([pip, command, *wanted.values()]) if wanted else None
    return {"part": name, "installed": installed, "missing": list(wanted), "install": install}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0]))


def _checked(scheme: Scheme) -> dict[str, Any]:
    """Return the result of a small sum, or why it was not tried, which is no failure."""
    milliseconds, problem, skipped = None, "", ""
    try:
        if scheme.enrols:
            cryptographic("hpke", "keys that clients share with an authority")
    except ShieldError as error:
        skipped = str(error)
    else:
        try:
            milliseconds = round(1e3 * _seconds_of_sum(scheme), 3)
        except Exception as error:  # whatever it is, the user is to read it beside what works
            kind = "" if isinstance(error, ShieldError) else f"{type(error).__name__}: "
            problem = f"{kind}{' '.join(str(error).split())}"
    return {"name": scheme.name, "milliseconds": milliseconds, "problem": problem, "skipped": skipped}


def _seconds_of_sum(scheme: Scheme) -> float:
    """Encrypt three clients' values, add and open them, under the smallest parameters; return what that took.

    Raises ShieldError unless it opens to the sums, to the last bit once clients have rounded their values.
    """
    count, threads = (_VALUES_OF_SLOW if scheme.is_slow else _VALUES), build_info()["threads"]
    key_bits = min(scheme.key_sizes, default=SumNeeds.key_bits)
    needs = SumNeeds(clients=_CLIENTS, value_bits=24, fraction_bits=20, count=count, key_bits=key_bits)
    authority: Any = KeyAuthority(scheme.update_parameters(scheme.encryptions[0], needs), threads=threads)
    public_key, mask, rng = authority.public_key, Mask.full(count), np.random.default_rng(1)
    updates = rng.normal(0.0, 0.05, (_CLIENTS, count)).astype(np.float32)
    keys = [
        authority.enrol(f"client-{number}") if scheme.enrols else public_key for number in range(_CLIENTS)
    ]
    positions = scheme.positions_of([mask] * _CLIENTS, threads)
    start = time.perf_counter()
    aggregator = scheme.aggregator(public_key, threads, 1, positions, weighted=False, purpose="update")
    for number, (key, update) in enumerate(zip(keys, updates, strict=True)):
        encryptor = scheme.encryptor(key, threads, "update")
        frame = scheme.encrypt(encryptor, update, mask, positions, None, 1)[0]
        scheme.add(aggregator, key.client if scheme.enrols else number, frame, 1, None)
    total = aggregator.total()
    if scheme.enrols:
        opened = open_answered(total, authority.sum_key(total.request()), keys[0], threads=threads)
    else:
        opened = authority.open(total)
    seconds = time.perf_counter() - start
    scale = 2.0**public_key.parameters.fraction_bits
    integers = np.rint(updates.astype(np.float64) * scale).sum(axis=0)
    wrong = int(np.count_nonzero(positions.scatter(opened) * scale != integers))
    if wrong:
        raise ShieldError(f"{wrong:,} of {count:,} values of the sum are wrong")
    return seconds


def _print(found: dict[str, Any]) -> None:
    console, facts, sets = ResultConsole(), found["installation"], found["instruction_sets"]

    def section(title: str, lines: Mapping[str, str | int | Text]) -> None:
        console.print(Text(title, style="bold cyan"))
        for label, said in lines.items():
            text = said if isinstance(said, Text) else str(said)
            console.print(Text(f"  {label.replace('_', ' '):<20}").append(text), soft_wrap=True)
        console.print()

    chosen = f"which {_VARIABLE} forces" if sets["forced"] else "the best of them that this machine has"
    which = f"{sets['in_use']} of the core's {', '.join(sets['core'])}: {chosen}"
    section("installation", {**facts, "instruction sets": which})
    section(
        "packages",
        {
            part["part"]: Text(f"missing, if you need it: {part['install']}", style=_DOUBTFUL)
            if part["missing"]
            else ", ".join(f"{name} {number}" for name, number in part["installed"].items())
            for part in found["packages"]
        },
    )
    tried: dict[str, str | Text] = {}
    for check in found["self_test"]:
        if check["problem"]:
            said, style = f"WRONG: {check['problem']}", _BAD
        elif check["skipped"]:
            said, style = f"not tried: {check['skipped']}", _DOUBTFUL
        else:
            said, style = f"{check['milliseconds']:,.1f} ms", _FINE
        tried[check["name"]] = Text(said, style=style)
    section("self-test: three clients' values encrypted, added and opened", tried)
    for warning in found["warnings"]:
        console.print(Text(warning, style=_DOUBTFUL), soft_wrap=True)
    if found["works"]:
        console.print(Text("What was tried works.", style=_FINE))
