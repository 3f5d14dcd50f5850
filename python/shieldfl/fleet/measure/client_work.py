"""The stages of a measured client: what it computes in a round, and what it then sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl import paillier
from shieldfl.fleet.costs.stopwatch import median_seconds
from shieldfl.fleet.measure.client_training import ModelTraining, SpentTraining, Training
from shieldfl.masks import Mask
from shieldfl.schemes import scheme_named
from shieldfl.selection import SelectionLimits, select

__all__ = ["ClientTask", "ClientWork", "RoundTask"]

_WARM_UP_VALUES = 2
# As many as calibration encrypts at a time, so that reading tables weighs as little.
_PROBE_CIPHERTEXTS = 64


@dataclass(frozen=True)
class ClientTask:
    """What a client process does in every round, in plain JSON types."""

    scheme: str
    """One of :func:`shieldfl.schemes.encryptions`."""
    parameters: int
    threads: int
    samples: int
    local_epochs: int
    upload_bytes_per_second: float
    latency_seconds: float
    seed: int
    train_core_seconds: float | None = None
    """Of a round; None where a model is trained."""
    model: str | None = None
    sample_shape: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> ClientTask:
        """Read what :meth:`to_json` returned, also after it went through JSON."""
        return cls(**{**facts, "sample_shape": tuple(facts["sample_shape"])})

    def training(self) -> Training:
        """Make the training that is asked for."""
        if self.train_core_seconds is not None:
            return SpentTraining(self.parameters, self.train_core_seconds, self.threads, self.seed)
        return ModelTraining(
            str(self.model), self.sample_shape, self.samples, self.local_epochs, self.threads, self.seed
        )


@dataclass(frozen=True)
class RoundTask:
    """What a method asks of one client."""

    scores: bool
    selects: bool
    sends_mask: bool
    mask: Mask
    order: paillier.UnionOrder | None

    def facts(self) -> dict[str, bool]:
        """What of it is no frame."""
        return {"scores": self.scores, "selects": self.selects, "sends_mask": self.sends_mask}

    def parts(self) -> dict[str, bytes]:
        """The frames of mask and order."""
        order = {} if self.order is None else {"order": self.order.to_bytes()}
        return {"mask": self.mask.to_bytes(), **order}

    @classmethod
    def from_parts(cls, facts: Mapping[str, bool], parts: Mapping[str, bytes], parameters: int) -> RoundTask:
        """Read what :meth:`facts` and :meth:`parts` returned."""
        order = parts.get("order")
        return cls(
            **facts,
            mask=Mask.from_bytes(parts["mask"], parameters),
            order=None if order is None else paillier.UnionOrder.from_bytes(order, parameters),
        )


class ClientWork:
    """One client's data, model and encryptor, over all rounds."""

    def __init__(self, task: ClientTask, public_key: bytes) -> None:
        scheme = scheme_named(task.scheme)
        self._threads = task.threads
        self._training = task.training()
        self._encryptor = scheme.Encryptor(scheme.PublicKey.from_bytes(public_key), threads=task.threads)
        self.update: NDArray[np.float32] = np.zeros(task.parameters, dtype=np.float32)
        """Of the round, after its training."""

    def warm_up(self) -> None:
        """Do once what only the first time takes: libraries' set-up, and Paillier's table of powers."""
        self._training.warm_up()
        self._encryptor.encrypt(np.zeros(_WARM_UP_VALUES, dtype=np.float32)).to_bytes()

    def probe(self, seconds: float) -> dict[str, float]:
        """Return the processor seconds of a training sample and of a ciphertext as they are now, medians.

        Each is repeated for so many ``seconds``; a stage that has nothing to find out is left out.
        """
        found = {}
        samples = self._training.train_few()
        if samples:
            found["train"] = median_seconds(self._training.train_few, seconds) / samples
        count = _PROBE_CIPHERTEXTS * self._threads
        values = np.zeros(count * self._encryptor.public_key.parameters.values_per_ciphertext, np.float32)
        found["encrypt"] = median_seconds(lambda: self._encryptor.encrypt(values).to_bytes(), seconds) / count
        return found

    def stages(self, task: RoundTask, number: int) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield the name of each stage before the upload and what it does, in order.

        The last one, ``encrypt``, returns the parts of the upload. What the selection chooses is not what is
        encrypted: masks are the plan's, so that measured and simulated clients do the same.
        """
        weights = self._training.weights
        yield "train", self._train
        scores: list[NDArray[np.float32]] = []
        if task.scores:
            # The update stands in for the gradients that calibration scores by: as many values, and as much work.
            yield "score", lambda: scores.append(np.abs(weights * self.update))
        if task.selects:
            limits = SelectionLimits(budget=1.0)
            # Selection uses one thread, as in calibration.
            yield "select", lambda: select(scores[0], self.update, limits, threads=1)
        yield "encrypt", lambda: self._encrypt(task, number)

    def _train(self) -> None:
        self.update = self._training.train()

    def _encrypt(self, task: RoundTask, number: int) -> dict[str, bytes]:
        parts = {}
        if task.order is not None:
            batch = self._encryptor.encrypt_in_union(self.update, task.order, task.mask, number)
            parts["frame"] = batch.to_bytes()
        elif task.mask.count:
            parts["frame"] = self._encryptor.encrypt(self.update, task.mask, round=number).to_bytes()
        if task.mask.count < task.mask.size:
            parts["clear"] = (~task.mask).gather(self.update, threads=self._threads).tobytes()
        if task.sends_mask:
            parts["mask"] = task.mask.to_bytes()
        return parts
