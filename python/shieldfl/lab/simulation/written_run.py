"""What a run leaves on a disk: its folder, for people and machines, and its checkpoint, to resume from."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from shieldfl.authority.message import Message, Part
from shieldfl.authority.role_state import RunFolder
from shieldfl.build_info import machine_facts
from shieldfl.errors import DataError, PolicyError, WireFormatError
from shieldfl.lab.report.output_files import LineFile, write_whole
from shieldfl.lab.report.run_summary import flat_record, rounds_csv
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset, LabelledSamples, shares_from_bytes, shares_to_bytes
from shieldfl.lab.simulation.results import MethodResult, RoundRecord, RunResult, plain_json
from shieldfl.rounds.method import Method
from shieldfl.settings import plain_settings

_SETTINGS, _ROUNDS, _RESULT, _TABLE = "settings.json", "rounds.jsonl", "result.json", "rounds.csv"
_EVENTS = "tensorboard"
_MOST_READ = 2**24
"""Most characters that are read of a file that others may have written."""
_REFERENCE, _COMMIT = "ref: ", re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
"""Prefix of a reference to a branch, and pattern of a commit, in a repository's files."""


class WrittenRun:
    """A run's folder.

    Raises PolicyError for another run's folder, DataError for no access, WireFormatError for damage.
    """

    def __init__(self, config: RunConfig, methods: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        assert config.folder is not None
        self._folder = Path(config.folder)
        self._lines = LineFile(self._folder / _ROUNDS)
        self._known: set[tuple[str, int]] = set()
        """Method and round of each line in the file; a resumed run tells of these rounds again."""
        self._for_tensorboard = config.tensorboard
        self._writers: dict[str, Any] = {}
        """TensorBoard writer of each method's event files, by method."""
        stated = {"run": plain_settings(config), "methods": dict(methods)}
        with self._disk():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._cut_short()
            if self._known and not config.resume:
                raise PolicyError(
                    f"there is a run in {self._folder}: resume it by --resume (resume = true), or name "
                    "another folder"
                )
            if not self._known:
                facts = {"environment": dict(environment), "machine": machine_facts(), **commit_facts()}
                write_whole(self._folder / _SETTINGS, json_text(stated | facts))

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"the run's folder {self._folder} cannot be written: free some space, or name another"
            ) from error

    def _cut_short(self) -> None:
        for number, line in enumerate(self._lines.whole_lines(), start=1):
            try:
                read = json.loads(line)
                self._known.add((read["method"], read["round"]))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise WireFormatError(
                    f"line {number} of {self._lines.path} is damaged: take it out, and its round is told of "
                    "again"
                ) from error

    def tell(self, method: str, record: RoundRecord) -> None:
        if (method, record.round) in self._known:
            return
        if self._for_tensorboard:  # before the line, which says that the round need not be told again
            self._add_scalars(method, record)
        line = json.dumps(plain_json({"method": method, **flat_record(record)}), allow_nan=False)
        with self._disk():
            self._lines.add(line)
        self._known.add((method, record.round))

    def _add_scalars(self, method: str, record: RoundRecord) -> None:
        """Add a round's figures to the method's event files, by the names of the lines.

        Undefined ones are left out.
        """
        from torch.utils.tensorboard import SummaryWriter

        with self._disk():
            if method not in self._writers:
                self._writers[method] = SummaryWriter(str(self._folder / _EVENTS / method))
            writer = self._writers[method]
            for name, value in flat_record(record).items():
                if name != "round" and not math.isnan(value):
                    writer.add_scalar(name, value, record.round)
            writer.flush()

    def finish(self, result: RunResult) -> None:
        with self._disk(), ExitStack() as closing:
            for writer in self._writers.values():
                closing.callback(writer.close)
            if result.methods:
                write_whole(self._folder / _RESULT, json_text(result.to_json()))
                write_whole(self._folder / _TABLE, rounds_csv(result))


def json_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def commit_facts() -> dict[str, str]:
    """Return the commit of the current folder's repository, as its files say; empty outside of one.

    No program is called: git executes what a repository's configuration says, and others may have written
    that.
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
    """Return the lines at the beginning of a regular file.

    The list is empty if there is no such file that can be read.
    """
    try:
        if not os.path.isfile(path):
            return []
        with path.open(errors="replace") as file:
            return file.read(_MOST_READ).splitlines()
    except OSError:
        return []


_SYNTHETIC = "synthetic"
# Settings that say where a run is; data and synthetic samples count by their digests instead.
_PLACES = ("data_dir", "synthetic_data", "folder", "tensorboard", "checkpoint", "resume")


@dataclass(frozen=True)
class _Progress:
    identity: dict[str, str]
    finished: list[MethodResult]
    running: list[RoundRecord]
    """Finished rounds of the method that runs next; empty if it has not begun."""
    trained: list[list[str]] = field(default_factory=list)
    """Kinds of training that each of that method's clients has done."""
    setup_seconds: float = 0.0
    synthetic: bytes = b""
    """Digest of that method's synthetic data, which never change; empty without such data."""
    format: Literal["shieldfl run checkpoint 2"] = "shieldfl run checkpoint 2"


@dataclass(frozen=True)
class KeptMethod:
    records: list[RoundRecord]
    trained: list[list[str]]
    setup_seconds: float
    shares: list[LabelledSamples | None]
    """Synthetic data of each client, which cannot be made again the same; None without such data."""
    account: bytes
    federation: tuple[Message, bytes]


class Checkpoint:
    """A run's checkpoint.

    Raises PolicyError for a folder with one that is not resumed, DataError if there is none to resume.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self._folder = RunFolder(folder)
        self._resume = resume
        self._identity: dict[str, str] = {}
        self._synthetic: dict[str, bytes] = {}
        """Digest of the synthetic data that were written down, by method."""
        self.finished: list[MethodResult] = []
        """Results of the methods that had ended at the checkpoint."""
        self.running: KeptMethod | None = None
        """State that the next method resumes from; None if it begins anew."""
        if self._folder.is_begun and not resume:
            raise PolicyError(
                f"there is a checkpoint in {folder}: resume it with --resume (resume = true), or name "
                "another folder"
            )
        if resume and not self._folder.is_begun:
            raise DataError(
                f"there is no checkpoint in {folder}: begin the run without --resume (resume = true)"
            )

    @property
    def key(self) -> bytes:
        return self._folder.key()

    def begin(self, identity: Mapping[str, str]) -> None:
        """Begin, or read what to resume. Raises PolicyError for another run, WireFormatError, DataError."""
        self._identity = dict(identity)
        if not self._resume:
            self._folder.key()  # a folder that cannot be written is told of before anything trains
            return
        message = self._folder.read()
        try:
            progress = msgspec.msgpack.decode(message["progress"], type=_Progress)
        except (msgspec.MsgspecError, WireFormatError) as error:
            raise WireFormatError(
                "the checkpoint comes from another version of shieldfl: resume with that version, or begin "
                "the run anew"
            ) from error
        began = progress.identity
        names = dict.fromkeys((*began, *self._identity))
        other = [name for name in names if began.get(name) != self._identity.get(name)]
        if other:
            raise PolicyError(
                f"the checkpoint in {self._folder.folder} is of a run that differs in {', '.join(other)}: "
                "a resumed run keeps its settings; name another folder for another run"
            )
        self.finished = progress.finished
        if progress.running:
            digest = progress.synthetic
            written = self._folder.read_beside(_SYNTHETIC, digest) if digest else b""
            self.running = KeptMethod(
                progress.running,
                progress.trained,
                progress.setup_seconds,
                shares_from_bytes(written, len(progress.trained)),
                bytes(message["account"]),
                (message, self.key),
            )

    def keep_finished(self, finished: Sequence[MethodResult]) -> None:
        self._write(_Progress(self._identity, list(finished), []), {})

    def keep_round(self, finished: Sequence[MethodResult], name: str, kept: KeptMethod) -> None:
        """Write down a state after a round, with synthetic data after the first alone. Raises DataError."""
        if name not in self._synthetic:
            shares = shares_to_bytes(kept.shares)
            self._synthetic = {name: self._folder.write_beside(_SYNTHETIC, shares) if shares else b""}
        progress = _Progress(
            self._identity,
            list(finished),
            kept.records,
            kept.trained,
            kept.setup_seconds,
            self._synthetic[name],
        )
        parts, _ = kept.federation
        self._write(progress, {"account": kept.account, **parts})

    def _write(self, progress: _Progress, parts: Mapping[str, Part]) -> None:
        encoded = msgspec.msgpack.encode(progress, enc_hook=_plain)
        self._folder.write(Message({"progress": encoded, **parts}))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that a result holds")


def run_identity(
    config: RunConfig,
    dataset: Dataset,
    methods: Mapping[str, Method],
    synthetic: LabelledSamples | None,
    own_task: Mapping[str, str],
) -> dict[str, str]:
    found = {name: repr(value) for name, value in asdict(config).items() if name not in _PLACES}
    found["method"] = ", ".join(methods)
    for name, method in methods.items():
        settings = msgspec.json.encode((method.own_settings, method.plan), order="sorted")
        found[f"the settings of {name}"] = sha256(settings).hexdigest()
    features = (dataset.train_features, dataset.test_features)
    labels = (dataset.train_labels, dataset.test_labels)
    found["the data"] = digest_of(*features, *labels)
    found |= own_task  # what is named follows from the settings
    found["the synthetic data"] = "" if synthetic is None else digest_of(*synthetic)
    return found


def digest_of(*tensors: Any, text: str = "") -> str:
    digest = sha256(text.encode())
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.numpy())
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
