"""Training of a PyTorch model as any method's rounds ask for it, in an app's train function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from shieldfl.flower.records import SCORES, TRAINING, done_training
from shieldfl.learning.local_trainer import LocalTrainer, training_seed
from shieldfl.learning.local_update import GradientNoise, StartingPoint
from shieldfl.models.torch_bridge import flatten, flatten_buffers, parameter_layout

if TYPE_CHECKING:
    from torch import nn


def train_as_asked(
    trainer: LocalTrainer,
    model: nn.Module,
    message: Message,
    seed: int,
    *,
    samples: int,
) -> RecordDict:
    """Train from a message's arrays; return a reply's content: arrays, metrics, what else the round asks for.

    ``trainer`` has this client's samples, and ``model`` the arrays as its ``state_dict``, which is
    overwritten. The run's ``seed``, with round and client, makes training repeatable; ``samples`` is the
    metric ``num-examples``.
    """
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    asked: Mapping[str, Any] = message.content.get(TRAINING, {})
    noise = None
    if asked.get("private"):
        noise = GradientNoise(float(asked["noise-multiplier"]), float(asked["max-grad-norm"]))
    start = StartingPoint(
        flatten(model),
        flatten_buffers(model),
        scores=str(asked.get("scores", "")) or None,
        noise=noise,
        synthetic=bool(asked.get("synthetic", False)),
        synthetic_share=float(asked.get("synthetic-share", 0.0)),
        round=int(asked.get("round", 0)),
    )
    update, loss = trainer.train(start, training_seed(seed, start.round or 0, int(asked.get("client", 0))))
    content: dict[str, Any] = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": samples, "train_loss": float(loss)}),
        TRAINING: done_training(update, synthetic=start.synthetic),
    }
    if update.scores is not None:
        layout = parameter_layout(model)
        parts = zip(layout.slices(), layout.shapes, strict=True)
        scores = {name: Array(update.scores[place].reshape(shape)) for (name, place), shape in parts}
        content[SCORES] = ArrayRecord(scores)
    return RecordDict(content)
