"""What a round asks of training, and what training did, as records of an app's messages.

Most methods ask for nothing but the trained arrays, and an app need not know of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from shieldfl.errors import ParameterError, PolicyError
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.wire import ASK, TRAINING, text_in
from shieldfl.training.local_update import LocalUpdate, PrivateSteps, StartingPoint

__all__ = [
    "PROTECTS",
    "SCORES",
    "answered_by_app",
    "asked_training",
    "content_for_app",
    "done_training",
    "update_of",
]

PROTECTS = ContextVar("protects", default=False)
"""Whether the app is called by a ShieldMod: a function may have another one beside its app's."""
SCORES = "shieldfl.scores"
"""The name of the record with scores: arrays under the names, and of the shapes, of the model's parameters."""


def asked_training(start: StartingPoint, client: int) -> ConfigRecord | MetricRecord:
    """Return what a round asks of training: scores, DP-SGD and its noise, synthetic data; of which round and client.

    A round that asks for none of that brings the two numbers as metrics: Flower's mods that clip take no second
    ConfigRecord, and message_size_mod no empty value.
    """
    numbers: dict[str, Any] = {"round": start.round or 0, "client": client}
    noise = start.noise
    if start.scores is None and noise is None and not start.synthetic and not start.synthetic_share:
        return MetricRecord(numbers)
    scores: dict[str, Any] = {} if start.scores is None else {"scores": start.scores}
    return ConfigRecord(
        {
            **numbers,
            **scores,
            "synthetic": start.synthetic,
            "synthetic-share": start.synthetic_share,
            "private": noise is not None,
            "noise-multiplier": 0.0 if noise is None else noise.noise_multiplier,
            "max-grad-norm": 0.0 if noise is None else noise.max_grad_norm,
        }
    )


def content_for_app(
    message: Message,
    asked: Mapping[str, Any],
    arrays: ArrayRecord,
    training: ConfigRecord | MetricRecord | None,
) -> RecordDict:
    """Return what an unprotected server would send the app: arrays, and the records of its own beside.

    Raises PolicyError for a message that brings arrays of the server's own, or puts a record in the model's place: no
    signature says what they are, and training would begin from them, by another model for each client.
    """
    content = RecordDict({text_in(asked, "arrays"): arrays})
    for name, record in message.content.items():
        if name.startswith(ASK):
            continue
        if name in content or isinstance(record, ArrayRecord):
            raise PolicyError(
                f"the server sends {name!r} beside what is protected: a client trains from the run's model and no other"
            )
        content[name] = record
    if training is not None:
        content[TRAINING] = training
    return content


def answered_by_app(message: Message, content: RecordDict, call_app: Callable[[], Message]) -> Message:
    """Have the app handle a message as if it had this content."""
    protected, message.content = message.content, content
    inside = PROTECTS.set(True)
    try:
        return call_app()
    finally:
        PROTECTS.reset(inside)
        message.content = protected


def done_training(update: LocalUpdate, *, synthetic: bool) -> ConfigRecord:
    """Return what training did, for :func:`update_of`."""
    private = update.private_steps
    return ConfigRecord(
        {
            "synthetic": synthetic,
            "steps": 0 if private is None else private.steps,
            "sample-rate": 0.0 if private is None else private.sample_rate,
        }
    )


def update_of(content: RecordDict, start: StartingPoint, layout: RecordLayout) -> LocalUpdate:
    """Return what an app's reply says that it has trained.

    Raises PolicyError where a round asks for synthetic data or private training, and the reply does not say that it was
    so: what an ordinary app trains would leave as if it had been. ParameterError for missing scores, for other arrays
    than the model's, or several records of them.
    """
    models = [record for name, record in content.array_records.items() if name != SCORES]
    if len(models) != 1:
        raise ParameterError(
            f"the app's reply has {len(models)} records of arrays: return the trained model in one, and nothing else"
        )
    model = layout.model_of(models[0])
    told = dict(content.config_records.get(TRAINING, {}))
    if start.synthetic and told.get("synthetic") is not True:
        raise PolicyError(
            "this round trains on synthetic data, and sends what it trains in the clear: the app has to say that it "
            f"did so, in the record {TRAINING!r}"
        )
    steps = _private_steps(told)
    if start.noise is not None and steps is None:
        raise PolicyError(
            "this round trains by DP-SGD: the app has to say how many steps it made, at which sample rate, in the "
            f"record {TRAINING!r}"
        )
    scores = _scores(content.array_records.get(SCORES), start, layout)
    return start.trained(model.parameters, model.buffers, scores, steps)


def _private_steps(told: dict[str, Any]) -> PrivateSteps | None:
    steps, rate = told.get("steps", 0), told.get("sample-rate", 0.0)
    return PrivateSteps(int(steps), float(rate)) if steps else None


def _scores(record: ArrayRecord | None, start: StartingPoint, layout: RecordLayout) -> Any:
    if start.scores is None:
        return None
    if record is None:
        raise ParameterError(
            f"the method needs scores of the kind {start.scores!r}: return them as the record {SCORES!r}, arrays under "
            "the names of the model's parameters"
        )
    return layout.scores_of(record)
