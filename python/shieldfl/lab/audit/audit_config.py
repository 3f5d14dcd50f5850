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
    """Raises ParameterError for values out of range, and for fewer clients than a round needs."""

    dataset: Annotated[str, about("All but digits are read from files.", choices=DATASETS)] = "digits"
    data_dir: Annotated[
        str | None,
        about("Folder of the data sets; default $SHIELDFL_DATA, then ./data.", metavar="DIR"),
    ] = None
    model: Annotated[
        str | None,
        about("By default small-mlp for digits, else the data set's.", choices=MODELS),
    ] = None
    samples: Annotated[
        Count,
        about("Of each client, all in one batch: the fewer, the more an update tells of each."),
    ] = 8
    learning_rate: Annotated[Positive, about("Of the one step of SGD that a client takes in a round.")] = 0.1
    clients: Annotated[int, Meta(ge=2), about("Of a federation.")] = 4
    min_clients: Annotated[Count, about("Fewest clients of a round.")] = 3
    rounds: Annotated[
        Count,
        about("Of a federation: methods that alternate need several, so that there is one of each kind."),
    ] = 3
    opener: Annotated[
        Literal["authority", "clients", "aggregator"] | None,
        about(
            "Who opens sums, and so has the models: the key authority, or each client or the aggregator "
            "alone, for which clients need keys of their own. By default clients where they have such keys, "
            "else the authority."
        ),
    ] = None
    budget_minutes: Annotated[
        Positive,
        about(
            "For all attacks; each federation is one trial for every client. What is under way in the end is "
            "ended.",
            panel=_EFFORT,
        ),
    ] = 9.0
    trials: Annotated[
        Count, about("Most federations of each method, each with other data, model and seed.", panel=_EFFORT)
    ] = 25
    seed: Annotated[Seed, about("Of the first federation; the others count on from it.", panel=_EFFORT)] = 0
    folder: Annotated[
        Text | None,
        about(
            "A folder of this audit alone: settings, versions and the commit; a line for each federation "
            "that was attacked, as it ends (attacked.jsonl), with the images that it recovered; in the end "
            "every figure (result.json).",
            metavar="DIR",
            panel=_FOLDER,
        ),
    ] = None
    resume: Annotated[
        bool,
        about("Go on with the audit in the folder, under the settings that it began with.", panel=_FOLDER),
    ] = False
    threads: Annotated[
        Threads | None,
        about("Of training and of the core; default as many as the work is worth.", panel=_EFFORT),
    ] = None

    workers: Annotated[
        Threads | None,
        about(
            "Processes that attack beside each other, of an audit that takes longer than some seconds; by "
            "default one for each core, eight at most. What a federation comes to does not depend on how "
            "many there are.",
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
        """Return that of a federation.

        By default its model is small for digits, so that Paillier takes seconds.
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
            "Samples or clients for each method, each in or out by a coin. Of m that are all guessed right "
            "the bound is about ln(m / 5), so that a larger claim needs more of them to be above."
        ),
    ] = 1000
    steps: Annotated[
        Count, about("Of DP-SGD in a round: each sample is in each step with a probability of 1 over this.")
    ] = 1
    sample_rate: Annotated[
        Share, about("Probability of each client to take part in a round, which all others see.")
    ] = 1.0
