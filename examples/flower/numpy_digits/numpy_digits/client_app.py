"""What a client does: train, and evaluate."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from numpy_digits import task


def _samples(context: Context) -> task.Samples:
    return task.load_partition(context.node_config["partition-id"], context.node_config["num-partitions"])


app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the arrays that came, and return what became of them."""
    model = [array.copy() for array in message.content["arrays"].to_numpy_ndarrays()]
    samples = _samples(context)
    task.train(model, samples, message.content["config"]["learning-rate"])
    loss, _ = task.evaluate(model, samples)
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(samples[1])})
    return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the arrays that came."""
    samples = _samples(context)
    loss, accuracy = task.evaluate(message.content["arrays"].to_numpy_ndarrays(), samples)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(samples[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
