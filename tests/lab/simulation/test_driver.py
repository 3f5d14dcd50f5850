"""Whole runs on the digits that ship with scikit-learn: results, repeatability, sampling, costs."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from lab.simulation.small_runs import SMALL, charged_draws, run_methods
from lab.simulation.test_federation import federation_of
from methods.variants import labelled
from shieldfl.errors import ConvergenceError, ParameterError, RangeError
from shieldfl.lab.simulation import federation
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.lab.simulation.results import STAGES
from shieldfl.lab.simulation.runner import run_seeds
from shieldfl.methods.dict_pfl.method import DictPflSettings
from shieldfl.methods.registry import BUILT_IN, MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise
from shieldfl.settings import settings_of

pytestmark = pytest.mark.usefixtures("small_and_quick")

# Privacy noise, and synthetic data made with it, are never the same twice.
NOISED = ("alt-fl-pi", "alt-fl-si-dp", "alt-fl-si-he", "alt-fl-mp", "dp-fedavg", "ddp-fedavg", "dp-sgd")


def shield(**changes) -> MethodSettings:
    """Settings of SelectiveShield, with the shortest keys of every method that has such a setting."""
    settings = MethodSettings(selective_shield=SelectiveShieldSettings(**changes))
    # Whole runs under Paillier are those of plain-he and batch-crypt.
    settings = settings.changed("sense-crypt", {"encryption": "kahe"})
    for name in BUILT_IN:
        own = settings.of(name)
        if own is not None and "key_bits" in settings_of(type(own)):
            settings = settings.changed(name, {"key_bits": 2048})
    return settings


def tiny(**changes) -> RunConfig:
    return RunConfig(**{**SMALL, "rounds": 2, **changes})


@pytest.fixture(scope="module")
def both():
    """Both methods on the same data, with noise and personalised positions."""
    return run_methods(tiny(), BUILT_IN, shield(threshold=0.1, noise_multiplier=0.02))


def test_the_figures_of_a_run_hang_together(both):
    result = both
    assert (result.model, result.parameters) == ("linear", 17 * 10)
    assert "digits" in result.dataset.lower()
    for method in result.methods:
        assert method.parameters == (4 * 16 + 10 if method.method == "dict-pfl" else 17 * 10)
        assert method.seconds > 0.0
        for record in method.rounds:
            assert record.participants == 4
            assert 0.0 <= record.accuracy <= 1.0
            assert 0.0 <= record.personalised_accuracy <= 1.0
            assert record.loss > 0.0
            assert sum(record.zone_shares.values()) == pytest.approx(1.0, abs=1e-9)
            assert set(record.stage_seconds) <= set(STAGES)
            assert all(seconds >= 0.0 for seconds in record.stage_seconds.values())
            assert record.stage_seconds["train"] > 0.0
            assert not record.epsilon_of_noise < record.epsilon_if_participants_true
            assert not record.epsilon < record.epsilon_of_noise
        assert sum(sum(record.stage_seconds.values()) for record in method.rounds) <= method.seconds
        if method.method not in NOISED:
            assert method.last.loss < method.rounds[0].loss


def test_bytes_are_those_of_the_messages(both):
    result = both
    plain, shielded = result.methods[:2]
    # A message head is 6 bytes; a part has 9, its name and itself.
    update = 6 + (9 + 5 + 8) + (9 + 6 + 4 * 170) + (9 + 6 + 8)
    model = 6 + (9 + 10 + 4 * 170) + (9 + 7)
    for record in plain.rounds:
        assert (record.bytes_up, record.bytes_down) == (update, model)
    for record in shielded.rounds:
        assert record.bytes_down > model  # the encrypted zone too
        assert record.zone_shares["encrypted"] > 0.0
        assert record.zone_shares["noise"] > 0.0


def trained(config: RunConfig, method: str, settings: MethodSettings) -> bytes:
    """A client's parameters after a run; one that was never drawn may be in no cluster, and have none."""
    models = run_seeds(config, (method,), (config.seed,), settings).models[config.seed, method]
    return min(models.of_clients.items())[1].parameters.tobytes()


@pytest.mark.every_run("selective-shield", "sense-crypt", "full-he")
@pytest.mark.parametrize("method", [name for name in BUILT_IN if name not in NOISED])
def test_a_seed_repeats_a_run_and_another_does_not(method):
    settings = shield(threshold=0.1)
    config = tiny(sample_rate=0.7)
    first, second, other = (trained(one, method, settings) for one in (config, config, tiny(seed=1)))
    assert first == second != other


def test_a_method_starts_from_the_same_model_whatever_ran_before_it():
    together = run_methods(tiny(), ["fedavg", "dict-pfl"]).methods[1]
    alone = run_methods(tiny(), ["dict-pfl"]).methods[0]
    for mine, other in zip(together.rounds, alone.rounds, strict=True):
        assert (mine.loss, mine.accuracy, mine.bytes_up) == (other.loss, other.accuracy, other.bytes_up)


def test_whoever_opens_sums_a_run_comes_to_the_same_and_says_who_it_was():
    methods = ["full-he", "fedml-he", "mask-crypt"]
    runs = {
        opener: run_methods(tiny(opener=opener, sample_rate=0.9, dropout=0.1), methods, shield())
        for opener in ("authority", "clients", "aggregator")
    }
    for found in zip(*(run.methods for run in runs.values()), strict=True):
        figures = [[(one.loss, one.accuracy, one.bytes_up) for one in method.rounds] for method in found]
        # Where clients open, they tell the aggregator what they have opened of scores.
        assert [[one[:2] for one in rounds] for rounds in figures] == [[one[:2] for one in figures[0]]] * 3
        assert figures[0] == figures[2]
        assert [one.opened_by for one in found] == ["the key authority", "each client", "the aggregator"]
        assert ["what sums open to" in one.aggregator_sees for one in found] == [False, False, True]
    full = [run.methods[0].last.epsilon for run in runs.values()]
    assert [math.isnan(one) for one in full] == [True, True, False]
    assert math.isinf(full[2])
    for other in ("dict-pfl", "sense-crypt", "fedavg"):
        with pytest.raises(ParameterError, match=f"the aggregator of {other} cannot open sums"):
            run_methods(tiny(opener="aggregator"), [other])


def test_a_model_that_one_method_cannot_take_ends_the_run_before_any_trains():
    seen = []
    settings = MethodSettings(dict_pfl=DictPflSettings(rank=11))
    with pytest.raises(ParameterError, match="rank 11 is larger than layer '1' allows"):
        run_methods(tiny(), ["fedavg", "dict-pfl"], settings, on_round=lambda *record: seen.append(record))
    assert not seen


def test_a_target_epsilon_is_reached_at_the_last_round_and_not_exceeded():
    settings = shield(threshold=0.1, target_epsilon=8.0)
    method = run_methods(tiny(rounds=3), ["selective-shield"], settings).methods[0]
    assert [record.epsilon_of_noise < 8.0 for record in method.rounds[:2]] == [True, True]
    assert 0.99 * 8.0 <= method.last.epsilon_of_noise <= 8.0
    assert method.settings["noise_multiplier"] > 0.0
    assert method.settings["target_epsilon"] == 8.0


def test_a_draw_of_too_few_clients_is_repeated_and_charged(monkeypatch):
    charged = charged_draws(monkeypatch)
    config = tiny(rounds=4, sample_rate=0.4, min_clients=2, seed=5)
    settings = shield(threshold=0.1, noise_multiplier=1.0)
    method = run_methods(config, ["selective-shield"], settings).methods[0]
    accepted = [count for count in charged if count >= 2]
    assert accepted == [record.participants for record in method.rounds]
    assert len(charged) > len(accepted)  # with this seed some were too small
    # Sampling amplifies nothing: who takes part can be seen.
    assert method.last.epsilon_of_noise == pytest.approx(
        epsilon_of({Noise(1.0, "client"): len(charged)}, 1e-5)
    )
    together = Counter(Noise(math.sqrt(max(count, 1)), "client") for count in charged)
    assert method.last.epsilon_if_participants_true == pytest.approx(epsilon_of(together, 1e-5))


@pytest.mark.every_run("1e+30-selective-shield", "100000000.0-sense-crypt", "1e+30-fedavg")
@pytest.mark.parametrize("method", [name for name in BUILT_IN if name not in NOISED])
@pytest.mark.parametrize("rate", [1e8, 1e30])
def test_a_training_that_diverges_ends_the_run_with_advice(method, rate):
    with pytest.raises(RangeError, match=r"lower the learning rate|raise value_bits"):
        run_methods(tiny(model="mlp", learning_rate=rate), [method])


def test_a_method_that_breaks_down_keeps_its_rounds_and_the_others_go_on(monkeypatch):
    honest = EmbeddedFederation.run_round

    def breaking(self, round_number, *arguments):
        if self.method.name == "fedavg" and round_number == 2:
            raise RangeError("training gave NaN")
        return honest(self, round_number, *arguments)

    monkeypatch.setattr(EmbeddedFederation, "run_round", breaking)
    broken, whole = run_methods(tiny(rounds=3), ["fedavg", "full-he"]).methods
    assert (len(broken.rounds), len(whole.rounds)) == (1, 3)
    assert broken.notes[-1] == (
        "broke down in round 2, so its figures are of the rounds before: training gave NaN"
    )
    assert not any("broke down" in note for note in whole.notes)


def test_each_client_is_drawn_independently_with_the_same_probability(monkeypatch):
    counts = charged_draws(monkeypatch)
    federation = federation_of(labelled("fedavg"), clients=10, seed=3)
    drawn = [federation.draw(0.3, 1) for _ in range(4000)]
    sizes = np.array(counts)
    # Poisson sampling: the size is binomial. Six standard deviations of the mean and the variance.
    assert abs(sizes.mean() - 3.0) < 6 * math.sqrt(2.1 / len(sizes))
    assert abs(sizes.var() - 2.1) < 6 * 2.1 * math.sqrt(2.0 / len(sizes))
    for client in range(10):
        share = sum(client in chosen for chosen in drawn) / len(sizes)
        assert abs(share - 0.3) < 6 * math.sqrt(0.21 / len(sizes))
    assert len(sizes) - len(drawn) == (sizes == 0).sum()
    assert federation.draw(1.0, 10) == list(range(10))


def test_a_federation_that_would_never_start_says_so():
    federation = federation_of(labelled("fedavg"))
    with pytest.raises(ConvergenceError, match="sample_rate"):
        federation.draw(1e-9, 2)


SAMPLED = {"clients": 12, "rounds": 6, "sample_rate": 0.35, "local_epochs": 1, "seed": 3, "threads": 1}


def test_a_draw_of_too_many_clients_is_repeated_and_costs_nothing(monkeypatch):
    with monkeypatch.context() as patch:
        counts = charged_draws(patch)
        bounded = run_methods(RunConfig(**SAMPLED, max_clients=5), ["ddp-fedavg"]).methods[0]
    assert [record.participants for record in bounded.rounds] == [one for one in counts if one >= 3]
    assert max(counts) == 5
    free = run_methods(RunConfig(**SAMPLED), ["ddp-fedavg"]).methods[0]
    assert max(record.participants for record in free.rounds) > 5
    assert bounded.last.bytes_up < free.last.bytes_up


def test_draws_that_stay_too_large_end_the_run_with_what_to_change(monkeypatch):
    monkeypatch.setattr(federation, "_MOST_DRAWS", 1)  # the second round's first draw is of more
    with pytest.raises(ConvergenceError, match=r"gave no 3 clients, and no more than 5,.*raise max_clients"):
        run_methods(RunConfig(**SAMPLED, max_clients=5), ["fedavg"])


def test_a_bound_that_rounds_could_hardly_keep_is_refused_before_anything_is_made():
    """By default a round draws all."""
    for most in (2, 13):
        with pytest.raises(ParameterError, match=f"max_clients is {most}: it must be from min_clients"):
            RunConfig(clients=12, max_clients=most)
    for changes in ({"sample_rate": 1.0}, {"sample_rate": 0.5}):
        with pytest.raises(ParameterError, match=r"max_clients is 4, and a round draws .* on average"):
            RunConfig(**SAMPLED | changes, max_clients=4)
