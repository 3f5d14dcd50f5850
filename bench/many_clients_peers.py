"""Other simulators on the task of ``many_clients.py``: the same data, partition, model and steps, without protection.

They draw other clients than ``sf.run`` does, so many in each round as its share is of all, and measure the model after
each round on the whole test set, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn

from shieldfl.lab.simulation.data import Dataset, dirichlet_partition, load_dataset
from shieldfl.learning.local_trainer import evaluate, train_locally
from shieldfl.learning.networks import build_model
from shieldfl.settings import TrainingSettings

__all__ = ["flower", "missing", "pfl"]

ALPHA = 0.5
"""Of the partition: what ``sf.run`` has by default."""


def missing(peer: str) -> str:
    """Return how to install what a simulator needs and is not there; nothing where it is."""
    package, how = _NEEDS[peer]
    try:
        version(package)
    except PackageNotFoundError:
        return f"{peer} was not measured: pip install {how}"
    return ""


@cache
def _task(dataset: str, model: str, clients: int) -> tuple[Dataset, nn.Module, list[Any]]:
    data = load_dataset(dataset)
    parts = dirichlet_partition(data.train_labels.numpy(), clients, ALPHA, 0)
    return data, build_model(model, data.feature_shape, data.classes, 0), parts


def pfl() -> Callable[..., str]:
    """Return what runs Apple's pfl-research and gives the last accuracy; imports are done by then."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset as UserData
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    def run(
        dataset: str, model: str, *, clients: int, sample_rate: float, rounds: int, local_epochs: int
    ) -> str:
        torch.set_num_threads(1)
        data, module, parts = _task(dataset, model, clients)
        settings = TrainingSettings(local_epochs=local_epochs)

        def loss(features: torch.Tensor, labels: torch.Tensor, eval: bool = False) -> torch.Tensor:
            return nn.functional.cross_entropy(module.train(not eval)(features), labels)

        module.loss, module.metrics = loss, lambda *samples, eval=False: {}  # what pfl asks a module for

        class Measure(TrainingProcessCallback):
            accuracy = float("nan")

            def after_central_iteration(self, *arguments: Any, **options: Any) -> tuple[bool, Metrics]:
                self.accuracy = evaluate(module, data.test_features, data.test_labels)
                return False, Metrics()

        def samples_of(client: int) -> UserData:
            own = torch.from_numpy(parts[client])
            return UserData((data.train_features[own], data.train_labels[own]))

        users = FederatedDataset(samples_of, get_user_sampler("minimize_reuse", list(range(clients))))
        measure = Measure()
        FederatedAveraging().run(
            NNAlgorithmParams(rounds, rounds + 1, round(clients * sample_rate), None),
            SimulatedBackend(users, users),
            PyTorchModel(
                module,
                lambda parameters, lr: torch.optim.SGD(
                    parameters, lr, settings.momentum, weight_decay=settings.weight_decay
                ),
                torch.optim.SGD(module.parameters(), 1.0),
            ),
            NNTrainHyperParams(
                local_batch_size=settings.batch_size,
                local_num_epochs=local_epochs,
                local_learning_rate=settings.learning_rate,
            ),
            NNEvalHyperParams(local_batch_size=None),
            [measure],
        )
        return f"accuracy {measure.accuracy!r}"

    return run


def flower() -> Callable[..., str]:
    """Return the same of Flower's simulation, whose clients are Ray's workers, one for each core."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    def run(
        dataset: str, model: str, *, clients: int, sample_rate: float, rounds: int, local_epochs: int
    ) -> str:
        settings = TrainingSettings(local_epochs=local_epochs)
        app, server, found = ClientApp(), ServerApp(), []

        @app.train()
        def train(message: Message, context: Any) -> Message:
            torch.set_num_threads(1)
            data, module, parts = _task(dataset, model, clients)
            own = torch.from_numpy(parts[context.node_config["partition-id"]])
            module.load_state_dict(message.content["arrays"].to_torch_state_dict())
            mean = train_locally(module, data.train_features[own], data.train_labels[own], settings, 0)
            content = {
                "arrays": ArrayRecord(module.state_dict()),
                "metrics": MetricRecord({"num-examples": 1, "loss": mean}),
            }
            return Message(RecordDict(content), reply_to=message)

        @server.main()
        def main(grid: Any, context: Any) -> None:
            data, module, _ = _task(dataset, model, clients)

            def measure(number: int, arrays: ArrayRecord) -> MetricRecord:
                module.load_state_dict(arrays.to_torch_state_dict())
                accuracy = evaluate(module, data.test_features, data.test_labels)
                found.append(accuracy)
                return MetricRecord({"accuracy": accuracy})

            strategy = FedAvg(fraction_train=sample_rate, fraction_evaluate=0.0, min_available_nodes=clients)
            strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=rounds, evaluate_fn=measure)

        backend = {
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": os.cpu_count(), "logging_level": "ERROR", "log_to_driver": False},
        }
        run_simulation(server, app, clients, backend_config=backend)
        return f"accuracy {found[-1]!r}"

    return run


_NEEDS = {
    "pfl": ("pfl", "pfl multiprocess dill"),
    "flower": ("ray", "'flwr[simulation]'"),
}
