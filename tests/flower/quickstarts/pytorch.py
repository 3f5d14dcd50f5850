"""As quickstart-pytorch: the server evaluates the model, and saves it."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flower.quickstarts.learning import central_data, loader, net_of, own_data, test, train

client_app = ClientApp()
server_app = ServerApp()


def net():
    return net_of(64, 32, 10)


@client_app.train()
def train_own(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    config = message.content["config"]
    batches = loader(own_data("digits", context)[0], context.run_config["batch-size"])
    loss = train(model, batches, config["lr"], config.get("proximal-mu", 0.0))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(batches.dataset)})
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@client_app.evaluate()
def evaluate_own(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batches = loader(own_data("digits", context)[1], context.run_config["batch-size"])
    loss, accuracy = test(model, batches)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(batches.dataset)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid, context):
    strategy = FedAvg(fraction_evaluate=context.run_config["fraction-evaluate"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net().state_dict()),
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
    print(result.evaluate_metrics_serverapp)
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")


def evaluate(number, arrays):
    model = net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, loader(central_data("digits"), 64))
    return MetricRecord({"accuracy": accuracy, "loss": loss})
