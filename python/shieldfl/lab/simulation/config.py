"""The settings of a simulated federation that do not depend on the method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from shieldfl.errors import ParameterError
from shieldfl.lab.simulation import DATASETS
from shieldfl.learning import MODELS
from shieldfl.settings import Count, Positive, Seed, Share, Text, Threads, TrainingSettings, about

__all__ = ["RunConfig"]

_data, _federation, _folder = (
    partial(about, panel=panel) for panel in ("Data and model", "Federation", "Checkpoint")
)


@dataclass(frozen=True)
class RunConfig(TrainingSettings):
    """Data, federation and local training. The defaults are SelectiveShield's tables but for the data set.

    Raises ParameterError for values out of range, for ``min_clients`` above ``clients``, and for a run to
    resume without a checkpoint.
    """

    dataset: Annotated[str, _data("Data set. All but digits are read from files.", choices=DATASETS)] = (
        "digits"
    )
    task: Annotated[
        Text | None,
        _data(
            "Your own model and data instead of --dataset and --model: MODULE:NAME of a shieldfl.Task, "
            "or of a function that returns one. The current folder is searched for the module too.",
            metavar="MODULE:NAME",
        ),
    ] = None
    data_dir: Annotated[
        str | None,
        _data(
            "Folder of the data sets. Default: $SHIELDFL_DATA, else ./data.", metavar="DIR", beside_file=True
        ),
    ] = None
    model: Annotated[
        str | None, _data("Model. Default: the usual model of the data set.", choices=MODELS)
    ] = None
    synthetic_data: Annotated[
        str | None,
        _data(
            "Synthetic data for methods that train on some: a NumPy archive (.npz) with the arrays "
            "features (float32, shaped as the data set's samples) and labels (integers). Your own data "
            "spend no epsilon. Default: data made from the real ones, which spend epsilon.",
            metavar="FILE",
            beside_file=True,
        ),
    ] = None
    clients: Annotated[Count, _federation("Number of clients.")] = 20
    rounds: Annotated[Count, _federation("Number of rounds.", beside_file=True)] = 10
    alpha: Annotated[
        Positive,
        _data(
            "Dirichlet concentration of the labels over the clients; smaller values are more uneven.",
            words={"iid": inf},
        ),
    ] = 0.5
    classes_per_client: Annotated[
        Count | None,
        _data(
            "Number of consecutive classes for each client, instead of --alpha. Clients of one group get "
            "the same classes, so that their data are alike."
        ),
    ] = None
    sample_rate: Annotated[
        Share, _federation("Probability that a client takes part in a round, independently of the others.")
    ] = 1.0
    min_clients: Annotated[
        Count,
        _federation(
            "Fewest clients in a round and in an opened total. A round with fewer is drawn again. With "
            "two clients, each can compute the other's update."
        ),
    ] = 3
    max_clients: Annotated[
        Count | None,
        _federation(
            "Most clients in a round. A round with more is drawn again. Sums have room for this many: a "
            "smaller bound takes fewer bytes. Default: all."
        ),
    ] = None
    dropout: Annotated[
        float,
        Meta(ge=0.0, lt=1.0),
        _federation(
            "Probability that a client drops out of a round at a random step. Its work in that round is lost."
        ),
    ] = 0.0
    opener: Annotated[
        Literal["authority", "clients", "aggregator"] | None,
        _federation(
            "Who opens sums: authority (the key authority), clients (each client) or aggregator. The "
            "last two need a scheme in which clients have keys of their own. Default: clients if they "
            "have such keys, else authority."
        ),
    ] = None
    weighting: Annotated[
        Literal["uniform", "samples"],
        _federation(
            "Weights of clients in the mean. uniform: 1 for each. samples: the number of samples, if the "
            "method supports weights."
        ),
    ] = "uniform"
    server_learning_rate: Annotated[
        Positive, _federation("Factor of the server's step; 1 is plain averaging.")
    ] = 1.0
    seed: Annotated[
        Seed,
        _data(
            "Seed of partition, initial model and training. Cryptographic and privacy noise never repeat.",
            beside_file=True,
        ),
    ] = 0
    device: Annotated[
        Text,
        _federation(
            "Device for training and evaluation: cpu, or an accelerator by its name in torch, such as "
            "cuda, cuda:1 or mps. Encryption runs on the CPU.",
            metavar="NAME",
            beside_file=True,
        ),
    ] = "cpu"
    threads: Annotated[
        Threads | None,
        _federation(
            "Most threads of training and of the core. For a small model, this many clients train in "
            "parallel processes; their measured seconds are then those of clients that share a machine. "
            "Default: as many as the work is worth.",
            beside_file=True,
        ),
    ] = None

    folder: Annotated[
        Text | None,
        _folder(
            "Folder for this run alone. It gets settings, versions and the commit; a line for each round "
            "(rounds.jsonl); the checkpoint; at the end every figure (result.json, rounds.csv).",
            metavar="DIR",
            beside_file=True,
        ),
    ] = None
    tensorboard: Annotated[
        bool,
        _folder(
            "Also write each round's figures to the run's folder for TensorBoard. Read them by: "
            "tensorboard --logdir DIR.",
            beside_file=True,
        ),
    ] = False
    checkpoint: Annotated[
        Text | None,
        _folder(
            "Folder for this run alone, which holds its secrets. After each round the run writes there "
            "what it needs to resume.",
            metavar="DIR",
            beside_file=True,
        ),
    ] = None
    resume: Annotated[
        bool,
        _folder(
            "Resume the run from its checkpoint, with the settings that it began with.", beside_file=True
        ),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_clients > self.clients:
            raise ParameterError(
                f"min_clients is {self.min_clients}, above the number of clients ({self.clients}): no round "
                "can start. Take more clients, or lower min_clients; with two clients, each can compute the "
                "other's update"
            )
        if self.max_clients is not None and not self.min_clients <= self.max_clients <= self.clients:
            raise ParameterError(
                f"max_clients is {self.max_clients}: it must be from min_clients ({self.min_clients}) to the "
                f"number of clients ({self.clients})"
            )
        if self.max_clients is not None and self.max_clients < self.sample_rate * self.clients:
            raise ParameterError(
                f"max_clients is {self.max_clients}, and a round draws {self.sample_rate * self.clients:g} "
                "clients on average: most would be drawn again. Raise max_clients, or lower sample_rate"
            )
        if self.task is not None and self.model is not None:
            raise ParameterError("a task brings its own model: leave out model")
        if self.folder is not None and self.checkpoint is None:
            object.__setattr__(self, "checkpoint", str(Path(self.folder) / "checkpoint"))
        if self.tensorboard and self.folder is None:
            raise ParameterError(
                "figures for TensorBoard are written to the run's folder: name it (--folder)"
            )
        if self.resume and self.checkpoint is None:
            raise ParameterError(
                "there is nothing to resume from: name the run's folder, or that of its checkpoint, too "
                "(--folder, --checkpoint)"
            )
