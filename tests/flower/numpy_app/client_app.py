"""A client that does without torch: each message starts it anew, and would import that for seconds."""

from __future__ import annotations

import numpy as np
from digits_app.task import LinearModel, own_samples
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from shieldfl.flower import ShieldMod

app = ClientApp(mods=[ShieldMod(samples=lambda context: len(own_samples(context)[0]))])


@app.train()
def train(message, context):
    features, targets = own_samples(context)
    model = LinearModel({name: one.numpy() for name, one in message.content["arrays"].items()})
    for _ in range(5):
        model.descend(features, targets, context.run_config["learning-rate"])
    loss = float(np.square(model.errors(features, targets)).mean())
    metrics = MetricRecord({"num-examples": len(features), "train_loss": loss})
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
    )
