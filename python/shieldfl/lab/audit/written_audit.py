"""The folder of an audit: what it was run by, a line for each thing that has ended, and in the end every figure."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from shieldfl.build_info import machine_facts
from shieldfl.errors import DataError, PolicyError, WireFormatError
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.piece import Attacked
from shieldfl.lab.audit.result import AuditResult
from shieldfl.lab.report.output_files import LineFile, write_whole
from shieldfl.lab.simulation.data import Dataset
from shieldfl.lab.simulation.runner import describe_environment
from shieldfl.lab.simulation.written_run import commit_facts, digest_of, json_text
from shieldfl.methods.settings import MethodSettings
from shieldfl.settings import plain_settings

_SETTINGS, _LINES, _RESULT = "settings.json", "attacked.jsonl", "result.json"
_FORMAT = "shieldfl audit 2"
# Where and how an audit is run, not what it is: data count by what they are.
_PLACES = ("data_dir", "folder", "resume", "workers")


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
        self.ended: list[Attacked] = []
        """What earlier processes have ended."""
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
                self.ended = [self._read(*line) for line in enumerate(self._lines.whole_lines(), start=1)]
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

    def _read(self, number: int, line: bytes) -> Attacked:
        try:
            # Not strict: numbers that JSON has not are strings.
            return msgspec.convert(json.loads(line), Attacked, strict=False, dec_hook=_tensor)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise WireFormatError(
                f"line {number} of {self._lines.path} is damaged: take it out, and what it tells is attacked again"
            ) from error

    def add(self, ended: Sequence[Attacked]) -> None:
        """Write down what has ended. Raises DataError."""
        try:
            for one in ended:
                self._lines.add(json.dumps(_plain(msgspec.to_builtins(one, enc_hook=_text)), allow_nan=False))
        except OSError as error:
            raise self._failed() from error

    def finish(self, result: AuditResult) -> None:
        """Write down every figure, also of an audit that was interrupted. Raises DataError."""
        try:
            write_whole(self._folder / _RESULT, json_text(result.to_json()))
        except OSError as error:
            raise self._failed() from error


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _text(images: torch.Tensor) -> tuple[list[int], str]:
    """Return a shape, and float32 values, little-endian, in base 64."""
    array = np.ascontiguousarray(images.numpy(), dtype="<f4")
    return list(array.shape), base64.b64encode(array.tobytes()).decode()


def _tensor(kind: type, text: Any) -> torch.Tensor:
    shape, values = msgspec.convert(text, tuple[list[int], str])
    array = np.frombuffer(base64.b64decode(values, validate=True), "<f4").reshape(shape)
    return torch.from_numpy(array.astype(np.float32))
