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
            "Your own model and data, instead of --dataset and --model. MODULE:NAME is a shieldfl.Task, or "
            "a function that returns one. The current folder is searched too.",
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
            "features (float32, shaped and normalised as the data set's) and labels (integers). They spend "
            "no epsilon. Default: data made from the real ones, which spend epsilon.",
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
            "Most classes of one client, instead of --alpha. Each group of clients has consecutive classes "
            "of its own, and each of its clients has samples of all of them."
        ),
    ] = None
    sample_rate: Annotated[
        Share, _federation("Probability that a client takes part in a round, independently of the others.")
    ] = 1.0
    min_clients: Annotated[
        Count,
        _federation(
            "Fewest clients in a round. A draw of fewer is repeated. If fewer are left after dropouts, "
            "the round is given up. No smaller sum is opened. With two clients, each can compute the "
            "other's update."
        ),
    ] = 3
    max_clients: Annotated[
        Count | None,
        _federation(
            "Most clients in a round. A draw of more is repeated. The bound must be at least "
            "--sample-rate x --clients. A smaller bound takes fewer bytes. Default: all."
        ),
    ] = None
    dropout: Annotated[
        float,
        Meta(ge=0.0, lt=1.0),
        _federation(
            "Probability that a client drops out of a round at a random step. Its update is in no sum then."
        ),
    ] = 0.0
    opener: Annotated[
        Literal["authority", "clients", "aggregator"] | None,
        _federation(
            "Who opens sums: authority (the key authority), clients (each client) or aggregator. The "
            "last two need the scheme kahe or pads, and a method that allows it; any other method is an "
            "error. Default: clients where both allow it, else authority."
        ),
    ] = None
    weighting: Annotated[
        Literal["uniform", "samples"],
        _federation(
            "Weights of clients in the mean. uniform: 1 for each. samples: the number of samples. "
            "Methods without weights stay uniform, and a note says so."
        ),
    ] = "uniform"
    server_learning_rate: Annotated[
        Positive, _federation("Factor of the server's step; 1 is plain averaging.")
    ] = 1.0
    seed: Annotated[
        Seed,
        _data(
            "Seed of partition, initial model and training. Keys of key authorities, privacy noise and "
            "DP-SGD's batches differ in every run.",
            beside_file=True,
        ),
    ] = 0
    measured_clients: Annotated[
        Count | None,
        _federation(
            "Number of clients whose own models are measured in each round, for methods that have them. The "
            "seed draws them, once. Default: all if there are at most 100, else 10."
        ),
    ] = None
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
            "Most threads of training and encryption. If given, up to this many clients of a small model "
            "train at once, in processes; their measured seconds are then those of a shared machine. "
            "Default: one client trains at a time, on as many threads as the work is worth.",
            beside_file=True,
        ),
    ] = None

    folder: Annotated[
        Text | None,
        _folder(
            "Folder for this run alone. It gets settings, versions and the commit; a line for each round "
            "(rounds.jsonl); the checkpoint, which has the run's secrets; at the end every figure "
            "(result.json, rounds.csv).",
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
            "Folder for the run's checkpoint, which has its secrets and is written after each round. "
            "Default: a folder in --folder, if that is given.",
            metavar="DIR",
            beside_file=True,
        ),
    ] = None
    resume: Annotated[
        bool,
        _folder(
            "Resume the run from its checkpoint. Repeat the whole command and add --resume: changed "
            "settings are refused.",
            beside_file=True,
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
        if self.measured_clients is not None and self.measured_clients > self.clients:
            raise ParameterError(
                f"measured_clients is {self.measured_clients}, above the number of clients ({self.clients})"
            )
        if self.task is not None and self.model is not None:
            raise ParameterError("a task brings its own model: leave out model")
        if self.tensorboard and self.folder is None:
            raise ParameterError(
                "figures for TensorBoard are written to the run's folder: name it (--folder)"
            )
        if self.resume and self.checkpoint_folder is None:
            raise ParameterError(
                "there is nothing to resume from: name the run's folder, or that of its checkpoint, too "
                "(--folder, --checkpoint)"
            )

    @property
    def checkpoint_folder(self) -> Path | None:
        """The checkpoint's folder: by default one in the run's folder. None if neither is given."""
        if self.checkpoint is not None:
            return Path(self.checkpoint)
        return None if self.folder is None else Path(self.folder) / "checkpoint"
