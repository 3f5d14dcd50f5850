"""``shieldfl.run``: users' own tasks under all kinds of methods, over seeds, as figures, files and models."""

from __future__ import annotations

import csv
import json
from itertools import repeat

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.lab.simulation.results import RunInterrupted
from small_pictures import one_picture

QUICK = {"clients": 3, "rounds": 2, "local_epochs": 1}


def regression(**changes):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(90, 4))
    targets = features @ [[1.0], [-2.0], [0.5], [0.0]] + 3.0
    given = {
        "model": lambda: nn.Linear(4, 1),
        "train_data": (features[:60], targets[:60]),
        "test_data": (features[60:], targets[60:]),
        "loss": nn.MSELoss(),
        "metrics": {"mse": nn.functional.mse_loss, "mae": nn.functional.l1_loss},
    }
    return sf.Task(**(given | changes))


class Words(nn.Module):
    """A GRU over tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.gru = nn.GRU(6, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.gru(self.embedding(tokens))[0][:, -1])


def words(**changes):
    tokens = torch.randint(0, 20, (200, 5), generator=torch.Generator().manual_seed(0))
    classes = tokens[:, -1] % 3
    given = {
        "model": Words,
        "train_data": torch.utils.data.TensorDataset(tokens[:150], classes[:150]),
        "test_data": (tokens[150:], classes[150:]),
        "optimizer": lambda parameters: torch.optim.Adam(parameters, 0.02),
        "name": "words",
    }
    return sf.Task(**(given | changes))


def test_a_regression_learns_and_encryption_changes_nothing_of_it():
    result = sf.run(
        regression(),
        ["fedavg", "full-he"],
        **(QUICK | {"rounds": 8, "local_epochs": 8, "learning_rate": 0.05}),
    )
    assert result.metrics == ("mse", "mae")
    assert result.figure("full-he", "mse").mean < 0.1
    assert abs(result.difference("full-he", "fedavg", "mse").mean) < 1e-4
    assert np.isnan(result.runs[0].methods[0].last.accuracy)
    assert result.runs[0].methods[0].converged_in_round is None
    # The model is handed back, and measures as it was measured.
    model = nn.Linear(4, 1)
    model.load_state_dict(result.state_dict("full-he"))
    task = regression()
    features, targets = (torch.tensor(one, dtype=torch.float32) for one in task.test_data)
    with torch.no_grad():
        assert float(nn.functional.mse_loss(model(features), targets)) == result.figure("full-he", "mse").mean


def test_a_gru_on_tokens_trains_with_another_optimizer():
    result = sf.run(words(), "full-he", **(QUICK | {"rounds": 6, "alpha": 100.0, "local_epochs": 4}))
    assert result.figure("full-he", "accuracy").mean > 0.6
    assert result.metrics == ("accuracy",)


# One of five values is outside of BatchCrypt's clip bounds.
@pytest.mark.filterwarnings("ignore::shieldfl.errors.PrecisionWarning")
@pytest.mark.parametrize("method", ["mask-crypt", "sense-crypt", "top-2", "batch-crypt", "selective-shield"])
def test_other_methods_take_a_loss_and_a_model_of_ones_own(method):
    settings = {"selective-shield": {"sensitivity": "full-batch"}}
    result = sf.run(
        regression(), method, settings=settings, **(QUICK | {"rounds": 1, "min_clients": 2, "clients": 4})
    )
    assert np.isfinite(result.figure(method, "mse").mean)


def test_scores_follow_the_loss_that_is_given():
    """By the squared error of doubled outputs another gradient, and other positions, than by the error itself."""
    from shieldfl.learning.scores import full_batch_fisher, full_batch_gradient, per_sample_fisher

    model, features, targets = nn.Linear(2, 1, bias=False), torch.eye(2), torch.tensor([[1.0], [0.0]])
    model.weight.data = torch.tensor([[3.0, 1.0]])
    loss = nn.MSELoss()
    np.testing.assert_allclose(full_batch_gradient(model, features, targets, loss=loss), [2.0, 1.0])
    np.testing.assert_allclose(full_batch_fisher(model, features, targets, loss=loss), [4.0, 1.0])
    np.testing.assert_allclose(per_sample_fisher(model, features, targets, loss=loss), [8.0, 2.0])


REFUSED = {
    "scores by label of another loss": (
        lambda: regression(model=lambda: nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))),
        "fedml-he",
        "defined for the cross-entropy",
    ),
    "a GRU, sample by sample": (words, "fedml-he", "cannot be differentiated for each sample"),
    "synthetic data without a range": (regression, "alt-fl-si-he", "synthetic data cannot be made from"),
    "DP-SGD by one's own optimizer": (
        lambda: words(model=lambda: nn.Sequential(nn.Embedding(20, 3), nn.Flatten(), nn.Linear(15, 3))),
        "dp-sgd",
        "trains by DP-SGD",
    ),
    "DP-SGD by one's own function": (lambda: regression(train=lambda *_: 0.0), "dp-sgd", "trains by DP-SGD"),
    "scores by step": (
        lambda: regression(train=lambda *_: 0.0),
        "selective-shield",
        "choose other scores",
    ),
    "losses": (lambda: regression(loss=nn.MSELoss(reduction="none")), "full-he", "must return one number"),
    "metrics": (
        lambda: regression(metrics={"e": torch.sub}),
        "fedavg",
        "'e' must .* number, and gives Tensor",
    ),
    "no class": (
        lambda: words(loss=lambda one, two: nn.NLLLoss()(one, two + 9)),
        "fedavg",
        r"bounds\. Whole",
    ),
    "no loss": (lambda: regression(train=lambda *_: None), "fedavg", "function must .* and gives NoneType"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_method_cannot_do_with_a_task_is_said(case):
    make, method, said = REFUSED[case]
    settings = {method: {"sensitivity": "batch"}} if method == "selective-shield" else {}
    with pytest.raises(ParameterError, match=said):
        sf.run(make(), method, settings=settings, **QUICK)


def grows(model, features, targets, seed):
    model.weight = nn.Parameter(torch.zeros(2, 4))
    return 0.0


def test_a_training_function_of_ones_own_trains_and_may_not_change_the_layout():
    calls = []

    def train(model, features, targets, seed):
        calls.append((len(features), seed))
        with torch.no_grad():
            model.bias += 1.0
        return 7.0

    result = sf.run(regression(train=train), "full-he", **QUICK)
    assert len(calls) == len({seed for _, seed in calls}) == 6
    assert [record.loss for record in result.runs[0].methods[0].rounds] == [7.0, 7.0]
    start = regression().built(0).bias.detach()
    torch.testing.assert_close(result.state_dict("full-he")["bias"], start + 2.0, atol=1e-5, rtol=0)
    with pytest.raises(ParameterError, match="changed the model's parameters or their shapes"):
        sf.run(regression(train=grows), "fedavg", **QUICK)


def test_seeds_give_means_deviations_and_differences_seed_by_seed():
    result = sf.run(regression(), ["fedavg", "full-he"], seeds=(3, 1), **QUICK)
    singles = [sf.run(regression(), "fedavg", seeds=seed, **QUICK) for seed in (3, 1)]
    values = np.array([one.figure("fedavg", "mse").mean for one in singles])
    spread = result.figure("fedavg", "mse")
    np.testing.assert_array_equal(spread.values, values)
    assert values[0] != values[1]
    assert spread.mean == pytest.approx(values.mean())
    assert spread.deviation == pytest.approx(abs(values[0] - values[1]) / np.sqrt(2))
    np.testing.assert_array_equal(
        result.difference("full-he", "fedavg", "mse").values, result.figure("full-he", "mse").values - values
    )
    assert " ± " in result.table()
    assert "seeds 3, 1" in result.table()
    assert np.isnan(singles[0].figure("fedavg", "mse").deviation)


def test_the_printed_result_has_each_note_of_all_seeds_once_and_tells_of_rounds_that_changed_nothing():
    still = regression(train=lambda model, *_: 0.0)
    shown = str(sf.run(still, ["fedavg", "dp-fedavg"], seeds=(0, 1), weighting="samples", **QUICK))
    assert "fedavg: 2 of 2 rounds changed nothing: every client has the model" in shown
    (note,) = [line for line in shown.splitlines() if "weighs all clients alike" in line]
    assert note.startswith("dp-fedavg: ")


def test_clients_in_groups_of_classes_are_measured_on_their_own_labels():
    grouped = {"clients": 6, "rounds": 2, "local_epochs": 2, "classes_per_client": 5, "model": "linear"}
    result = sf.run("digits", "fedavg", **grouped)
    assert result.runs[0].config["alpha"] is None
    assert "5 classes for each client" in result.table()
    record = result.runs[0].methods[0].last
    # One model for all, and digits' classes are nearly alike in number: halves of it average to the whole.
    assert record.matched_accuracy == pytest.approx(record.accuracy, abs=0.02)
    assert result.figure("fedavg", "matched_accuracy").mean == record.matched_accuracy
    with pytest.raises(ParameterError, match="classes_per_client"):
        sf.run(regression(), "fedavg", classes_per_client=2, clients=4)


def test_what_came_out_can_be_written_and_read(tmp_path):
    told = []
    result = sf.run(
        regression(), ["fedavg", "full-he"], seeds=(0, 1), on_round=lambda *one: told.append(one), **QUICK
    )
    assert [(seed, method, record.round) for seed, method, record in told] == [
        (seed, method, number) for seed in (0, 1) for method in ("fedavg", "full-he") for number in (1, 2)
    ]
    with one_picture():
        files = result.write(tmp_path / "results")
    assert all(path.is_file() for path in files)
    with open(tmp_path / "results/rounds.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert float(rows[-1]["mse"]) == result.records()[-1]["mse"] == told[-1][2].measured("mse")
    written = json.loads((tmp_path / "results/runs.json").read_text())
    assert written["seeds"] == [0, 1]
    assert written["runs"][1]["methods"][0]["rounds"][1]["metrics"]["mse"] == told[5][2].measured("mse")
    page = (tmp_path / "results/seed-1/index.html").read_text()
    assert "mse, global model" in page
    assert f"{told[-1][2].measured('mse'):.4g}" in page
    assert set(result.figures()) == {"accuracy", "zones", "stages"}


def test_figures_and_methods_that_there_are_not_are_named():
    result = sf.run(regression(), "full-he", **QUICK)
    with pytest.raises(ParameterError, match="no figure 'accuracy': choose from mse, mae, best_accuracy"):
        result.figure("full-he", "accuracy")
    with pytest.raises(ParameterError, match="no method 'fedavg' in this run: full-he"):
        result.figure("fedavg", "mse")
    with pytest.raises(ParameterError, match="no seed 5 in this run: choose from 0"):
        result.state_dict("full-he", 5)
    with pytest.raises(ParameterError, match="no method 'fedavg' in this run: full-he"):
        result.state_dict("fedavg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (1, 1)}, "each once"),
        ({"epochs": 3}, "no setting 'epochs'"),
        ({"seed": 3}, "instead of seed"),
        ({"model": "mlp"}, "has data and a model of its own"),
        ({"clients": 2}, "above the number of clients"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, words):
    with pytest.raises(ParameterError, match=words):
        sf.run(regression(), **(QUICK | arguments))
    with pytest.raises(ParameterError, match="as task and 'mnist' as dataset"):
        sf.run("digits", dataset="mnist")


def stops_at(method, number):
    def on_round(seed, name, record):
        if (seed, name, record.round) == (1, method, number):
            raise KeyboardInterrupt

    return on_round


def test_ctrl_c_keeps_what_ended_and_a_checkpoint_goes_on(tmp_path):
    more = QUICK | {"checkpoint": str(tmp_path / "run")}
    with pytest.raises(RunInterrupted) as stopped:
        sf.run(regression(), ["fedavg", "full-he"], seeds=(0, 1, 2), on_round=stops_at("full-he", 1), **more)
    assert len(stopped.value.earlier) == 1
    assert [method.method for method in stopped.value.result.methods] == ["fedavg", "full-he"]
    whole = sf.run(regression(), ["fedavg", "full-he"], seeds=(0, 1, 2), **QUICK)
    gone_on = sf.run(regression(), ["fedavg", "full-he"], seeds=(0, 1, 2), resume=True, **more)
    for method in ("fedavg", "full-he"):
        np.testing.assert_array_equal(
            gone_on.figure(method, "mse").values, whole.figure(method, "mse").values
        )
    with pytest.raises(ParameterError, match="ended in an earlier process"):
        gone_on.state_dict("fedavg", 0)
    assert gone_on.state_dict("full-he", 2).keys() == {"weight", "bias"}


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
