"""``shieldfl run``: train under one or several methods and compare what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import typer

from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import JsonFile
from shieldfl.cli.run import options
from shieldfl.cli.run.experiment_overrides import overrides_of
from shieldfl.cli.run.method_settings_option import apply_assignments
from shieldfl.cli.termination import interruptible
from shieldfl.errors import ParameterError
from shieldfl.installing import require
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig

__all__ = ["run"]

Settings = TypeVar("Settings", RunConfig, SelectiveShieldSettings)


def run(
    context: typer.Context,
    *,
    method: options.Methods = "selective-shield",
    dataset: options.DatasetName = RunConfig.dataset,
    data_dir: options.DataDir = RunConfig.data_dir,
    model: options.Model = RunConfig.model,
    synthetic_data: options.SyntheticData = RunConfig.synthetic_data,
    alpha: options.Alpha = RunConfig.alpha,
    seed: options.Seed = RunConfig.seed,
    clients: options.Clients = RunConfig.clients,
    rounds: options.Rounds = RunConfig.rounds,
    sample_rate: options.SampleRate = RunConfig.sample_rate,
    min_clients: options.MinClients = RunConfig.min_clients,
    dropout: options.Dropout = RunConfig.dropout,
    weighting: options.Weighting = RunConfig.weighting,
    server_learning_rate: options.ServerLearningRate = RunConfig.server_learning_rate,
    threads: options.Threads = RunConfig.threads,
    local_epochs: options.LocalEpochs = RunConfig.local_epochs,
    batch_size: options.BatchSize = RunConfig.batch_size,
    learning_rate: options.LearningRate = RunConfig.learning_rate,
    momentum: options.Momentum = RunConfig.momentum,
    weight_decay: options.WeightDecay = RunConfig.weight_decay,
    threshold: options.Threshold = SelectiveShieldSettings.threshold,
    consensus: options.Consensus = SelectiveShieldSettings.consensus,
    noise_multiplier: options.NoiseMultiplier = SelectiveShieldSettings.noise_multiplier,
    noise_distribution: options.NoiseDistribution = SelectiveShieldSettings.noise_distribution,
    target_epsilon: options.TargetEpsilon = SelectiveShieldSettings.target_epsilon,
    delta: options.Delta = SelectiveShieldSettings.delta,
    clip_norm: options.ClipNorm = SelectiveShieldSettings.clip_norm,
    adaptive_clip: options.AdaptiveClip = SelectiveShieldSettings.adaptive_clip,
    divisor: options.Divisor = SelectiveShieldSettings.divisor,
    negotiation: options.Negotiation = SelectiveShieldSettings.negotiation,
    hide_personalised: options.HidePersonalised = SelectiveShieldSettings.hide_personalised,
    buffers: options.Buffers = SelectiveShieldSettings.buffers,
    sensitivity: options.Sensitivity = SelectiveShieldSettings.sensitivity,
    value_bits: options.ValueBits = SelectiveShieldSettings.value_bits,
    fraction_bits: options.FractionBits = SelectiveShieldSettings.fraction_bits,
    assignments: options.Assignments = None,
    experiment: options.ExperimentFile = None,
    json_file: JsonFile = None,
    report: options.Report = None,
) -> None:
    """Train a federation of clients on real data, under protection, and print what it reached and cost.

    Several methods run on the same data, partition and initial model. The default data set, scikit-learn's
    digits, needs no download.
    """
    if experiment is not None:
        overrides = overrides_of(context)
        with interruptible(), failures_on_stderr():
            _require_packages(report)
            from shieldfl.cli.run.experiment_session import run_experiment

            run_experiment(experiment, overrides, json_file, report)
        return
    config = _from_options(RunConfig, context.params)
    shield = _from_options(SelectiveShieldSettings, context.params)
    with interruptible(), failures_on_stderr():
        _require_packages(report)
        if config.dataset == "digits":
            require("sklearn")
        settings = apply_assignments(MethodSettings(selective_shield=shield), assignments or (), method)
        # torch takes seconds to load, and neither --help nor the other commands need it.
        from shieldfl.cli.run.session import run_session

        run_session(config, method, settings, json_file, report)


def _require_packages(report: Path | None) -> None:
    """Raise ModuleNotFoundError for what a run would miss later, before anything that takes seconds."""
    require("torch")
    require("opacus")
    if report is not None:
        require("matplotlib")
        require("jinja2")


def _from_options(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Fill the dataclass from the options of the same names; what it refuses is wrong usage."""
    try:
        return kind(**{field.name: values[field.name] for field in fields(kind)})
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None
