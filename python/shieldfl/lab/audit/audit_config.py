"""How an audit's federations are set up: small batches and one training step, where attacks are strongest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from shieldfl.errors import ParameterError
from shieldfl.lab.simulation import DATASETS
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.learning import MODELS
from shieldfl.settings import Count, Positive, Seed, Settings, Share, Text, Threads, about

_EFFORT = "Effort"
_FOLDER = "Checkpoint"


@dataclass(frozen=True)
class AuditConfig(Settings):
    """Settings of an audit and its federations.

    Raises ParameterError for values out of range, and for fewer clients than a round needs.
    """

    dataset: Annotated[str, about("Data set. All but digits are read from files.", choices=DATASETS)] = (
        "digits"
    )
    data_dir: Annotated[
        str | None,
        about("Folder of the data sets. Default: $SHIELDFL_DATA, else ./data.", metavar="DIR"),
    ] = None
    model: Annotated[
        str | None,
        about("Model. Default: small-mlp for digits, else the usual model of the data set.", choices=MODELS),
    ] = None
    samples: Annotated[
        Count,
        about(
            "Samples of each client, all in one batch. The fewer there are, the more an update reveals "
            "about each."
        ),
    ] = 8
    learning_rate: Annotated[
        Positive, about("Learning rate of the one SGD step that a client takes in a round.")
    ] = 0.1
    clients: Annotated[int, Meta(ge=2), about("Clients in a federation.")] = 4
    min_clients: Annotated[Count, about("Fewest clients in a round.")] = 3
    rounds: Annotated[
        Count,
        about(
            "Rounds in a federation. Methods that alternate kinds of rounds need several, so that each "
            "kind occurs."
        ),
    ] = 3
    opener: Annotated[
        Literal["authority", "clients", "aggregator"] | None,
        about(
            "Who opens sums and so has the model: authority (the key authority), clients (each client) "
            "or aggregator. The last two need a scheme in which clients have keys of their own. Default: "
            "clients if they have such keys, else authority."
        ),
    ] = None
    budget_minutes: Annotated[
        Positive,
        about(
            "Minutes for all attacks together. Each federation is one trial for every client. Attacks "
            "that still run at the end are stopped.",
            panel=_EFFORT,
        ),
    ] = 9.0
    trials: Annotated[
        Count,
        about(
            "Most federations for each method. Each has other data, another model and another seed.",
            panel=_EFFORT,
        ),
    ] = 25
    seed: Annotated[
        Seed, about("Seed of the first federation. Each further federation adds 1.", panel=_EFFORT)
    ] = 0
    folder: Annotated[
        Text | None,
        about(
            "Folder for this audit alone. It gets settings, versions and the commit; a line for each "
            "attacked federation, with the recovered images (attacked.jsonl); at the end every figure "
            "(result.json).",
            metavar="DIR",
            panel=_FOLDER,
        ),
    ] = None
    resume: Annotated[
        bool,
        about("Resume the audit in the folder, with the settings that it began with.", panel=_FOLDER),
    ] = False
    threads: Annotated[
        Threads | None,
        about("Threads of training and of the core. Default: as many as the work is worth.", panel=_EFFORT),
    ] = None

    workers: Annotated[
        Threads | None,
        about(
            "Processes that attack in parallel, if the audit takes more than a few seconds. Default: one "
            "for each core, at most eight. Results do not depend on this number.",
            panel=_EFFORT,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_clients > self.clients:
            raise ParameterError(
                f"min_clients is {self.min_clients}, above the number of clients ({self.clients}): no round "
                "can start"
            )
        if self.resume and self.folder is None:
            raise ParameterError("there is nothing to resume from: name the audit's folder, too (--folder)")

    def run_config(self, trial: int) -> RunConfig:
        """Return the configuration of one federation.

        Its default model is small for digits, so that Paillier takes seconds.
        """
        from shieldfl.learning.networks import default_model  # torch takes seconds to load

        alike = (
            "dataset",
            "data_dir",
            "clients",
            "rounds",
            "min_clients",
            "learning_rate",
            "opener",
            "threads",
        )
        return RunConfig(
            **{name: getattr(self, name) for name in alike},
            model=self.model or ("small-mlp" if self.dataset == "digits" else default_model(self.dataset)),
            local_epochs=1,
            batch_size=self.samples,
            momentum=0.0,
            seed=self.seed + trial,
        )


@dataclass(frozen=True)
class EpsilonConfig(Settings):
    canaries: Annotated[
        Count,
        about(
            "Canaries for each method: samples or clients that a coin includes or leaves out. If all m "
            "are guessed right, the bound is about ln(m / 5), so larger claims need more canaries."
        ),
    ] = 1000
    steps: Annotated[
        Count, about("DP-SGD steps in a round. Each sample is in each step with probability 1 / steps.")
    ] = 1
    sample_rate: Annotated[
        Share, about("Probability that a client takes part in a round. Who takes part is public.")
    ] = 1.0
