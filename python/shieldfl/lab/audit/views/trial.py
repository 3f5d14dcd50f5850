"""One federation that is attacked: a method runs on real data, all is recorded, and the truth is kept beside it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shieldfl.errors import ParameterError, PrecisionWarning
from shieldfl.lab.audit.audit_config import AuditConfig
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.audit.views.view import KnownChange, Party, Record, RecordedFederation, View
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset
from shieldfl.lab.simulation.method_run import MethodRun
from shieldfl.lab.simulation.partition import LabelledSamples
from shieldfl.lab.simulation.runner import planned_method
from shieldfl.learning.networks import build_model, default_model
from shieldfl.methods.discovery import method_class
from shieldfl.methods.model_adaptation import adapt_model
from shieldfl.methods.settings import MethodSettings
from shieldfl.models.parameter_layout import ParameterLayout
from shieldfl.models.torch_bridge import load_flat, parameter_layout
from shieldfl.privacy.synthetic_data import fit_synthetic_data
from shieldfl.rounds.method import Method
from shieldfl.settings import settings_of

_MEASURED = 64
"""Test samples that a trial's models are measured on: nobody looks at their accuracy."""
_OF_THE_ATTACKER = 2**31
"""Added to a trial's seed: the attacker draws a model of the same kind, and not the same one."""


def private_batches(dataset: Dataset, config: RunConfig) -> list[NDArray[np.int64]]:
    """Draw each client's samples from the training set, none twice. Raises ParameterError where there are too few."""
    wanted = config.clients * config.batch_size
    if wanted > len(dataset.train_labels):
        raise ParameterError(
            f"{config.clients} clients of {config.batch_size} samples need {wanted:,}, and {dataset.name} has "
            f"{len(dataset.train_labels):,}: take fewer samples or clients"
        )
    drawn = np.random.default_rng([config.seed, 7]).permutation(len(dataset.train_labels))[:wanted]
    return list(drawn.reshape(config.clients, config.batch_size))


def model_kind(config: AuditConfig) -> str:
    """Return the name of the model that clients train: a small one for digits, so that Paillier takes seconds."""
    return config.model or ("small-mlp" if config.dataset == "digits" else default_model(config.dataset))


def recorded_run(
    name: str,
    settings: MethodSettings,
    config: RunConfig,
    dataset: Dataset,
    plain: nn.Module,
    batches: Sequence[NDArray[np.int64]],
) -> tuple[MethodRun, Method, nn.Module, Record]:
    """Run and record; the module, whose parameters are overwritten, is what clients trained."""
    if not method_class(name).schemes:
        config = replace(config, opener=None)  # nobody opens anything, whoever opens elsewhere
    settings = _with_synthetic(name, settings, sum(map(len, batches)))
    model = adapt_model(name, plain, settings)
    method = planned_method(name, config, settings, dataset, model, None)
    measured = replace(
        dataset, test_features=dataset.test_features[:_MEASURED], test_labels=dataset.test_labels[:_MEASURED]
    )
    if method.own_settings.get("synthetic_share"):
        raise ParameterError(
            f"{name} trains on synthetic samples beside the client's own, which no attack here tells from them: set "
            "synthetic_share to 0"
        )
    synthetic = _synthetic(method, dataset)
    run = MethodRun(method, config, measured, model, batches, None, synthetic, federation=RecordedFederation)
    with warnings.catch_warnings():
        # What rounding loses, attackers do not get.
        warnings.simplefilter("ignore", PrecisionWarning)
        run.run(None)
    return run, method, model, cast(RecordedFederation, run.federation).record


def _with_synthetic(name: str, settings: MethodSettings, samples: int) -> MethodSettings:
    """Settle that clients train on as many synthetic samples as they have, and not as many as the data set has."""
    entry = settings.of(name)
    made = entry is not None and "synthetic_samples" in settings_of(type(entry))
    if not made or entry.synthetic_samples is not None:
        return settings
    return settings.changed(name, {"synthetic_samples": samples})


def _synthetic(method: Method, dataset: Dataset) -> LabelledSamples | None:
    demand = method.synthetic_demand
    if demand is None:
        return None
    if dataset.feature_range is None:
        raise ParameterError(f"{dataset.name} has no range that is public, which synthetic data are made in")
    data = dataset.train_features, dataset.train_labels, dataset.classes, *dataset.feature_range
    samples = demand.samples or len(dataset.train_labels)
    return _made_synthetic(*data, demand.epsilon, demand.delta, samples)


@lru_cache(maxsize=4)
def _made_synthetic(
    features: torch.Tensor,
    labels: torch.Tensor,
    classes: int,
    low: torch.Tensor,
    high: torch.Tensor,
    epsilon: float,
    delta: float,
    samples: int,
) -> LabelledSamples:
    """Make them once for all federations on the same tensors: it takes a hundred times as long as a federation."""
    made = fit_synthetic_data(
        *(features, labels, classes),
        feature_range=(low, high),
        epsilon=epsilon,
        delta=delta,
        samples=samples,
        seed=0,
    )
    return made.features, made.labels


class Trial:
    """A method's federation, run and recorded.

    ``number`` decides samples, models and seeds. ``planted`` is what clients train from, where the attacker
    chose it, and so knows it; None for the configuration's model. ``batches`` are each client's samples,
    positions in the training set; None draws them without regard to their labels.
    """

    def __init__(
        self,
        name: str,
        settings: MethodSettings,
        config: AuditConfig,
        dataset: Dataset,
        number: int,
        planted: nn.Module | None = None,
        batches: Sequence[NDArray[np.int64]] | None = None,
    ) -> None:
        run_config = config.run_config(number)
        kind = model_kind(config)
        self.config = replace(run_config, model=kind)
        self.dataset = dataset
        plain = planted or build_model(kind, dataset.feature_shape, dataset.classes, self.config.seed)
        self._batches = private_batches(dataset, self.config) if batches is None else batches
        run, self.method, self.model, self.record = recorded_run(
            name, settings, self.config, dataset, plain, self._batches
        )
        self.round_seconds = min(record.seconds for record in run.records)
        """Of the quickest round: what is loaded and made once is not in it."""
        self._chosen = None if planted is None else run.federation.initial.parameters

    @property
    def layout(self) -> ParameterLayout:
        return parameter_layout(self.model)

    @property
    def all_synthetic(self) -> bool:
        return all(one.synthetic for one in self.record.disclosures.values())

    def truth(self, clients: tuple[int, ...]) -> LabelledSamples:
        chosen = np.concatenate([self._batches[index] for index in clients])
        return self.dataset.train_features[chosen], self.dataset.train_labels[chosen]

    @cached_property
    def _drawn_anew(self) -> nn.Module:
        """A model of the same kind with fresh layers: what a party without the model can take for it."""
        other = deepcopy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed + _OF_THE_ATTACKER)
            for module in other.modules():
                if callable(reset := getattr(module, "reset_parameters", None)):
                    reset()
        return other

    def changes(self, party: Party, victim: int) -> Iterator[KnownChange]:
        return View(self.record, self.method, party, victim).changes()

    def observed(self, party: Party, victim: int) -> Iterator[tuple[KnownChange, ObservedUpdate]]:
        for known in self.changes(party, victim):
            yield known, self.as_update(known)

    def as_update(self, known: KnownChange) -> ObservedUpdate:
        # Who chose the first model and has no later one knows best what it chose: training moves it by little.
        start = self._chosen if known.start is None else known.start
        model = deepcopy(self._drawn_anew if start is None else self.model)
        if start is not None:
            load_flat(model, start)
        low, high = self.dataset.feature_range or (torch.tensor(0.0), torch.tensor(1.0))
        # The mean of several clients' steps, each from its own batch, is one step from all of their samples.
        samples = self.config.batch_size * len(known.clients)
        return ObservedUpdate(
            model,
            known.change,
            known.known,
            replace(self.config, batch_size=samples),
            samples,
            self.dataset.feature_shape,
            self.dataset.classes,
            noise_deviation=known.deviation,
            value_range=(float(low.min()), float(high.max())),
        )
