"""What the server does: average adapters, and print what clients say of the model."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from lora_text import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    config = context.run_config
    model = task.make_model(config["rank"])
    adapters = task.adapters_of(model)
    sent = sum(one.numel() for one in adapters.values())
    print(f"{sent:,} of {model.num_parameters():,} parameters are sent")
    strategy = FedAvg()
    result = strategy.start(
        grid,
        ArrayRecord(adapters),
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"learning-rate": config["learning-rate"]}),
    )
    for number, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {number}: accuracy {metrics['accuracy']:.3f} at the clients")
