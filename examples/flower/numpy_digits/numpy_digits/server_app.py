"""What the server does: sample clients, average, evaluate on samples of its own, and keep the model."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from numpy_digits import task

app = ServerApp()


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate a round's model."""
    _, samples = task.load_data()
    loss, accuracy = task.evaluate(arrays.to_numpy_ndarrays(), samples)
    return MetricRecord({"loss": loss, "accuracy": accuracy})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    config = context.run_config
    strategy = FedAvg(fraction_train=config["fraction-train"])
    result = strategy.start(
        grid,
        ArrayRecord(task.make_model()),
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"learning-rate": config["learning-rate"]}),
        evaluate_fn=evaluate,
    )
    np.savez("model.npz", *result.arrays.to_numpy_ndarrays())
