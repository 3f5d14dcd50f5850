"""What the server does: sample clients, average, and print what they say of the model."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from torch_digits import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    config = context.run_config
    model = task.make_model(config["hidden"])
    strategy = FedAvg(fraction_train=config["fraction-train"], fraction_evaluate=config["fraction-evaluate"])
    result = strategy.start(
        grid,
        ArrayRecord(model.state_dict()),
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"learning-rate": config["learning-rate"]}),
    )
    for number, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {number}: accuracy {metrics['accuracy']:.3f} at the clients")
