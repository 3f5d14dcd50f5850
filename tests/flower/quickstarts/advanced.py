"""As advanced-pytorch: a strategy with a start of its own, and clients that keep a part of the model."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import log_strategy_start_info

from flower.quickstarts.learning import central_data, loader, net_of, own_data, test, train

client_app = ClientApp()
server_app = ServerApp()


def net():
    return net_of(64, 32, 10)


class BestKept(FedAvg):
    """Writes down each round, keeps the best model, and halves the learning rate."""

    def configure_train(self, server_round, arrays, config, grid):
        if server_round == 2:
            config["lr"] = config["lr"] * 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def start(
        self,
        grid,
        initial_arrays,
        num_rounds=3,
        timeout=3600,
        train_config=None,
        evaluate_config=None,
        evaluate_fn=None,
    ):
        best, rows, result, arrays = 0.0, [], Result(), initial_arrays
        log_strategy_start_info(num_rounds, initial_arrays, train_config, evaluate_config)
        self.summary()
        train_config = train_config or ConfigRecord()
        evaluate_config = evaluate_config or ConfigRecord()
        result.evaluate_metrics_serverapp[0] = evaluate_fn(0, initial_arrays)
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, train_config, grid)
            replies = grid.send_and_receive(messages=messages, timeout=timeout)
            mean, metrics = self.aggregate_train(number, replies)
            if mean is not None:
                result.arrays = arrays = mean
            if metrics is not None:
                result.train_metrics_clientapp[number] = metrics
            messages = self.configure_evaluate(number, arrays, evaluate_config, grid)
            replies = grid.send_and_receive(messages=messages, timeout=timeout)
            metrics = self.aggregate_evaluate(number, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[number] = metrics
            found = evaluate_fn(number, arrays)
            result.evaluate_metrics_serverapp[number] = found
            rows.append({"round": number, **dict(found)})
            if found["accuracy"] > best:
                best = found["accuracy"]
                torch.save(arrays.to_torch_state_dict(), "best_model.pt")
            Path("results.json").write_text(json.dumps(rows))
        return result


def own_head(context, model):
    """Take the last layer that this client has trained, where it has."""
    if "head" in context.state:
        model[2].load_state_dict(context.state["head"].to_torch_state_dict())


@client_app.train()
def train_own(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own_head(context, model)
    batches = loader(own_data("digits", context)[0], 16)
    loss = train(model, batches, message.content["config"]["lr"])
    context.state["head"] = ArrayRecord(model[2].state_dict())
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(batches.dataset)})
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@client_app.evaluate()
def evaluate_own(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own_head(context, model)
    batches = loader(own_data("digits", context)[1], 16)
    loss, accuracy = test(model, batches)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(batches.dataset)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid, context):
    strategy = BestKept(fraction_train=context.run_config["fraction-train"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net().state_dict()),
        train_config=ConfigRecord({"lr": 0.1}),
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
