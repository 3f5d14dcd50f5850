"""As quickstart-sklearn: arrays of float64 without names, and a model that is saved by the server."""

from __future__ import annotations

import warnings

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from flower.quickstarts.learning import central_data, own_data

LABELS = [0, 1, 2]

client_app = ClientApp()
server_app = ServerApp()


def model_of(arrays):
    model = LogisticRegression(max_iter=1, warm_start=True, solver="saga", random_state=3)
    model.classes_ = np.array(LABELS)
    model.coef_, model.intercept_ = arrays
    return model


@client_app.train()
def train_own(message, context):
    model = model_of(message.content["arrays"].to_numpy_ndarrays())
    features, labels = own_data("iris", context)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(features, labels)
    loss = log_loss(labels, model.predict_proba(features), labels=LABELS)
    metrics = MetricRecord({"num-examples": len(features), "train_logloss": loss})
    content = {"arrays": ArrayRecord([model.coef_, model.intercept_]), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@client_app.evaluate()
def evaluate_own(message, context):
    model = model_of(message.content["arrays"].to_numpy_ndarrays())
    features, labels = own_data("iris", context)[1]
    loss = log_loss(labels, model.predict_proba(features), labels=LABELS)
    metrics = {"num-examples": len(features), "test_logloss": loss, "accuracy": model.score(features, labels)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@server_app.main()
def main(grid, context):
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros((3, 4)), np.zeros(3)]),
        num_rounds=context.run_config["num-server-rounds"],
    )
    model = model_of(result.arrays.to_numpy_ndarrays())
    print({"accuracy": model.score(*central_data("iris"))})
    np.savez("final_model.npz", model.coef_, model.intercept_)
