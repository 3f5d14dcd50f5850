"""Device profiles: what a machine was measured to take, in a small JSON file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shieldfl.errors import DataError, ParameterError
from shieldfl.fleet.costs.cost_model import CostModel, SchemeCosts, serial_share
from shieldfl.scheme.interface import POOLED
from shieldfl.toml_files import read_text

__all__ = ["FORMAT", "VERSION", "DeviceProfile", "ModelProfile", "SchemeProfile", "load_profile"]

FORMAT = "shieldfl-device-profile"
VERSION = 4
_SLOWER = 1.05  # more than what measured times differ by

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0.0, le=sys.float_info.max)]
MaybeSeconds = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]
SecondsByThreads = dict[Count, Seconds]


@dataclass(frozen=True)
class SchemeProfile:
    """One scheme at one setting. Seconds are of one ciphertext; encryption by number of threads, the rest with one."""

    name: str
    setting: str
    values_per_ciphertext: Count
    ciphertext_bytes: Seconds
    encrypt_seconds: SecondsByThreads
    add_seconds: Seconds
    open_seconds: Seconds
    adds_clear_values: bool
    answer_seconds: MaybeSeconds = 0.0
    """Of asking the key authority and its answer, where it answers who is in a total, and others open that."""
    answer_seconds_per_client: MaybeSeconds = 0.0
    """Beside these, for each client of the total."""
    clients_open: bool = False
    """Whether it is each client that opens."""
    pool_seconds: SecondsByThreads = field(default_factory=dict)
    """Of making a randomiser ahead, by number of threads; empty for schemes that take none from a pool."""

    def costs(self) -> SchemeCosts:
        """Return the costs of one core and how they scale."""
        pool = self.pool_seconds or {1: 0.0}
        by_core: dict[str, Any] = {
            "encrypt_seconds": self.encrypt_seconds[1],
            "serial_share": serial_share(self.encrypt_seconds),
            "pool_seconds": pool[1],
            "pool_serial_share": serial_share(pool),
        }
        alike = {one.name: getattr(self, one.name) for one in fields(SchemeCosts) if one.name not in by_core}
        return SchemeCosts(**alike, **by_core)


@dataclass(frozen=True)
class ModelProfile:
    """The training step of one model: seconds of a sample in one epoch, by number of threads."""

    name: str
    sample_shape: tuple[Count, ...]
    parameters: Count
    train_seconds_per_sample: SecondsByThreads


@dataclass(frozen=True)
class DeviceProfile:
    """Everything that was measured on one machine.

    Raises ParameterError for a scheme twice or none, or encryption and training that were not measured with one thread.
    """

    machine: dict[str, Any]
    """Processor, cores, versions: whatever a reader needs to judge the figures."""
    schemes: tuple[SchemeProfile, ...]
    score_seconds_per_value: Seconds
    select_seconds_per_value: Seconds
    add_clear_seconds_per_value: Seconds
    model: ModelProfile | None = None

    @property
    def notes(self) -> list[str]:
        """What a reader has to know: where more threads are slower than fewer."""
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
        """Names of the schemes that were measured."""
        return tuple(scheme.name for scheme in self.schemes)

    def encrypted_values_per_second(self, scheme: str, threads: int = 1) -> float:
        """Return what this machine encrypts with so many threads: a better v_i than a clock rate (section 3.2)."""
        profile = self._scheme(scheme)
        if threads not in profile.encrypt_seconds:
            measured = ", ".join(map(str, sorted(profile.encrypt_seconds)))
            raise ParameterError(
                f"{scheme} was not measured with {threads} threads: choose one of {measured}"
            )
        return profile.values_per_ciphertext / profile.encrypt_seconds[threads]

    def cost_model(self, scheme: str) -> CostModel:
        """Return the costs of rounds under one of the schemes.

        Training costs nothing where no model was measured: the fleet file then has to state its cost.
        Raises ParameterError for a scheme that was not measured.
        """
        per_sample = {1: 0.0} if self.model is None else self.model.train_seconds_per_sample
        return CostModel(
            scheme=self._scheme(scheme).costs(),
            train_seconds_per_sample=per_sample[1],
            score_seconds_per_value=self.score_seconds_per_value,
            select_seconds_per_value=self.select_seconds_per_value,
            add_clear_seconds_per_value=self.add_clear_seconds_per_value,
            train_serial_share=0.0 if self.model is None else serial_share(per_sample),
        )

    def _scheme(self, name: str) -> SchemeProfile:
        for scheme in self.schemes:
            if scheme.name == name:
                return scheme
        raise ParameterError(f"{name!r} was not measured: choose one of {', '.join(self.scheme_names)}")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"format": FORMAT, "version": VERSION, **msgspec.json.decode(msgspec.json.encode(self))}

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON; OSError where that is not possible."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, document: Any) -> DeviceProfile:
        """Read what :meth:`to_json` returned, also after it went through a file.

        Raises DataError for another format or version, and for keys that are missing, unknown or out of range.
        """
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
    """Read a profile's file; DataError where it cannot be read or is none."""
    text = read_text(path, "device profile")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the device profile {path} is no JSON: give the path of its file") from error
    return DeviceProfile.from_json(document)
