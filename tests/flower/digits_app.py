"""An app on digits, and the same run without Flower."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower.vector_app import opened_by_clients
from shieldfl.flower.mod import ShieldMod
from shieldfl.flower.torch_training import train_as_asked
from shieldfl.lab.simulation.data import dirichlet_partition, load_dataset
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.learning.local_trainer import LocalTrainer, evaluate, train_locally
from shieldfl.learning.local_update import PrivateSteps
from shieldfl.learning.networks import build_model
from shieldfl.methods.registry import MethodSettings, adapt_model, load_privacy_packages, make_method
from shieldfl.models.torch_bridge import flatten, flatten_buffers, parameter_layout
from shieldfl.rounds.plan import FederationPlan, GlobalModel
from shieldfl.settings import TrainingSettings

SEED = 5


class _RepeatableTrainer(LocalTrainer):
    """Trains by the seed alone where rounds ask for noise, too: noise and batches are else the operating system's."""

    def _train_privately(self, noise, features, labels):
        loss = train_locally(self._model, features, labels, TRAINING, SEED, None)
        return loss, PrivateSteps(3, 0.25)


TRAINING = TrainingSettings(local_epochs=1, batch_size=32, learning_rate=0.05)

VARIANTS = {
    "fedavg": ("fedavg", {}, {}),
    "full-he": ("full-he", {}, {}),
    "full-he by samples": ("full-he", {}, {"by_samples": True}),
    "full-he, aggregator": ("full-he", {}, {"opener": "aggregator"}),
    "full-he, authority": ("full-he", {}, {"opener": "authority"}),
    "full-he, ckks": ("full-he", {"encryption": "ckks"}, {}),
    "full-he, compressed": (
        "full-he",
        {"compressed_bits": 4, "compressed_one_in": 2, "compressed_norm": 4.0},
        {},
    ),
    "selective-shield, clear votes": ("selective-shield", {"noise_multiplier": 0.0}, {}),
    "selective-shield, encrypted votes": (
        "selective-shield",
        {"noise_multiplier": 0.0, "negotiation": "encrypted"},
        {},
    ),
    "dict-pfl": ("dict-pfl", {}, {}),
    "alt-fl-pi": ("alt-fl-pi", {"noise_multiplier": 0.0}, {"by_samples": True}),
    "sense-crypt": ("sense-crypt", {}, {}),
    "mask-crypt": ("mask-crypt", {}, {}),
    "fedml-he": ("fedml-he", {}, {}),
    "batch-crypt": ("batch-crypt", {}, {"opener": "authority"}),
    "batch norm": ("full-he", {}, {"model": "simple-cnn"}),
    "ddp-fedavg": ("ddp-fedavg", {}, {}),
    "ddp-fedavg, adaptive": ("ddp-fedavg", {"clipping": "adaptive", "clip_norm": 0.3}, {}),
    "full-he, noised sums": ("full-he", {"sum_noise_multiplier": 1.0}, {}),
    "full-he, noised sums, authority": ("full-he", {"sum_noise_multiplier": 1.0}, {"opener": "authority"}),
    "top-2, noised sums": ("top-2", {"sum_noise_multiplier": 1.0}, {}),
    "dict-pfl, noised sums": ("dict-pfl", {"sum_noise_multiplier": 1.0}, {}),
}
"""Runs by label: method, its settings, and those of :class:`DigitsRun`."""


class DigitsRun:
    """What server, clients and the run without Flower have in common.

    Parameters
    ----------
    method : its name.
    clients, rounds : of the run.
    settings : of the method, by their names in files.
    opener : who opens sums; None for clients, where they can.
    by_samples : whether clients count by their samples.
    """

    def __init__(
        self, method, *, clients=3, rounds=2, settings=None, opener=None, by_samples=False, model="mlp"
    ):
        self.name, self.clients, self.rounds, self.opener = method, clients, rounds, opener
        self.dataset = load_dataset("digits", None)
        self.given = settings or {}
        self.settings = MethodSettings()
        if self.given:
            self.settings = self.settings.changed(method, self.given)
        plain = build_model(model, self.dataset.feature_shape, self.dataset.classes, SEED)
        load_privacy_packages(method, self.settings)
        self.model = adapt_model(method, plain, self.settings)
        self.parts = dirichlet_partition(self.dataset.train_labels.numpy(), clients, 0.5, SEED)
        self.by_samples = by_samples
        self.weights = [len(part) for part in self.parts] if by_samples else None
        self.initial = GlobalModel(flatten(self.model), flatten_buffers(self.model)).kept()
        self.state = {name: value.clone() for name, value in self.model.state_dict().items()}

    def trainer(self, index):
        part = self.parts[index]
        return _RepeatableTrainer(
            self.model, self.dataset.train_features[part], self.dataset.train_labels[part], TRAINING
        )

    def arrays(self):
        return ArrayRecord(self.state)

    def run_config(self, **more):
        config = {"clients": self.clients, "method": self.name, "min-clients": 2}
        by_clients = opened_by_clients(self.name, self.given.get("encryption", "kahe"))
        config |= {"opener": self.opener} if self.opener else by_clients
        config["weighting"] = "samples" if self.by_samples else "uniform"
        config |= {f"settings.{name}": value for name, value in self.given.items()}
        return {f"shieldfl.{name}": value for name, value in (config | more).items()}

    def app(self):
        """Return a new ClientApp, as a process would make it."""
        samples = (
            (lambda context: len(self.parts[context.node_config["partition-id"]]))
            if self.by_samples
            else None
        )
        app = ClientApp(mods=[ShieldMod(samples, clear_metrics=True)])

        @app.train()
        def train(message, context):
            index = context.node_config["partition-id"]
            count = len(self.parts[index])
            content = train_as_asked(self.trainer(index), self.model, message, SEED, samples=count)
            return Message(content, reply_to=message)

        @app.evaluate()
        def evaluate_own(message, context):
            self.model.load_state_dict(message.content["arrays"].to_torch_state_dict())
            accuracy = evaluate(self.model, self.dataset.test_features, self.dataset.test_labels)
            metrics = MetricRecord({"accuracy": accuracy, "num-examples": len(self.dataset.test_labels)})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        return app

    def embedded(self, shared_secret=None):
        """Run without Flower; return the model's vectors after every round."""
        plan = FederationPlan.for_weights(
            self.weights,
            clients=self.clients,
            rounds=self.rounds,
            min_clients=2,
            server_learning_rate=1.0,
            parameters=self.initial.parameters.size,
            buffers=self.initial.buffers.size,
            layer_offsets=parameter_layout(self.model).offsets,
            samples=sum(self.weights) if self.weights else None,
            opener=self.opener,
        )
        # As in an app, weights that differ much make values no longer than one bit.
        plan = replace(plan, mean_weight=max(plan.mean_weight, plan.most_weight / 2))
        method = make_method(self.name, self.settings, plan)
        trainers = [self.trainer(index) for index in range(self.clients)]
        federation = EmbeddedFederation(
            method, self.initial, trainers, SEED, weights=self.weights, shared_secret=shared_secret
        )
        models = []
        for number in range(1, self.rounds + 1):
            federation.run_round(number, range(self.clients), 2)
            starts = [
                client.merged_model(client.global_model(method.message_for(index, federation.model)))
                for index, client in enumerate(federation.clients)
            ]
            models.append([np.concatenate((one.parameters, one.buffers)) for one in starts])
        return models
