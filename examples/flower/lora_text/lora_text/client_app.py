"""What a client does: train the adapters that come, and evaluate them."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import PeftModel

from lora_text import task
from lora_text.sentences import Samples, load_partition


def _parts(context: Context) -> tuple[Samples, Samples]:
    return load_partition(context.node_config["partition-id"], context.node_config["num-partitions"])


app = ClientApp()


def _model(message: Message, context: Context) -> PeftModel:
    model = task.make_model(context.run_config["rank"])
    task.load_adapters(model, message.content["arrays"].to_torch_state_dict())
    return model


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the adapters that came, and return what became of them."""
    model, (samples, _) = _model(message, context), _parts(context)
    loss = task.train(
        model,
        samples,
        context.run_config["local-epochs"],
        message.content["config"]["learning-rate"],
        seed=message.content["config"]["server-round"],
    )
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(samples)})
    content = RecordDict({"arrays": ArrayRecord(task.adapters_of(model)), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the adapters that came."""
    model, (_, samples) = _model(message, context), _parts(context)
    loss, accuracy = task.evaluate(model, samples)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(samples)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
