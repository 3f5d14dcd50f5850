"""As quickstart-huggingface: a transformer, some of the nodes in each round, and evaluations that return the model."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from flower.quickstarts.learning import central_data, loader, own_data, test, train

client_app = ClientApp()
server_app = ServerApp()


class TinyBert(nn.Module):
    """Reads an image of digits row by row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.embed = nn.Linear(8, 16)
        self.places = nn.Embedding(8, 16)
        self.register_buffer("position_ids", torch.arange(8), persistent=False)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.classifier = nn.Linear(16, 10)

    def forward(self, features):
        rows = self.embed(features.reshape(-1, 8, 8)) + self.places(self.position_ids)
        return self.classifier(self.encoder(rows).mean(1))


MODELS = {"tiny": TinyBert}


@client_app.train()
def train_own(message, context):
    model = MODELS[context.run_config["model-name"]]()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=True)
    batches = loader(own_data("digits", context)[0], 16)
    train(model, batches, 0.1)
    metrics = MetricRecord({"num-examples": len(batches)})
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@client_app.evaluate()
def evaluate_own(message, context):
    model = MODELS[context.run_config["model-name"]]()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=True)
    batches = loader(own_data("digits", context)[1], 16)
    loss, accuracy = test(model, batches)
    metrics = MetricRecord({"num-examples": len(batches), "loss": loss, "accuracy": accuracy})
    # It returns the model that it was sent, too.
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@server_app.main()
def main(grid, context):
    model = MODELS[context.run_config["model-name"]]()
    strategy = FedAvg(
        fraction_train=context.run_config["fraction-train"],
        fraction_evaluate=context.run_config["fraction-evaluate"],
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
    model.load_state_dict(result.arrays.to_torch_state_dict())
    print({"accuracy": test(model, loader(central_data("digits"), 64))[1]})
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
