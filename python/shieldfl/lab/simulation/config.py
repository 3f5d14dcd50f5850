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

    Raises ParameterError for values out of range, for more clients at least than there are, and where a run
    is to go on and no checkpoint is named.
    """

    dataset: Annotated[str, _data("All but digits are read from files.", choices=DATASETS)] = "digits"
    task: Annotated[
        Text | None,
        _data(
            "Your own model and data in the place of a data set and a model by name: MODULE:NAME of a "
            "shieldfl.Task, or of a function that returns one. The module may lie in the folder that the "
            "command is called in.",
            metavar="MODULE:NAME",
        ),
    ] = None
    data_dir: Annotated[
        str | None,
        _data(
            "Folder of the data sets; default $SHIELDFL_DATA, then ./data.", metavar="DIR", beside_file=True
        ),
    ] = None
    model: Annotated[str | None, _data("By default the data set's.", choices=MODELS)] = None
    synthetic_data: Annotated[
        str | None,
        _data(
            "Your own synthetic data for methods that train on some, a NumPy archive (.npz): arrays features "
            "(float32, shaped as the data set's samples) and labels (whole numbers). They spend no epsilon; "
            "by default some are made, which do.",
            metavar="FILE",
            beside_file=True,
        ),
    ] = None
    clients: Annotated[Count, _federation("Number of clients.")] = 20
    rounds: Annotated[Count, _federation("Number of rounds.", beside_file=True)] = 10
    alpha: Annotated[
        Positive,
        _data(
            "Dirichlet concentration of the labels over the clients; smaller is more uneven.",
            words={"iid": inf},
        ),
    ] = 0.5
    classes_per_client: Annotated[
        Count | None,
        _data(
            "In the place of alpha: so many consecutive classes for each client, the same ones for all of a "
            "group of clients, within which data are alike."
        ),
    ] = None
    sample_rate: Annotated[
        Share, _federation("Probability that a client takes part in a round, independently of the others.")
    ] = 1.0
    min_clients: Annotated[
        Count,
        _federation(
            "Fewest clients of a round, which is drawn again where fewer come, and of a total that is "
            "opened: of two clients each learns the other's update."
        ),
    ] = 3
    max_clients: Annotated[
        Count | None,
        _federation(
            "Most clients of a round, which is drawn again where more come. Sums have room for so many: a "
            "smaller bound takes fewer bytes. By default all."
        ),
    ] = None
    dropout: Annotated[
        float,
        Meta(ge=0.0, lt=1.0),
        _federation("Probability that a client leaves a round at some step; what it did until then is lost."),
    ] = 0.0
    opener: Annotated[
        Literal["authority", "clients", "aggregator"] | None,
        _federation(
            "Who opens sums: the key authority, or each client or the aggregator alone, for which clients "
            "need keys of their own. By default clients where they have such keys, else the authority."
        ),
    ] = None
    weighting: Annotated[
        Literal["uniform", "samples"],
        _federation("uniform, or samples: a client counts as often as it has samples, where the method can."),
    ] = "uniform"
    server_learning_rate: Annotated[
        Positive, _federation("Scales the server's step; 1 is plain averaging.")
    ] = 1.0
    seed: Annotated[
        Seed,
        _data(
            "Repeats partition, initial model and training; never the cryptographic or privacy noise.",
            beside_file=True,
        ),
    ] = 0
    device: Annotated[
        Text,
        _federation(
            "Where clients train and models are measured: cpu, or an accelerator of this machine as torch "
            "names it, such as cuda, cuda:1 or mps. Encryption is on the processor.",
            metavar="NAME",
            beside_file=True,
        ),
    ] = "cpu"
    threads: Annotated[
        Threads | None,
        _federation(
            "Most threads of training and of the core; as many clients of a small model train at a time, in "
            "processes, and their seconds are those of clients that share a machine. Default: as many "
            "threads as work is worth.",
            beside_file=True,
        ),
    ] = None

    folder: Annotated[
        Text | None,
        _folder(
            "A folder of this run alone: settings, versions and the commit; a line for each round as it "
            "comes (rounds.jsonl); in the end every figure (result.json, rounds.csv); and the checkpoint.",
            metavar="DIR",
            beside_file=True,
        ),
    ] = None
    tensorboard: Annotated[
        bool,
        _folder(
            "Write each round's figures to the run's folder for TensorBoard, too, which is read by: "
            "tensorboard --logdir DIR.",
            beside_file=True,
        ),
    ] = False
    checkpoint: Annotated[
        Text | None,
        _folder(
            "A folder of this run alone, with all its secrets: what it takes to go on is written there after "
            "each round.",
            metavar="DIR",
            beside_file=True,
        ),
    ] = None
    resume: Annotated[
        bool,
        _folder("Go on from the checkpoint, under the settings that the run began with.", beside_file=True),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_clients > self.clients:
            raise ParameterError(
                f"min_clients is {self.min_clients}, above the number of clients ({self.clients}): no round "
                "can start. Take more clients, or lower min_clients; of two clients each learns the other's "
                "update"
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
            raise ParameterError("a task has a model of its own: leave out model")
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
