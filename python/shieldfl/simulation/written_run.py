"""The folder of a run: what it was run by, a line for each round as it comes, and in the end all that was measured."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shieldfl.build_info import machine_facts
from shieldfl.errors import DataError, PolicyError, WireFormatError
from shieldfl.reporting.output_files import LineFile, write_whole
from shieldfl.settings import plain_settings
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.report.summary import flat_record, rounds_csv
from shieldfl.simulation.results import RoundRecord
from shieldfl.simulation.run_result import RunResult, plain_json

__all__ = ["WrittenRun", "commit_facts", "json_text"]

_SETTINGS, _ROUNDS, _RESULT, _TABLE = "settings.json", "rounds.jsonl", "result.json", "rounds.csv"
_EVENTS = "tensorboard"
_MOST_READ = 2**24
"""Characters of a file that others may have written."""
_REFERENCE, _COMMIT = "ref: ", re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
"""What a repository's files have: a branch, a commit."""


class WrittenRun:
    """``settings.json``, ``rounds.jsonl``, ``result.json`` and ``rounds.csv`` of one run, beside its checkpoint.

    Where the config says so, there are event files for TensorBoard, too, a folder of them for each method.

    Parameters
    ----------
    config : whose ``folder`` it is.
    methods : settings of each method that runs, by name, as plain data.
    environment : versions, processor and threads.

    Raises PolicyError for a folder with a run that is not to be gone on with, DataError for one that cannot be written,
    WireFormatError for one with a damaged line.
    """

    def __init__(self, config: RunConfig, methods: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        assert config.folder is not None
        self._folder = Path(config.folder)
        self._lines = LineFile(self._folder / _ROUNDS)
        self._known: set[tuple[str, int]] = set()
        """Rounds that have a line: a run that is gone on with tells of them again."""
        self._for_tensorboard = config.tensorboard
        self._writers: dict[str, Any] = {}
        """By method: what its event files are written by."""
        stated = {"run": plain_settings(config), "methods": dict(methods)}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._cut_short()
            if self._known and not config.resume:
                raise PolicyError(
                    f"there is a run in {self._folder}: go on with it by --resume (resume = true), or name another "
                    "folder"
                )
            if not self._known:
                facts = {"environment": dict(environment), "machine": machine_facts(), **commit_facts()}
                write_whole(self._folder / _SETTINGS, json_text(stated | facts))
        except OSError as error:
            raise self._failed() from error

    def _failed(self) -> DataError:
        return DataError(
            f"the run's folder {self._folder} cannot be written: free some space, or name another"
        )

    def _cut_short(self) -> None:
        """Read which rounds have a line, and drop one that was cut off as it was written."""
        for number, line in enumerate(self._lines.whole_lines(), start=1):
            try:
                read = json.loads(line)
                self._known.add((read["method"], read["round"]))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise WireFormatError(
                    f"line {number} of {self._lines.path} is damaged: take it out, and its round is told of again"
                ) from error

    def tell(self, method: str, record: RoundRecord) -> None:
        """Add a round's line, unless it has one. Raises DataError."""
        if (method, record.round) in self._known:
            return
        if self._for_tensorboard:  # before the line, which says that the round need not be told again
            self._add_scalars(method, record)
        line = json.dumps(plain_json({"method": method, **flat_record(record)}), allow_nan=False)
        try:
            self._lines.add(line)
        except OSError as error:
            raise self._failed() from error
        self._known.add((method, record.round))

    def _add_scalars(self, method: str, record: RoundRecord) -> None:
        """Add a round's figures to the method's event files, by the names of the lines; undefined ones are left out."""
        from torch.utils.tensorboard import SummaryWriter

        try:
            if method not in self._writers:
                self._writers[method] = SummaryWriter(str(self._folder / _EVENTS / method))
            writer = self._writers[method]
            for name, value in flat_record(record).items():
                if name != "round" and not math.isnan(value):
                    writer.add_scalar(name, value, record.round)
            writer.flush()
        except OSError as error:
            raise self._failed() from error

    def finish(self, result: RunResult) -> None:
        """Write down what the run measured, if anything, also one that was interrupted. Raises DataError."""
        try:
            if result.methods:
                write_whole(self._folder / _RESULT, json_text(result.to_json()))
                write_whole(self._folder / _TABLE, rounds_csv(result))
        except OSError as error:
            raise self._failed() from error
        finally:
            self._close_writers()

    def _close_writers(self) -> None:
        try:
            for writer in self._writers.values():
                writer.close()
        except OSError as error:
            raise self._failed() from error


def json_text(content: Mapping[str, Any]) -> str:
    """Return plain JSON types as a file of a run's folder has them."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def commit_facts() -> dict[str, str]:
    """Return the commit that the folder of the call is at, as the files of its repository say; nothing elsewhere.

    No program is asked: git executes what a repository's configuration says, and others may have written that.
    """
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return {}
    marks = (folder / ".git" for folder in (here, *here.parents))
    repository = next(filter(os.path.exists, marks), None)
    if repository is None:
        return {}
    if repository.is_file():  # of a worktree or a submodule
        repository = repository.parent / _first_line(repository).removeprefix("gitdir: ")
    found = _first_line(repository / "HEAD")
    if found.startswith(_REFERENCE):
        name = found.removeprefix(_REFERENCE)
        shared = repository / _first_line(repository / "commondir")
        packed = (line.split() for line in _lines(shared / "packed-refs"))
        found = _first_line(shared / name) or next((line[0] for line in packed if line[1:] == [name]), "")
    return {"commit": found} if _COMMIT.fullmatch(found) else {}


def _first_line(path: Path) -> str:
    return next(iter(_lines(path)), "")


def _lines(path: Path) -> list[str]:
    """Return the lines at the beginning of a regular file; none where there is no such file that can be read."""
    try:
        if not os.path.isfile(path):
            return []
        with path.open(errors="replace") as file:
            return file.read(_MOST_READ).splitlines()
    except OSError:
        return []
