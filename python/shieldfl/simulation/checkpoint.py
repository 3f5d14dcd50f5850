"""What a run needs to go on after it was cut off, on a disk after each round.

A round that was cut off is run again from the end of the one before: with the same clients, data and seeds, but noise
and encryption are drawn anew. In a federation of several machines that would be a second answer to one round. Here
nobody has seen the first: it was in the memory of the process that ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from shieldfl.errors import DataError, PolicyError, WireFormatError
from shieldfl.methods.protocol.method import Method
from shieldfl.roles.message import Message, Part
from shieldfl.roles.run_folder import RunFolder
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.data import Dataset
from shieldfl.simulation.results import MethodResult, RoundRecord
from shieldfl.simulation.synthetic_shares import LabelledSamples, shares_from_bytes, shares_to_bytes

__all__ = ["Checkpoint", "KeptMethod", "digest_of", "run_identity"]

_OTHER_VERSION = (
    "the checkpoint is of another version of shieldfl: go on with that one, or begin the run anew"
)
_SYNTHETIC = "synthetic"
# Where a run is, not what it is: data and synthetic samples count by what they are.
_PLACES = ("data_dir", "synthetic_data", "folder", "tensorboard", "checkpoint", "resume")


@dataclass(frozen=True)
class _Progress:
    """How far a run has come, as plain data."""

    identity: dict[str, str]
    """What it began with, see :func:`run_identity`."""
    finished: list[MethodResult]
    """Of methods that have ended."""
    running: list[RoundRecord]
    """Of the method that comes next: none where that has not begun."""
    trained: list[list[str]] = field(default_factory=list)
    """How each of its clients has trained."""
    setup_seconds: float = 0.0
    synthetic: bytes = b""
    """The digest of its synthetic data, which stay as they are."""
    format: Literal["shieldfl run checkpoint 1"] = "shieldfl run checkpoint 1"


@dataclass(frozen=True)
class KeptMethod:
    """What the run of one method goes on from."""

    records: list[RoundRecord]
    """Of its finished rounds, at least one."""
    trained: list[list[str]]
    """By client, how it has trained."""
    setup_seconds: float
    shares: list[LabelledSamples | None]
    """By client, synthetic data: they are never made the same twice."""
    account: bytes
    """An :class:`shieldfl.methods.protocol.account.AccountState`."""
    federation: tuple[Message, bytes]
    """The parts of a federation, and the key that seals them."""


class Checkpoint:
    """The folder of one run.

    Parameters
    ----------
    folder : made where there is none.
    resume : whether to go on from what is there.

    Raises PolicyError for what is there and is not to be gone on from, DataError where there is nothing to go on from.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self._folder = RunFolder(folder)
        self._resume = resume
        self._identity: dict[str, str] = {}
        self._synthetic: dict[str, bytes] = {}
        """By method, the digest of synthetic data that were written down."""
        self.finished: list[MethodResult] = []
        """What had ended where the run goes on."""
        self._running: KeptMethod | None = None
        if self._folder.is_begun and not resume:
            raise PolicyError(
                f"there is a checkpoint in {folder}: go on from it with --resume (resume = true), or name another "
                "folder"
            )
        if resume and not self._folder.is_begun:
            raise DataError(
                f"there is no checkpoint in {folder}: begin the run without --resume (resume = true)"
            )

    @property
    def key(self) -> bytes:
        """What seals states."""
        return self._folder.key()

    def begin(self, identity: Mapping[str, str]) -> None:
        """Begin a run, or read where it goes on.

        Raises PolicyError for another run than the checkpoint's, WireFormatError for one of another version or that was
        altered, DataError for what cannot be read or written.
        """
        self._identity = dict(identity)
        if not self._resume:
            self._folder.key()  # a folder that cannot be written is told of before anything trains
            return
        message = self._folder.read()
        try:
            progress = msgspec.msgpack.decode(message["progress"], type=_Progress)
        except (msgspec.MsgspecError, WireFormatError) as error:
            raise WireFormatError(_OTHER_VERSION) from error
        self._check(progress.identity)
        self.finished = progress.finished
        if progress.running:
            self._running = self._kept(progress, message)

    def _check(self, began: Mapping[str, str]) -> None:
        names = dict.fromkeys((*began, *self._identity))
        other = [name for name in names if began.get(name) != self._identity.get(name)]
        if other:
            raise PolicyError(
                f"the checkpoint in {self._folder.folder} is of a run that differs in {', '.join(other)}: a run goes "
                "on with what it began with; name another folder for another run"
            )

    def _kept(self, progress: _Progress, message: Message) -> KeptMethod:
        written = b""
        if progress.synthetic:
            written = self._folder.read_beside(_SYNTHETIC, progress.synthetic)
        return KeptMethod(
            progress.running,
            progress.trained,
            progress.setup_seconds,
            shares_from_bytes(written, len(progress.trained)),
            bytes(message["account"]),
            (message, self.key),
        )

    def take_running(self) -> KeptMethod | None:
        """Return what the next method goes on from, once; None for one that begins."""
        kept, self._running = self._running, None
        return kept

    def keep_finished(self, finished: Sequence[MethodResult]) -> None:
        """Write down that methods have ended. Raises DataError."""
        self._write(_Progress(self._identity, list(finished), []), {})

    def keep_round(self, finished: Sequence[MethodResult], name: str, kept: KeptMethod) -> None:
        """Write down what a method's run, of which a round has just ended, goes on from. Raises DataError.

        Synthetic data are written with the first round alone.
        """
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
    """Return what makes a run the same run: settings as text, methods and data as digests, by what errors call them."""
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
    """Return the SHA-256 of tensors and a text, in hexadecimal digits."""
    digest = sha256(text.encode())
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.numpy())
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
