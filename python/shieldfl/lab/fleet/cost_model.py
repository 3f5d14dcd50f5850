"""What the steps of a round take: seconds and bytes, for any number of values and cores."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from shieldfl.encryption.registry import POOLED
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.fleet.fleet import Fleet, FloatVector
from shieldfl.settings import read_text

BYTES_PER_CLEAR_VALUE = 4  # float32
FORMAT = "shieldfl-device-profile"
VERSION = 4
_SLOWER = 1.05  # more than what measured times differ by

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0.0, le=sys.float_info.max)]
MaybeSeconds = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]
SecondsByThreads = dict[Count, Seconds]


@dataclass(frozen=True)
class SchemeProfile:
    """One scheme at one setting: seconds of a ciphertext, of encryption by number of threads, else with one."""

    name: str
    setting: str
    values_per_ciphertext: Count
    ciphertext_bytes: Seconds
    encrypt_seconds: SecondsByThreads
    add_seconds: Seconds
    open_seconds: Seconds
    adds_clear_values: bool
    """Whether plain numbers can be added to ciphertexts. Else clients with different masks all encrypt their union."""
    answer_seconds: MaybeSeconds = 0.0  # of asking the key authority, and its answer
    answer_seconds_per_client: MaybeSeconds = 0.0  # of the total, beside these
    clients_open: bool = False  # with that answer
    pool_seconds: SecondsByThreads = field(default_factory=dict)
    """Of making a randomiser ahead, by number of threads; a round pays for it as far as the client was not idle."""

    @property
    def serial_share(self) -> float:
        """Of encryption, and of opening at clients: what more threads do not shorten (Amdahl)."""
        return serial_share(self.encrypt_seconds)

    def ciphertexts(self, values: Any) -> FloatVector:
        count: FloatVector = np.ceil(np.asarray(values, dtype=np.float64) / self.values_per_ciphertext)
        return count


def _by_profile(seconds: Callable[..., FloatVector]) -> Callable[..., FloatVector]:
    """Take each client's seconds from the costs of its own profile, or else from the model's."""

    @wraps(seconds)
    def chosen(costs: CostModel, fleet: Fleet, *arguments: Any) -> FloatVector:
        found = seconds(costs, fleet, *arguments)
        for path in dict.fromkeys(kind.profile for kind in fleet.kinds if kind.profile):
            if path not in costs.clients:
                raise ParameterError(
                    f"the costs of the device profile {path}, which a client names, were not given"
                )
            own = np.repeat([kind.profile == path for kind in fleet.kinds], fleet.counts)
            found = np.where(own, seconds(costs.clients[path], fleet, *arguments), found)
        return found

    return chosen


@dataclass(frozen=True)
class CostModel:
    """A scheme, and all around it that takes time: vectors over clients, in seconds of a client's own cores."""

    scheme: SchemeProfile
    train_seconds_per_sample: float
    score_seconds_per_value: float = 0.0
    select_seconds_per_value: float = 0.0
    add_clear_seconds_per_value: float = 0.0
    train_serial_share: float = 0.0
    trains_on_accelerator: bool = False  # which scores and selects, too, whatever processor a client has
    clients: Mapping[str, CostModel] = field(default_factory=dict, hash=False)
    """The costs of clients that have a device profile of their own, by ``ClientKind.profile``."""
    adds_on_arrival: bool = True  # and not only when the last update is there

    @_by_profile
    def train_seconds(self, fleet: Fleet) -> FloatVector:
        stated = fleet.model.train_core_seconds_per_sample
        per_sample = self.train_seconds_per_sample if stated is None else stated
        work = fleet.samples * (per_sample * fleet.training.local_epochs)
        return self._on_device(work, fleet, self.train_serial_share)

    @_by_profile
    def score_seconds(self, fleet: Fleet) -> FloatVector:
        seconds = self.score_seconds_per_value * fleet.model.parameters
        return self._on_device(np.full(fleet.size, seconds), fleet)

    @_by_profile
    def select_seconds(self, fleet: Fleet) -> FloatVector:
        seconds = self.select_seconds_per_value * fleet.model.parameters
        return self._on_device(np.full(fleet.size, seconds), fleet)

    def encrypt_seconds(self, fleet: Fleet, fields: Any) -> FloatVector:
        """Return each client's seconds on all of its cores: of making randomisers, what it is not idle for."""
        left: FloatVector = np.maximum(self.pool_seconds(fleet, fields) - fleet.idle_seconds, 0.0)
        return self._encrypt_alone(fleet, fields) + left

    @_by_profile
    def _encrypt_alone(self, fleet: Fleet, fields: Any) -> FloatVector:
        work = self.scheme.ciphertexts(fields) * self.scheme.encrypt_seconds[1]
        return work / (fleet.core_rate * speedup(fleet.cores, self.scheme.serial_share))

    @_by_profile
    def pool_seconds(self, fleet: Fleet, fields: Any) -> FloatVector:
        """Return the seconds of making randomisers, whether idle or not; 0 for schemes without a pool."""
        pool = self.scheme.pool_seconds or {1: 0.0}
        work = self.scheme.ciphertexts(fields) * pool[1]
        return work / (fleet.core_rate * speedup(fleet.cores, serial_share(pool)))

    @_by_profile
    def client_open_seconds(self, fleet: Fleet, union_values: Any) -> FloatVector:
        work = self.scheme.ciphertexts(union_values) * self.scheme.open_seconds * self.scheme.clients_open
        return work / (fleet.core_rate * speedup(fleet.cores, self.scheme.serial_share))

    def upload_bytes(self, fleet: Fleet, values: Any, fields: Any, sends_mask: bool) -> FloatVector:
        """Return the bytes up: ciphertexts, whose ``fields`` hold ``values``, clear parameters, and the mask."""
        sent = self.scheme.ciphertexts(fields) * self.scheme.ciphertext_bytes
        sent += BYTES_PER_CLEAR_VALUE * (fleet.model.parameters - np.asarray(values, dtype=np.float64))
        return sent + (math.ceil(fleet.model.parameters / 8) if sends_mask else 0)

    def download_bytes(self, fleet: Fleet, union_values: Any) -> FloatVector:
        """Return the bytes down: the model in the clear or, where clients open, the total with so many values."""
        clear = fleet.model.parameters - (np.asarray(union_values) if self.scheme.clients_open else 0)
        opened = self.scheme.ciphertext_bytes * self.scheme.clients_open
        total = self.scheme.ciphertexts(union_values) * opened
        return np.broadcast_to(total + float(BYTES_PER_CLEAR_VALUE) * clear, (fleet.size,))

    def add_seconds(self, fleet: Fleet, values: Any) -> FloatVector:
        """Return the aggregator's seconds, on all of its cores, for an update encrypted in ``values``."""
        encrypted = np.asarray(values, dtype=np.float64)
        work = self.scheme.ciphertexts(encrypted) * self.scheme.add_seconds
        work += (fleet.model.parameters - encrypted) * self.add_clear_seconds_per_value
        seconds: FloatVector = work / fleet.aggregator.cores
        return seconds

    def open_seconds(self, fleet: Fleet, values: Any, clients: Any) -> FloatVector:
        """Return the key authority's seconds for a total, on as many cores as the aggregator's.

        It opens it or, where clients do, answers for those who are in it, ``clients``.
        """
        one = self.scheme.answer_seconds + np.asarray(clients) * self.scheme.answer_seconds_per_client
        one = one + (0.0 if self.scheme.clients_open else self.scheme.open_seconds)
        work: FloatVector = self.scheme.ciphertexts(values) * one / fleet.aggregator.cores
        return work

    def _on_device(self, work: FloatVector, fleet: Fleet, serial: float = 1.0) -> FloatVector:
        if self.trains_on_accelerator:
            return work
        return work / (fleet.core_rate * speedup(fleet.cores, serial))


def speedup(cores: Any, serial: float) -> FloatVector:
    """Return how many times faster ``cores`` cores are than one, by Amdahl's law; below one core, the part of it."""
    count = np.asarray(cores, dtype=np.float64)
    more: FloatVector = 1.0 / (serial + (1.0 - serial) / np.maximum(count, 1.0))
    return np.minimum(count, more)


def serial_share(seconds_by_threads: dict[int, float]) -> float:
    """Fit the share of work that more threads do not shorten, in [0, 1], by least squares over measured times."""
    alone = seconds_by_threads[1]
    threads = np.array([count for count in seconds_by_threads if count > 1], dtype=np.float64)
    if not threads.size:
        return 0.0
    # seconds / alone = 1/n + serial * (1 - 1/n)
    room = 1.0 - 1.0 / threads
    above = np.array([seconds_by_threads[int(count)] / alone for count in threads]) - 1.0 / threads
    return float(np.clip(room @ above / (room @ room), 0.0, 1.0))


@dataclass(frozen=True)
class ModelProfile:
    """The training step of one model: seconds of a sample in one epoch, by number of threads."""

    name: str
    sample_shape: tuple[Count, ...]
    parameters: Count
    train_seconds_per_sample: SecondsByThreads


@dataclass(frozen=True)
class DeviceProfile:
    """Everything that was measured on one machine."""

    machine: dict[str, Any]
    schemes: tuple[SchemeProfile, ...]
    score_seconds_per_value: Seconds
    select_seconds_per_value: Seconds
    add_clear_seconds_per_value: Seconds
    model: ModelProfile | None = None

    @property
    def notes(self) -> list[str]:
        """Where more threads are slower than fewer."""
        tables = {f"{one.name} encrypts": one.encrypt_seconds for one in self.schemes}
        if self.model is not None:
            tables[f"{self.model.name} trains"] = self.model.train_seconds_per_sample
        return [
            f"{what} {seconds[more] / seconds[fewer]:.2f} times as slowly with {more} threads as with {fewer}. "
            "Calibrate again while nothing else runs; if that does not help, give clients of this kind fewer cores."
            for what, seconds in tables.items()
            for fewer, more in pairwise(sorted(seconds))
            if seconds[more] > _SLOWER * seconds[fewer]
        ]

    def __post_init__(self) -> None:
        names = [scheme.name for scheme in self.schemes]
        if not names or len(set(names)) < len(names):
            raise ParameterError("a device profile needs schemes, each of them once")
        tables = [] if self.model is None else [self.model.train_seconds_per_sample]
        for scheme in self.schemes:
            pooled = scheme.pool_seconds or scheme.name.endswith(POOLED)
            tables += [scheme.encrypt_seconds, *([scheme.pool_seconds] if pooled else [])]
        if any(1 not in table for table in tables):
            raise ParameterError("encryption and training must have been measured with one thread")

    @property
    def scheme_names(self) -> tuple[str, ...]:
        return tuple(scheme.name for scheme in self.schemes)

    def cost_model(self, scheme: str) -> CostModel:
        """Return the costs of rounds under a scheme; training is free where no model was measured.

        Raises ParameterError for a scheme that was not measured.
        """
        measured = [one for one in self.schemes if one.name == scheme]
        if not measured:
            raise ParameterError(f"{scheme!r} was not measured: choose one of {', '.join(self.scheme_names)}")
        per_sample = {1: 0.0} if self.model is None else self.model.train_seconds_per_sample
        return CostModel(
            scheme=measured[0],
            train_seconds_per_sample=per_sample[1],
            score_seconds_per_value=self.score_seconds_per_value,
            select_seconds_per_value=self.select_seconds_per_value,
            add_clear_seconds_per_value=self.add_clear_seconds_per_value,
            train_serial_share=0.0 if self.model is None else serial_share(per_sample),
        )

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **msgspec.json.decode(msgspec.json.encode(self))}

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, document: Any) -> DeviceProfile:
        """Read what :meth:`to_json` returned. Raises DataError."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise DataError("this is no device profile: make one with shieldfl profile calibrate")
        if document.get("version") != VERSION:
            raise DataError(f"the device profile is of another version than {VERSION}: calibrate again")
        stated = {key: value for key, value in document.items() if key not in ("format", "version")}
        try:
            profile = msgspec.convert(stated, cls, str_keys=True)
        except (ParameterError, msgspec.ValidationError) as error:
            raise DataError(f"the device profile is damaged: {error}") from error
        if profile.to_json() != document:
            raise DataError("the device profile is damaged: it lacks keys or has unknown ones")
        return profile


def load_profile(path: str | Path) -> DeviceProfile:
    text = read_text(path, "device profile")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the device profile {path} is no JSON: give the path of its file") from error
    return DeviceProfile.from_json(document)
