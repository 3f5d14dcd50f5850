"""As fl-tabular: a client counts batches, not samples, and says nothing else of its training."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flower.quickstarts.learning import central_data, loader, net_of, own_data, test, train

client_app = ClientApp()
server_app = ServerApp()


def net():
    return net_of(30, 16, 8, 2)


@client_app.train()
def train_own(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batches = loader(own_data("cancer", context)[0], 8)
    train(model, batches, 0.1)
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(batches)}),
    }
    return Message(RecordDict(content), reply_to=message)


@client_app.evaluate()
def evaluate_own(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batches = loader(own_data("cancer", context)[1], 8)
    loss, accuracy = test(model, batches)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(batches)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid, context):
    strategy = FedAvg()
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
    model = net()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    print({"accuracy": test(model, loader(central_data("cancer"), 64))[1]})
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
