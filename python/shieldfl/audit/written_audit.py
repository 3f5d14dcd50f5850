"""The folder of an audit: what it was run by, a line for each thing that has ended, and in the end every figure."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from shieldfl.audit.audit_config import AuditConfig
from shieldfl.audit.result import AuditResult, Cell
from shieldfl.audit.scores.outcome import Example, Outcome
from shieldfl.audit.tries import Found
from shieldfl.build_info import machine_facts
from shieldfl.errors import DataError, PolicyError, WireFormatError
from shieldfl.methods.settings import MethodSettings
from shieldfl.reporting.output_files import LineFile, write_whole
from shieldfl.settings import plain_settings
from shieldfl.simulation.checkpoint import digest_of
from shieldfl.simulation.data import Dataset
from shieldfl.simulation.driver import describe_environment
from shieldfl.simulation.written_run import commit_facts, json_text

__all__ = ["Attacked", "WrittenAudit", "audit_identity"]

_SETTINGS, _LINES, _RESULT = "settings.json", "attacked.jsonl", "result.json"
_FORMAT = "shieldfl audit 1"
# Where and how an audit is run, not what it is: data count by what they are.
_PLACES = ("data_dir", "folder", "resume", "workers")


@dataclass
class Attacked:
    """What has ended: one attack on one trial of a method, or all of an attack that has federations of its own."""

    method: str
    attack: str
    trial: int
    """-1 for an attack that has federations of its own."""
    seconds: float = 0.0
    """Without those that went into the federation, where several attacks share it."""
    shared_seconds: float = 0.0
    left_out: str | None = None
    """Why the method is left out from this trial on; None where it is not."""
    found: dict[str, Found] = field(default_factory=dict)
    """By party, of a trial."""
    cells: list[Cell] = field(default_factory=list)
    """Of an attack that has federations of its own."""


def audit_identity(
    config: AuditConfig,
    methods: Sequence[str],
    attacks: Sequence[str],
    parties: Sequence[str],
    settings: MethodSettings,
    dataset: Dataset,
) -> dict[str, Any]:
    """Return what makes an audit the same audit, as plain data, by what errors call it."""
    own = {name: one for name, one in plain_settings(config).items() if name not in _PLACES}
    data = (dataset.train_features, dataset.test_features, dataset.train_labels, dataset.test_labels)
    found = {
        **own,
        "method": list(methods),
        "attack": list(attacks),
        "party": list(parties),
        **{f"the settings of {name}": plain_settings(settings.of(name)) for name in methods},
        "the data": digest_of(*data),
    }
    read: dict[str, Any] = json.loads(json.dumps(found))  # as it is read again
    return read


class WrittenAudit:
    """``settings.json``, ``attacked.jsonl`` and ``result.json`` of one audit.

    Parameters
    ----------
    folder : made where there is none.
    identity : of :func:`audit_identity`.
    resume : whether to go on with what is there.

    Raises PolicyError for a folder whose audit is not to be gone on with, or is another one; DataError where there is
    none to go on with, or the folder cannot be read or written; WireFormatError, with its name, for a damaged file.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
        self._folder = folder
        self._lines = LineFile(folder / _LINES)
        self._ended: dict[tuple[str, str, int], Attacked] = {}
        settings = folder / _SETTINGS
        if resume and not settings.exists():
            raise DataError(f"there is no audit in {folder}: begin it without --resume (resume = true)")
        if settings.exists() and not resume:
            raise PolicyError(
                f"there is an audit in {folder}, or a run: go on with an audit by --resume (resume = true), or name "
                "another folder"
            )
        try:
            if resume:
                self._check(settings, identity)
                self._read()
                return
            folder.mkdir(parents=True, exist_ok=True)
            facts = {"environment": describe_environment(), "machine": machine_facts(), **commit_facts()}
            write_whole(settings, json_text({"format": _FORMAT, "audit": dict(identity), **facts}))
        except OSError as error:
            raise self._failed() from error

    def _failed(self) -> DataError:
        return DataError(
            f"the audit's folder {self._folder} cannot be read or written: free some space, or name another"
        )

    def _check(self, path: Path, identity: Mapping[str, Any]) -> None:
        try:
            read = json.loads(path.read_bytes())
            if read["format"] != _FORMAT:
                raise ValueError
            began: dict[str, Any] = dict(read["audit"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WireFormatError(
                f"{path} is damaged, or of no audit of this version: begin the audit anew in another folder"
            ) from error
        other = [name for name in dict.fromkeys((*began, *identity)) if began.get(name) != identity.get(name)]
        if other:
            raise PolicyError(
                f"the audit in {self._folder} differs in {', '.join(other)}: an audit goes on with what it began with; "
                "name another folder for another audit"
            )

    def _read(self) -> None:
        for number, line in enumerate(self._lines.whole_lines(), start=1):
            try:
                one = _from_line(line)
            except (msgspec.MsgspecError, ValueError, KeyError) as error:
                raise WireFormatError(
                    f"line {number} of {self._lines.path} is damaged: take it out, and what it tells is attacked again"
                ) from error
            self._ended[one.method, one.attack, one.trial] = one

    def all_ended(self) -> tuple[Attacked, ...]:
        """Return what earlier processes have ended."""
        return tuple(self._ended.values())

    def add(self, one: Attacked) -> None:
        """Write down what has ended. Raises DataError."""
        try:
            self._lines.add(_to_line(one))
        except OSError as error:
            raise self._failed() from error

    def finish(self, result: AuditResult) -> None:
        """Write down every figure, also of an audit that was interrupted. Raises DataError."""
        try:
            write_whole(self._folder / _RESULT, json_text(result.to_json()))
        except OSError as error:
            raise self._failed() from error


class _Image(msgspec.Struct):
    shape: list[int]
    values: str
    """Float32, little-endian, in base 64."""

    @classmethod
    def of(cls, images: torch.Tensor) -> _Image:
        array = np.ascontiguousarray(images.numpy(), dtype="<f4")
        return cls(list(array.shape), base64.b64encode(array.tobytes()).decode())

    def tensor(self) -> torch.Tensor:
        array = np.frombuffer(base64.b64decode(self.values, validate=True), "<f4").reshape(self.shape)
        return torch.from_numpy(array.astype(np.float32))


class _Example(msgspec.Struct):
    recovered: _Image
    true: _Image
    neighbour: _Image
    value_range: tuple[float, float]


class _Outcome(msgspec.Struct):
    form: str
    figure: float | None
    chance: float | None
    others: dict[str, float | None]
    example: _Example | None = None
    remark: str = ""

    @classmethod
    def of(cls, form: str, one: Outcome) -> _Outcome:
        seen = one.example
        images = (
            None
            if seen is None
            else _Example(
                _Image.of(seen.recovered), _Image.of(seen.true), _Image.of(seen.neighbour), seen.value_range
            )
        )
        return cls(form, one.figure, one.chance, dict(one.others), images, one.remark)

    def read(self) -> tuple[str, Outcome]:
        seen = self.example
        images = (
            None
            if seen is None
            else Example(
                seen.recovered.tensor(), seen.true.tensor(), seen.neighbour.tensor(), seen.value_range
            )
        )
        others = {name: _number(one) for name, one in self.others.items()}
        return self.form, Outcome(_number(self.figure), _number(self.chance), others, images, self.remark)


class _Found(msgspec.Struct):
    received: bool
    reason: str
    outcomes: list[_Outcome]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    method: str
    attack: str
    trial: int
    seconds: float
    shared_seconds: float
    left_out: str | None
    found: dict[str, _Found]
    cells: list[dict[str, Any]]


def _number(value: float | None) -> float:
    """Return what was NaN, which JSON has not, as that."""
    return math.nan if value is None else value


def _to_line(one: Attacked) -> str:
    found = {
        party: _Found(own.received, own.reason, [_Outcome.of(*outcome) for outcome in own.outcomes])
        for party, own in one.found.items()
    }
    cells = [cell.to_json() for cell in one.cells]
    line = _Line(
        one.method, one.attack, one.trial, one.seconds, one.shared_seconds, one.left_out, found, cells
    )
    return msgspec.json.encode(line).decode()


def _from_line(line: bytes) -> Attacked:
    read = msgspec.json.decode(line, type=_Line)
    found = {
        party: Found(own.received, own.reason, [outcome.read() for outcome in own.outcomes])
        for party, own in read.found.items()
    }
    cells = [_cell(facts) for facts in read.cells]
    own = read.method, read.attack, read.trial, read.seconds, read.shared_seconds, read.left_out
    return Attacked(*own, found, cells)


def _cell(facts: Mapping[str, Any]) -> Cell:
    # What is no number has that as its default.
    told = {name: one for name, one in facts.items() if one is not None}
    others = {name: _number(one) for name, one in told.pop("others", {}).items()}
    cell: Cell = msgspec.convert({**asdict(Cell("", "", "", "not attacked")), **told, "others": others}, Cell)
    return cell
