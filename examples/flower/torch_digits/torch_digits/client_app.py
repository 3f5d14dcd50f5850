"""What a client does: train, and evaluate."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from torch_digits import task

app = ClientApp()


def _model_and_samples(message: Message, context: Context):
    model = task.make_model(context.run_config["hidden"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    partition, partitions = (context.node_config[name] for name in ("partition-id", "num-partitions"))
    return model, *task.load_partition(partition, partitions)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the arrays that came, and return what became of them."""
    model, samples, _ = _model_and_samples(message, context)
    loss = task.train(
        model,
        samples,
        context.run_config["local-epochs"],
        message.content["config"]["learning-rate"],
        seed=message.content["config"]["server-round"],
    )
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(samples[1])})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the arrays that came."""
    model, _, samples = _model_and_samples(message, context)
    loss, accuracy = task.evaluate(model, samples)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(samples[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
