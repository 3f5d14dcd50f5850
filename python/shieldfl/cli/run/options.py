"""The options of ``shieldfl run``: one for each field of the two dataclasses that they fill.

Defaults and checks are the dataclasses' own; here are only names, types and help.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from shieldfl.methods.discovery import method_names

_DATA = "Data and model"
_FEDERATION = "Federation"
_TRAINING = "Local training"
_SHIELD = "SelectiveShield"
_OUTPUT = "Output"


def parse_alpha(text: str) -> float:
    """Read a Dirichlet concentration, or "iid"."""
    return math.inf if str(text).lower() == "iid" else _number(text)


def parse_threshold(text: str) -> float | tuple[float, ...]:
    """Read one threshold, or several with commas between."""
    values = tuple(_number(part) for part in str(text).split(","))
    return values[0] if len(values) == 1 else values


def parse_methods(text: str) -> tuple[str, ...]:
    """Read method names with commas between."""
    names = tuple(name for part in str(text).split(",") if (name := part.strip()))
    if not names:
        raise typer.BadParameter("name at least one method")
    return names


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


# typer takes no unions and no tuples of any length, so what has a parser is typed Any.
Methods = Annotated[
    Any,
    typer.Option(
        "--method",
        metavar="NAME,...",
        parser=parse_methods,
        help="Methods to run on the same data and initial model, compared side by side: "
        f"{', '.join(method_names())}.",
    ),
]

DatasetName = Annotated[
    str,
    typer.Option(help="digits, mnist, fashion-mnist, cifar10 or cifar100.", rich_help_panel=_DATA),
]
DataDir = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the data sets; default $SHIELDFL_DATA, then ./data.",
        rich_help_panel=_DATA,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="linear, mlp, simple-cnn, lenet5, small-vit or tiny-vit; default by the data set.",
        rich_help_panel=_DATA,
    ),
]
SyntheticData = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.npz",
        help="Your own synthetic data for methods that train on some: arrays features (float32, shaped as the data "
        "set's samples) and labels (whole numbers). They spend no epsilon; by default some are made, which do.",
        rich_help_panel=_DATA,
        show_default=False,
    ),
]
Alpha = Annotated[
    float,
    typer.Option(
        metavar="FLOAT|iid",
        parser=parse_alpha,
        help="Dirichlet concentration of the labels over the clients; smaller is more uneven.",
        rich_help_panel=_DATA,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Repeats partition, initial model and training; never the cryptographic or privacy noise.",
        rich_help_panel=_DATA,
    ),
]

Clients = Annotated[int, typer.Option(help="Number of clients.", rich_help_panel=_FEDERATION)]
Rounds = Annotated[int, typer.Option(help="Number of rounds.", rich_help_panel=_FEDERATION)]
SampleRate = Annotated[
    float,
    typer.Option(help="Probability that a client takes part in a round.", rich_help_panel=_FEDERATION),
]
MinClients = Annotated[
    int,
    typer.Option(
        help="Fewest clients of a round, and of a total that is opened.", rich_help_panel=_FEDERATION
    ),
]
Dropout = Annotated[
    float,
    typer.Option(help="Probability that a client leaves a round at some step.", rich_help_panel=_FEDERATION),
]
Weighting = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="uniform, or samples: a client counts as often as it has samples.",
        rich_help_panel=_FEDERATION,
    ),
]
ServerLearningRate = Annotated[
    float,
    typer.Option(help="Scales the server's step; 1 is plain averaging.", rich_help_panel=_FEDERATION),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads of training and of the core; default as many as the work is worth.",
        rich_help_panel=_FEDERATION,
    ),
]

LocalEpochs = Annotated[int, typer.Option(help="Epochs of a client in a round.", rich_help_panel=_TRAINING)]
BatchSize = Annotated[int, typer.Option(help="Samples of a mini-batch.", rich_help_panel=_TRAINING)]
LearningRate = Annotated[float, typer.Option(help="Of SGD.", rich_help_panel=_TRAINING)]
Momentum = Annotated[float, typer.Option(help="Of SGD.", rich_help_panel=_TRAINING)]
WeightDecay = Annotated[float, typer.Option(help="Of SGD.", rich_help_panel=_TRAINING)]

Threshold = Annotated[
    Any,
    typer.Option(
        "--tau",
        "--threshold",
        metavar="FLOAT,...",
        parser=parse_threshold,
        help="Sensitivity above which a client selects a position; one value, or one for each client.",
        rich_help_panel=_SHIELD,
    ),
]
Consensus = Annotated[
    float,
    typer.Option(
        "--rho",
        "--consensus",
        help="Share of the clients that must select a position for it to be encrypted.",
        rich_help_panel=_SHIELD,
    ),
]
NoiseMultiplier = Annotated[
    float,
    typer.Option(help="Sigma of the noise zone; 0 sends it in the clear.", rich_help_panel=_SHIELD),
]
NoiseDistribution = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="gaussian: floating-point noise; discrete-gaussian: drawn exactly, on a grid, and slower.",
        rich_help_panel=_SHIELD,
    ),
]
ClipNorm = Annotated[float, typer.Option(help="L2 norm of the noise zone's update.", rich_help_panel=_SHIELD)]
AdaptiveClip = Annotated[
    bool,
    typer.Option(
        "--adaptive-clip",
        help="Clip to the client's own recent norms; these are not private.",
        rich_help_panel=_SHIELD,
    ),
]
TargetEpsilon = Annotated[
    float | None,
    typer.Option(
        help="Instead of a noise multiplier: the epsilon that the noise of all rounds together may be charged.",
        rich_help_panel=_SHIELD,
    ),
]
Delta = Annotated[float, typer.Option(help="Delta of every stated epsilon.", rich_help_panel=_SHIELD)]
Divisor = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="A position's sum is divided by its contributors, or by all participants.",
        rich_help_panel=_SHIELD,
    ),
]
Negotiation = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="clear: the aggregator sees the masks; encrypted: the key authority sees tallies.",
        rich_help_panel=_SHIELD,
    ),
]
HidePersonalised = Annotated[
    bool,
    typer.Option(
        "--hide-personalised",
        help="Send noise on personalised positions, so that an upload does not tell which they are.",
        rich_help_panel=_SHIELD,
    ),
]
Buffers = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="BatchNorm statistics stay local to a client, or are averaged encrypted.",
        rich_help_panel=_SHIELD,
    ),
]
Sensitivity = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Squared gradient of all data at the start, of the round's batches, or mean of squares per sample.",
        rich_help_panel=_SHIELD,
    ),
]
ValueBits = Annotated[int, typer.Option(help="Bits of an encrypted value.", rich_help_panel=_SHIELD)]
FractionBits = Annotated[
    int, typer.Option(help="Bits of an encrypted value behind the binary point.", rich_help_panel=_SHIELD)
]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="METHOD.FIELD=VALUE",
        help="A setting of another method, such as sense-crypt.encryption=ckks; may be repeated. "
        "The methods' pages under docs/methods list them.",
        rich_help_panel="Other methods",
        show_default=False,
    ),
]

ExperimentFile = Annotated[
    Path | None,
    typer.Option(
        "--experiment",
        metavar="FILE",
        help="Run what a TOML file says, and print what a paper measured beside it; of the other options only "
        "--data-dir, --synthetic-data, --rounds, --seed, --threads and those of the output go with it.",
        rich_help_panel="Experiments",
        show_default=False,
        dir_okay=False,
    ),
]

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write result.json, plots and a page that holds everything (index.html) to this folder.",
        file_okay=False,
        rich_help_panel=_OUTPUT,
    ),
]
