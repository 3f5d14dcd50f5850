"""A fleet: the clients of a federation as their devices and links are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.settings import (
    BYTES_PER_SECOND,
    SECONDS,
    NotNegative,
    Positive,
    Probability,
    Settings,
    Share,
    Text,
    about,
    parse_toml,
    read_settings,
    read_text,
    settings_of,
    table_of,
    tables_of,
)

__all__ = ["Aggregator", "ClientKind", "Fleet", "Model", "Training", "load_fleet", "parse_fleet"]


FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]
MOST_CLIENTS = 1_000_000  # a hundred bytes of vectors for each

_Size = Annotated[int, Meta(ge=1, le=2**40)]


@dataclass(frozen=True)
class Model(Settings):
    """What is trained."""

    parameters: Annotated[_Size, about("Number of parameters of the model.")]
    name: Annotated[
        Text | None, about("Name of a model in the device profile or in shieldfl run, for the training time.")
    ] = None
    train_core_seconds_per_sample: Annotated[
        Positive | None,
        about("Training time of one sample in one epoch on one core of speed 1. Default: the cost model's."),
    ] = None


@dataclass(frozen=True)
class Training(Settings):
    """What every client does in a round."""

    local_epochs: Annotated[_Size, about("Passes over a client's samples in a round.")] = 1
    min_clients: Annotated[
        _Size,
        about(
            "Fewest clients in a total that the key authority opens. A cluster with fewer surviving "
            "clients has no result."
        ),
    ] = 3


@dataclass(frozen=True)
class Aggregator(Settings):
    """The machine that adds ciphertexts, and one like it that opens totals."""

    cores: Annotated[
        Positive, about("Cores of the aggregator, of the kind that the costs were measured on.")
    ] = 1.0


@dataclass(frozen=True)
class ClientKind(Settings):
    """``count`` clients that are alike."""

    name: Text
    cores: Positive
    samples: Annotated[_Size, about("Training samples of each client.")]
    upload_bytes_per_second: Annotated[
        Positive, about("Uplink rate of a client.", key="upload", units=BYTES_PER_SECOND)
    ]
    download_bytes_per_second: Annotated[
        Positive, about("Downlink rate of a client.", key="download", units=BYTES_PER_SECOND)
    ]
    count: Annotated[_Size, about("Number of clients of this kind.")] = 1
    cpu_share: Annotated[Share, about("Share of each core's time that the client gets.")] = 1.0
    core_speed: Annotated[
        Positive,
        about(
            "Speed of one core, relative to a core of the machine that the costs were measured on. The "
            "ratio of clock rates is an estimate; two calibrated profiles give the exact ratio."
        ),
    ] = 1.0
    latency_seconds: Annotated[
        NotNegative,
        about("One-way latency, added to the upload and to the download.", key="latency", units=SECONDS),
    ] = 0.0
    dropout_probability: Annotated[
        Probability,
        about("Probability that a client drops out before its upload is complete.", key="dropout"),
    ] = 0.0
    idle_seconds: Annotated[
        NotNegative,
        about(
            "Idle time between two rounds. A pooled scheme prepares randomisers in it, which then cost "
            "the round nothing.",
            key="idle",
            units=SECONDS,
        ),
    ] = 0.0
    profile: Annotated[
        str,
        about(
            "Path of a device profile for this kind of client, relative to the fleet file. Default: the "
            "profile of all other clients."
        ),
    ] = ""
    cluster: Annotated[
        str,
        about(
            "Label of clients with similar data. Methods that cluster put clients with one label into "
            "one cluster."
        ),
    ] = ""


def _of_clients(of_kind: Callable[[ClientKind], float]) -> cached_property[FloatVector]:
    return cached_property(lambda fleet: fleet._repeat([of_kind(kind) for kind in fleet.kinds]))


@dataclass(frozen=True)
class Fleet:
    """Clients, the model they train, and the aggregator.

    Vectors have one entry for each client, in file order.
    """

    name: str
    model: Model
    kinds: tuple[ClientKind, ...]
    training: Training = field(default_factory=Training)
    aggregator: Aggregator = field(default_factory=Aggregator)

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ParameterError("the fleet has no clients")
        if self.size > MOST_CLIENTS:
            raise ParameterError(f"the fleet has {self.size:,} clients: {MOST_CLIENTS:,} are the most")

    @property
    def counts(self) -> list[int]:
        return [kind.count for kind in self.kinds]

    @cached_property
    def size(self) -> int:
        return sum(self.counts)

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        return tuple(
            kind.name if kind.count == 1 else f"{kind.name} {number}"
            for kind in self.kinds
            for number in range(1, kind.count + 1)
        )

    @cached_property
    def cluster_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kind.cluster for kind in self.kinds))

    @cached_property
    def clusters(self) -> IntVector:
        return self._repeat([self.cluster_names.index(kind.cluster) for kind in self.kinds]).astype(np.int64)

    cores = _of_clients(lambda kind: kind.cores)
    core_rate = _of_clients(lambda kind: kind.cpu_share * kind.core_speed)  # of the reference core's work
    samples = _of_clients(lambda kind: kind.samples)
    idle_seconds = _of_clients(lambda kind: kind.idle_seconds)
    upload_bytes_per_second = _of_clients(lambda kind: kind.upload_bytes_per_second)
    download_bytes_per_second = _of_clients(lambda kind: kind.download_bytes_per_second)
    latency_seconds = _of_clients(lambda kind: kind.latency_seconds)
    dropout_probability = _of_clients(lambda kind: kind.dropout_probability)

    def _repeat(self, values: list[float] | list[int]) -> FloatVector:
        repeated = np.repeat(np.asarray(values, dtype=np.float64), self.counts)
        repeated.setflags(write=False)
        return repeated


_SECTIONS = ("name", "model", "training", "aggregator", "client")
_LINKS = ("upload", "download")


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet file; the name of the file is the fleet's where it states none.

    Raises as :func:`parse_fleet`.
    """
    return parse_fleet(read_text(path, "fleet file"), Path(path).stem, Path(path).parent)


def parse_fleet(text: str, default_name: str = "fleet", folder: Path | None = None) -> Fleet:
    """Make a fleet of the text of a fleet file.

    ``[model]``, ``[training]``, ``[aggregator]`` and each ``[[client]]`` have the settings of :class:`Model`,
    ``Training``, ``Aggregator`` and ``ClientKind``. A client may state ``bandwidth`` for both directions, and
    need not have a name; its profile's path is relative to ``folder``. Raises ParameterError that names the
    client, the key and what is allowed.
    """
    document = parse_toml(text, _SECTIONS, "the fleet file")
    clients = tables_of(document, "client")
    if not clients:
        raise ParameterError("the fleet has no clients: add a [[client]] table for each kind")
    name = document.get("name", default_name)
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(f"name must be a text that is not empty, not {name!r}")
    return Fleet(
        name=name,
        model=read_settings(Model, table_of(document, "model"), "[model]"),
        training=read_settings(Training, table_of(document, "training"), "[training]"),
        aggregator=read_settings(Aggregator, table_of(document, "aggregator"), "[aggregator]"),
        kinds=tuple(
            _client(table, number, folder or Path()) for number, table in enumerate(clients, start=1)
        ),
    )


def _client(table: Mapping[str, Any], number: int, folder: Path) -> ClientKind:
    stated = {"name": f"client {number}"} | dict(table)
    where = f"[[client]] {stated['name']!r}"
    if "bandwidth" in stated:
        both = stated.pop("bandwidth")
        settings_of(ClientKind)["upload"].read(both, f"{where} bandwidth: ")
        for link in _LINKS:
            if link in stated:
                raise ParameterError(
                    f"{where} states bandwidth and {link}: give bandwidth, or both directions"
                )
            stated[link] = both
    if isinstance(stated.get("profile"), str):
        stated["profile"] = str(folder / stated["profile"])
    return read_settings(ClientKind, stated, where)
