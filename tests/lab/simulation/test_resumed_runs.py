"""A run that was cut off goes on from its checkpoint to what it would have come to; what is not gone on from."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import pytest
import torch

from lab.simulation.small_runs import (
    SMALL,
    CutOffError,
    cut_after,
    run_methods,
)
from shieldfl.authority.message import Message
from shieldfl.authority.role_state import RunFolder
from shieldfl.errors import DataError, ParameterError, PolicyError, WireFormatError
from shieldfl.lab.simulation import data, method_run, runner
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.learning.local_trainer import LocalTrainer
from shieldfl.methods.registry import MethodSettings

pytestmark = pytest.mark.usefixtures("small_and_quick")

SHIELD = {"threshold": 0.1, "consensus": 0.5}
PAILLIER = {"encryption": "paillier-dense", "key_bits": 2048}

# Whose training, and all that is done with it, follows from the seed: method, its settings, the run's.
REPEATABLE = {
    "fedavg": ("fedavg", {}, {}),
    "fedavg, who takes part is drawn": ("fedavg", {}, {"sample_rate": 0.7, "min_clients": 1}),
    "fedavg, clients leave": ("fedavg", {}, {"dropout": 0.5, "weighting": "samples", "rounds": 6}),
    "full-he, clients open": ("full-he", {}, {"opener": "clients"}),
    # Client 0 is not in the last round.
    "full-he, clients open, who takes part is drawn": ("full-he", {}, {"sample_rate": 0.6, "seed": 6}),
    "full-he, the authority opens": ("full-he", {}, {"opener": "authority"}),
    "full-he, the aggregator opens": ("full-he", {}, {"opener": "aggregator"}),
    "full-he, Paillier": ("full-he", PAILLIER, {}),
    "selective-shield, clear": ("selective-shield", SHIELD, {}),
    "selective-shield, encrypted": ("selective-shield", {**SHIELD, "negotiation": "encrypted"}, {}),
    "sense-crypt": ("sense-crypt", {"key_bits": 2048}, {}),
    "dict-pfl": ("dict-pfl", {"patience_rounds": 1}, {"model": "mlp"}),
}
# What is drawn from the operating system is never the same twice: noise, and that of CKKS.
NOISED = {
    "alt-fl-pi": ("alt-fl-pi", {}, {}),
    "dp-fedavg": ("dp-fedavg", {"target_epsilon": 8.0}, {"sample_rate": 0.7, "min_clients": 2}),
    "ddp-fedavg": ("ddp-fedavg", {"target_epsilon": 8.0}, {"sample_rate": 0.7, "min_clients": 2}),
    "full-he, CKKS": ("full-he", {"encryption": "ckks"}, {}),
    "selective-shield": ("selective-shield", {**SHIELD, "noise_multiplier": 0.5}, {"sample_rate": 0.8}),
}
OF_NOISE = ("loss", "accuracy", "personalised_accuracy", "matched_accuracy")


@pytest.fixture(autouse=True)
def federations(monkeypatch):
    """The federations that were made, the newest last."""
    made = []

    class Kept(EmbeddedFederation):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(method_run, "EmbeddedFederation", Kept)
    return made


def whole_and_config(variant, folder):
    name, settings, changes = variant
    config = RunConfig(**{**SMALL, **changes})
    own = MethodSettings().changed(name, settings) if settings else MethodSettings()
    return name, own, config, replace(config, checkpoint=str(folder))


def run_round_by_round(config, names, settings=None, **options):
    """Run each round in what could be a process of its own."""
    for rounds in range(1, config.rounds * len(names) + 1):
        with pytest.raises(CutOffError):
            run_methods(
                replace(config, resume=rounds > 1), names, settings, on_round=cut_after(rounds), **options
            )
    return run_methods(replace(config, resume=True), names, settings, **options)


def figures(result, leaving_out=()):
    """All that was measured but times, as text."""
    methods = [asdict(method) for method in result.methods]
    for method in methods:
        del method["seconds"], method["setup_seconds"]
        for record in method["rounds"]:
            for name in ("seconds", "stage_seconds", *leaving_out):
                del record[name]
    return json.dumps(methods, indent=1)


def models(federation):
    """Return the bytes of the global model and of each client's own."""
    message = federation.model
    parts = [bytes(message[name]) for name in ("parameters", "buffers") if name in message]
    for index, client in enumerate(federation.clients):
        own = client.merged_model(federation.method.message_for(index, message))
        parts += [own.parameters.tobytes(), own.buffers.tobytes()]
    return parts


@pytest.mark.every_run(
    "sense-crypt",
    "selective-shield, encrypted",
    "full-he, clients open, who takes part is drawn",
    "fedavg, clients leave",
)
@pytest.mark.parametrize("variant", REPEATABLE.values(), ids=REPEATABLE)
def test_a_run_in_one_process_for_each_round_is_the_same_run(tmp_path, federations, variant):
    name, settings, config, kept = whole_and_config(variant, tmp_path / "run")
    whole = run_methods(config, [name], settings)
    expected = models(federations[-1])
    gone_on = run_round_by_round(kept, [name], settings)
    # The last process ran no round: it had all from the checkpoint.
    assert models(federations[-1]) == expected
    assert figures(gone_on) == figures(whole)


@pytest.mark.parametrize("variant", NOISED.values(), ids=NOISED)
def test_what_noise_does_not_change_is_the_same(tmp_path, variant):
    name, settings, config, kept = whole_and_config(variant, tmp_path / "run")
    # Here it decides what is encrypted, too.
    decided = ("zone_shares", "bytes_up", "bytes_down") if name == "selective-shield" else ()
    whole = run_methods(config, [name], settings)
    gone_on = run_round_by_round(kept, [name], settings)
    assert figures(gone_on, OF_NOISE + decided) == figures(whole, OF_NOISE + decided)
    assert name == "full-he" or whole.methods[0].last.epsilon_of_noise > 0.0


@pytest.mark.every_run("selective-shield-9", "full-he-14", "fedavg-5")
@pytest.mark.parametrize("trainings", [5, 9, 14])
@pytest.mark.parametrize(
    "variant",
    [REPEATABLE[name] for name in ("fedavg", "full-he, clients open", "selective-shield, encrypted")],
    ids=lambda variant: variant[0],
)
def test_a_round_that_was_cut_off_is_run_again(tmp_path, monkeypatch, federations, variant, trainings):
    name, settings, config, kept = whole_and_config(variant, tmp_path / "run")
    whole = run_methods(config, [name], settings)
    expected = models(federations[-1])
    done = []
    train = LocalTrainer.train

    def cut_off(self, *arguments):
        done.append(arguments)
        if len(done) == trainings:
            raise CutOffError
        return train(self, *arguments)

    monkeypatch.setattr(LocalTrainer, "train", cut_off)
    with pytest.raises(CutOffError):
        run_methods(kept, [name], settings)
    gone_on = run_methods(replace(kept, resume=True), [name], settings)
    assert models(federations[-1]) == expected
    assert figures(gone_on) == figures(whole)
    # Four in each round, and of the round that was cut off those that were done twice.
    assert len(done) == 4 * 4 + (trainings - 1) % 4 + 1


def test_several_methods_go_on_where_they_stood(tmp_path):
    names = ["fedavg", "full-he", "selective-shield"]
    config = RunConfig(**{**SMALL, "rounds": 2})
    whole = run_methods(config, names)
    told = []
    kept = replace(config, checkpoint=str(tmp_path / "run"))
    gone_on = run_round_by_round(kept, names)
    again = run_methods(
        replace(kept, resume=True), names, on_round=lambda name, record: told.append((name, record.round))
    )
    assert figures(gone_on) == figures(whole) == figures(again)
    assert told == [(name, number) for name in names for number in (1, 2)]


def test_a_target_epsilon_counts_draws_of_before(tmp_path):
    settings = MethodSettings().changed("selective-shield", {"threshold": 0.1, "target_epsilon": 8.0})
    # Of draws that are too small every one is charged, too.
    config = RunConfig(**{**SMALL, "sample_rate": 0.6})
    whole = run_methods(config, ["selective-shield"], settings).methods[0]
    assert 1 < len(whole.rounds) < config.rounds
    kept = replace(config, checkpoint=str(tmp_path / "run"))
    with pytest.raises(CutOffError):
        run_methods(kept, ["selective-shield"], settings, on_round=cut_after(1))
    gone_on = run_methods(replace(kept, resume=True), ["selective-shield"], settings).methods[0]
    assert gone_on.notes == whole.notes
    assert any("the privacy budget of epsilon = 8 is spent" in note for note in gone_on.notes)
    spent = [[record.epsilon_of_noise for record in method.rounds] for method in (gone_on, whole)]
    assert spent[0] == spent[1]


def test_synthetic_data_are_made_once(tmp_path, monkeypatch):
    made = []
    fit = data.fit_synthetic_data

    def once(*arguments, **options):
        made.append(fit(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(data, "fit_synthetic_data", once)
    kept = RunConfig(**SMALL, checkpoint=str(tmp_path / "run"))
    gone_on = run_round_by_round(kept, ["alt-fl-si-he"])
    assert len(made) == 1
    # The same ones again, so that what trains on them can be compared.
    monkeypatch.setattr(data, "fit_synthetic_data", lambda *_, **__: made[0])
    whole = run_methods(replace(kept, checkpoint=None), ["alt-fl-si-he"])
    assert figures(gone_on) == figures(whole)
    assert whole.methods[0].last.epsilon > 0.0
    assert (tmp_path / "run" / "synthetic").stat().st_mode & 0o077 == 0


def test_given_synthetic_data_are_part_of_what_a_run_is(tmp_path):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(40, 1, 4, 4, generator=generator)
    labels = torch.arange(40) % 10
    kept = RunConfig(**SMALL, checkpoint=str(tmp_path / "run"))
    whole = run_methods(replace(kept, checkpoint=None), ["alt-fl-si-he"], synthetic=(features, labels))
    gone_on = run_round_by_round(kept, ["alt-fl-si-he"], synthetic=(features, labels))
    assert figures(gone_on) == figures(whole)
    with pytest.raises(PolicyError, match="differs in the synthetic data"):
        run_methods(replace(kept, resume=True), ["alt-fl-si-he"], synthetic=(features + 1.0, labels))


@pytest.fixture
def begun(tmp_path):
    """The configuration of a run that was cut off after its first round."""
    config = RunConfig(**{**SMALL, "rounds": 2}, checkpoint=str(tmp_path / "run"))
    with pytest.raises(CutOffError):
        run_methods(config, ["full-he"], on_round=cut_after(1))
    return config


def test_a_checkpoint_is_not_written_over(begun):
    with pytest.raises(PolicyError, match=r"resume it with --resume .* or name another folder"):
        run_methods(begun, ["full-he"])


def test_nothing_is_gone_on_from_where_nothing_is(tmp_path):
    config = RunConfig(**SMALL, checkpoint=str(tmp_path / "run"), resume=True)
    with pytest.raises(DataError, match=r"there is no checkpoint in .* begin the run without --resume"):
        run_methods(config, ["fedavg"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ParameterError, match="name the run's folder"):
        RunConfig(resume=True)


@pytest.mark.parametrize(
    ("changes", "methods", "settings", "words"),
    [
        ({"seed": 1}, ["full-he"], {}, "differs in seed"),
        ({"rounds": 3}, ["full-he"], {}, "differs in rounds, the settings of full-he"),
        ({}, ["full-he", "fedavg"], {}, "differs in method, the settings of fedavg"),
        ({}, ["full-he"], {"value_bits": 25}, "differs in the settings of full-he: a resumed run keeps its"),
    ],
)
def test_a_checkpoint_is_of_one_run(begun, changes, methods, settings, words):
    own = MethodSettings().changed("full-he", settings)
    with pytest.raises(PolicyError, match=words):
        run_methods(replace(begun, resume=True, **changes), methods, own)


def test_a_checkpoint_is_of_the_same_data(begun, monkeypatch):
    load = runner.load_dataset

    def load_others(name, data_dir):
        dataset = load(name, data_dir)
        return replace(dataset, test_labels=dataset.test_labels.flip(0))

    monkeypatch.setattr(runner, "load_dataset", load_others)
    with pytest.raises(PolicyError, match="differs in the data: a resumed run keeps"):
        run_methods(replace(begun, resume=True), ["full-he"])


def test_a_checkpoint_of_another_version_is_refused(begun):
    folder = RunFolder(Path(begun.checkpoint))
    message = folder.read()
    progress = msgspec.msgpack.decode(message["progress"]) | {"format": "shieldfl run checkpoint 1"}
    folder.write(Message({**message, "progress": msgspec.msgpack.encode(progress)}))
    with pytest.raises(WireFormatError, match="another version of shieldfl: resume with that version"):
        run_methods(replace(begun, resume=True), ["full-he"])


@pytest.mark.parametrize("place", [0, 40, 0.3, 0.9, -1])
def test_a_checkpoint_that_was_altered_is_refused(begun, place):
    path = Path(begun.checkpoint) / "checkpoint"
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if isinstance(place, float) else place] ^= 1
    path.write_bytes(content)
    with pytest.raises(WireFormatError, match=r"was altered: restore the folder"):
        run_methods(replace(begun, resume=True), ["full-he"])


def test_synthetic_data_that_were_altered_are_refused(tmp_path):
    config = RunConfig(**{**SMALL, "rounds": 2}, checkpoint=str(tmp_path / "run"))
    with pytest.raises(CutOffError):
        run_methods(config, ["alt-fl-si-he"], on_round=cut_after(1))
    path = tmp_path / "run" / "synthetic"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(WireFormatError, match=r"the file synthetic in .* was altered"):
        run_methods(replace(config, resume=True), ["alt-fl-si-he"])


def test_a_checkpoint_is_its_owners_alone(begun):
    folder = Path(begun.checkpoint)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "key": 0o600,
        "checkpoint": 0o600,
    }


def test_what_a_killed_process_had_not_written_to_its_end_is_deleted(begun):
    left = Path(begun.checkpoint) / "checkpoint.0123abcd"
    left.write_bytes(b"half of it")
    run_methods(replace(begun, resume=True), ["full-he"])
    assert not left.exists()
