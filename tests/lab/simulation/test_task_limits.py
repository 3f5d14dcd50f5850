"""What users bring that no figure may be wrong by: losses that mix samples, pixels, dropout, short runs, odd names."""

from __future__ import annotations

import json
from itertools import repeat

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from lab.simulation.test_own_run import QUICK, regression
from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.lab.simulation.results import RunInterrupted


def pixels(**changes):
    images = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    classes = (images[:, 0] > 0.5).long()
    given = {
        "model": lambda: nn.Conv2d(1, 2, kernel_size=1),
        "train_data": (images[:30], classes[:30]),
        "test_data": (images[30:], classes[30:]),
    }
    return sf.Task(**(given | changes))


def test_the_accuracy_of_pixels_is_a_share_of_pixels():
    """It was divided by images: 3575 %."""
    result = sf.run(pixels(), "fedavg", **(QUICK | {"alpha": 1.0}))
    assert 0.0 <= result.figure("fedavg", "accuracy").mean <= 1.0
    model = nn.Conv2d(1, 2, kernel_size=1)
    model.load_state_dict(result.state_dict("fedavg"))
    images, classes = pixels().test_data
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == classes).float().mean()
    assert result.figure("fedavg", "accuracy").mean == pytest.approx(float(right))


def test_under_dp_sgd_no_sample_counts_by_way_of_another(monkeypatch):
    """A loss that weighs samples by the batch's moved the clipped sum by 45 clipping norms, and epsilon stood."""
    from shieldfl.privacy import dp_sgd
    from shieldfl.settings import TrainingSettings

    # Batches of all, so that the two runs differ by one sample alone.
    monkeypatch.setattr(dp_sgd, "_poisson_batches", lambda samples, *_: repeat(torch.arange(samples)))
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 100.0]))
    features, targets = (
        torch.randn(9, 3, generator=torch.Generator().manual_seed(0)) * 9,
        torch.zeros(9).long(),
    )
    targets[8] = 1
    settings = TrainingSettings(local_epochs=1, batch_size=9, learning_rate=1.0, momentum=0.0)

    def moved(count):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        before = torch.cat([one.detach().reshape(-1).clone() for one in model.parameters()])
        dp_sgd.train_privately(
            model,
            features[:count],
            targets[:count],
            settings,
            noise_multiplier=0.0,
            max_grad_norm=1.0,
            loss=loss,
        )
        after = torch.cat([one.detach().reshape(-1) for one in model.parameters()])
        return (after - before) * count  # the sum that is noised

    assert float((moved(9) - moved(8)).norm()) <= 1.0 + 1e-4


class Dropping(nn.Module):
    """A layer that draws while it trains."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))

    def forward(self, values):
        return self.layers(values)


def test_dropout_draws_by_the_seed_and_is_in_no_difference():
    task = regression(model=Dropping)
    before = torch.get_rng_state()
    first, again = (sf.run(task, ["fedavg", "full-he"], **QUICK) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for name in ("fedavg", "full-he"):
        assert first.figure(name, "mse").mean == again.figure(name, "mse").mean
    assert abs(first.difference("full-he", "fedavg", "mse").mean) < 1e-3


def test_a_function_finds_nothing_of_another_client_on_its_module():
    found = []

    def train(model, features, targets, seed):
        found.append((getattr(model, "mark", None), model.training, model.weight.requires_grad))
        model.mark = seed
        model.eval().requires_grad_(False)
        return 0.0

    sf.run(regression(train=train), "fedavg", **QUICK)
    assert set(found) == {(None, True, True)}


def test_a_model_that_fails_on_the_data_says_of_what_kind_they_are():
    images = np.zeros((20, 5), np.uint8)
    task = sf.Task(
        model=lambda: nn.Linear(5, 2), train_data=(images, images[:, 0]), test_data=(images, images[:, 0])
    )
    with pytest.raises(ParameterError, match=r"features \(2, 5\) of int64 and targets \(2,\) of int64"):
        sf.run(task, "fedavg", **QUICK)


@pytest.mark.parametrize("name", ["seed", "bytes_up", "test_loss", "share_encrypted"])
def test_a_metric_is_not_called_as_another_figure_is(name):
    with pytest.raises(ParameterError, match=f"cannot be called '{name}'"):
        regression(metrics={name: nn.functional.mse_loss})


def test_a_metric_that_changes_what_it_gets_changes_nothing_else():
    def spoils(outputs, targets):
        value = nn.functional.mse_loss(outputs, targets)
        targets.zero_()
        outputs.zero_()
        return value

    task = regression(metrics={"spoilt": spoils, "mse": nn.functional.mse_loss})
    given = np.array(task.test_data[1])
    result = sf.run(task, "fedavg", **QUICK)
    assert result.figure("fedavg", "spoilt").mean == result.figure("fedavg", "mse").mean
    np.testing.assert_array_equal(task.test_data[1], given)


def test_a_method_that_ended_early_has_no_figures_beside_those_that_did_not():
    """Its last round stood for the last one of all, in means and differences too."""
    result = sf.run(regression(), ["fedavg", "full-he"], seeds=(0, 1), **QUICK)
    result.runs[1].methods[1].rounds.pop()
    assert np.isnan(result.figure("full-he", "mse").values).tolist() == [False, True]
    assert np.isnan(result.difference("full-he", "fedavg", "mse").values).tolist() == [False, True]
    assert "full-he with seed 1 ended after 1 rounds: no figures of it" in result.table()


def test_synthetic_data_are_like_the_task_s():
    features, targets = regression().train_data
    result = sf.run(regression(), "alt-fl-si-he", synthetic=(features, targets), **QUICK)
    assert np.isfinite(result.figure("alt-fl-si-he", "mse").mean)
    with pytest.raises(ParameterError, match=r"features of the synthetic data are \(3,\)"):
        sf.run(regression(), "alt-fl-si-he", synthetic=(features[:, :3], targets), **QUICK)


OTHERS = {
    "the model": {"model": lambda: nn.Sequential(nn.Linear(4, 1), nn.Identity())},
    "the partition": {"partition": [range(30), range(30, 50), range(50, 60)]},
    "the metrics": {"metrics": {"error": nn.functional.mse_loss}},
    "the loss, optimizer or training": {"loss": nn.L1Loss()},
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_task_does_not_go_on_with_a_run(tmp_path, what):
    more = QUICK | {"checkpoint": str(tmp_path / "run")}
    sf.run(regression(), "fedavg", **more)
    with pytest.raises(PolicyError, match=f"differs in .*{what}"):
        sf.run(regression(**OTHERS[what]), "fedavg", resume=True, **more)


def test_a_seed_that_had_not_ended_its_first_round_begins_anew(tmp_path):
    more = QUICK | {"checkpoint": str(tmp_path / "run")}

    def stop(model, features, targets, seed):
        raise KeyboardInterrupt

    with pytest.raises(RunInterrupted):
        sf.run(regression(train=stop), "fedavg", seeds=(0, 1), **more)
    result = sf.run(regression(), "fedavg", seeds=(0, 1), resume=True, **more)
    assert len(result.records()) == 4


def test_a_task_by_import_path_is_loaded_once_for_all_seeds(tmp_path, monkeypatch):
    (tmp_path / "counted_app.py").write_text(
        "from lab.simulation.test_own_run import regression\nmade = []\n\n\n"
        "def task():\n    made.append(1)\n    return regression()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = sf.run("counted_app:task", "fedavg", seeds=(0, 1), **QUICK)
    import counted_app

    assert counted_app.made == [1]
    assert result.runs[0].config["task"] == "counted_app:task"


def test_an_error_keeps_what_ended_and_says_where(tmp_path):
    def full(seed, name, record):
        if (seed, name, record.round) == (1, "full-he", 1):
            raise DataError("the disk is full")

    more = QUICK | {"folder": str(tmp_path / "run")}
    with pytest.raises(DataError, match="the disk is full") as failed:
        sf.run(regression(), ["fedavg", "full-he", "top-2"], seeds=(0, 1, 2), on_round=full, **more)
    ended = failed.value.ended
    (before,) = ended.earlier
    assert [len(method.rounds) for method in before.methods] == [2, 2, 2]
    assert [len(method.rounds) for method in ended.result.methods] == [2, 1]
    where = "failed in round 1 of full-he, before top-2"
    assert str(ended.result.interrupted) == where
    assert failed.value.__notes__ == [f"{where}, with seed 1"]
    written = [json.loads((tmp_path / "run" / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    assert written[0] == json.loads(json.dumps(before.to_json()))
    assert written[1]["interrupted"] == {
        "method": "full-he",
        "round": 1,
        "not_begun": ["top-2"],
        "error": "the disk is full",
    }


def test_a_folder_that_cannot_be_written_in_the_end_either_hides_no_error(tmp_path, monkeypatch):
    def full(*what):
        raise DataError("the disk is full")

    def fuller(*what):
        raise DataError("it is still full")

    monkeypatch.setattr("shieldfl.lab.simulation.written_run.WrittenRun.finish", fuller)
    with pytest.raises(DataError, match="the disk is full") as failed:
        sf.run(regression(), ["fedavg"], on_round=full, **QUICK | {"folder": str(tmp_path / "run")})
    assert [len(method.rounds) for method in failed.value.ended.result.methods] == [1]
    assert "it is still full" in failed.value.__notes__


def test_an_error_before_anything_ended_is_as_it_was():
    with pytest.raises(ParameterError) as failed:
        sf.run(regression(model=lambda: None), ["fedavg"], seeds=(0, 1), **QUICK)
    assert failed.value.ended is None


@pytest.mark.parametrize("ctrl_c", [False, True])
def test_what_ends_a_later_seed_before_its_methods_keeps_the_seeds_before(ctrl_c):
    built = []

    def model():
        built.append(1)
        if len(built) < 2:
            return nn.Linear(4, 1)
        if ctrl_c:
            raise KeyboardInterrupt
        return None

    with pytest.raises(RunInterrupted if ctrl_c else ParameterError) as stopped:
        sf.run(regression(model=model), ["fedavg", "full-he"], seeds=(0, 1), **QUICK)
    (before,) = stopped.value.ended.earlier
    assert [method.method for method in before.methods] == ["fedavg", "full-he"]
    result = stopped.value.ended.result
    assert result.methods == []
    where = "in round 1 of" if ctrl_c else "before the first round of"
    assert str(result.interrupted).endswith(f"{where} fedavg, before full-he")
