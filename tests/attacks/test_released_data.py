"""What a reader of released data gets: synthetic samples, the sums behind them, normalisation."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from attacks.linear_clients import DELTA, SIZE, MeanEstimation, origin, variant_of
from lab.simulation.small_runs import run_methods
from methods.method_conformance import SteppedRun
from methods.offered_method import offer
from methods.selective_shield.selective_shield_twin import shield
from methods.variants import CLIENTS, Variant
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError
from shieldfl.lab.report.run_summary import summarise
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.masks import Mask
from shieldfl.methods.fedavg import FedAvg
from shieldfl.methods.selective_shield.method import SelectiveShield
from shieldfl.privacy import synthetic_data
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise, NoisedUpload
from shieldfl.privacy.noise import gaussian_noise
from shieldfl.rounds.method import NamedMethod

CLASSES = 10


def digits_without_one() -> tuple[Dataset, tuple[torch.Tensor, torch.Tensor]]:
    """The data set, and its neighbour in which the first sample is missing."""
    digits = load_dataset("digits")
    return digits, (digits.train_features[1:], digits.train_labels[1:])


def release_of_digits(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """The sums in steps as they are released for epsilon 1, and the random features and the grid, which are public."""
    seen: dict[str, Any] = {}
    sums_of, noise_of = synthetic_data._class_sums, synthetic_data._noise

    def sums(features: Any, labels: Any, classes: int, frequencies: torch.Tensor, grid: Any) -> torch.Tensor:
        seen.update(frequencies=frequencies, grid=grid)
        seen["sums"] = sums_of(features, labels, classes, frequencies, grid)
        return seen["sums"]

    def noise(shape: Any, deviation: float, grid: Any) -> torch.Tensor:
        seen["noise"] = noise_of(shape, deviation, grid)
        return seen["noise"]

    monkeypatch.setattr(synthetic_data, "_class_sums", sums)
    monkeypatch.setattr(synthetic_data, "_noise", noise)
    synthetic_data.fit_synthetic_data(
        digits.train_features,
        digits.train_labels,
        CLASSES,
        feature_range=digits.feature_range,
        epsilon=1.0,
        delta=1e-5,
        samples=10,
        seed=0,
        steps=1,
    )
    monkeypatch.undo()
    return seen["sums"] + seen["noise"], seen["frequencies"], seen["grid"]


def impossible_coordinates(released: torch.Tensor, sums: torch.Tensor, step: float) -> int:
    """How many released numbers are the sum of these and of no noise that is a multiple of the step, in steps."""
    steps = (released.double() - sums.double()) / step
    return int((steps != steps.round()).sum())


def missing_remainders(released: torch.Tensor, sums: torch.Tensor) -> int:
    """How many remainders modulo 64 no noise has that makes these sums the released ones: with noise in steps, none."""
    return 64 - len(((released - sums) % 64).unique())


def sums_of_doubles(samples: torch.Tensor, labels: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """The sums of the features over each class on no grid but that of floating point."""
    features = synthetic_data._fourier_features(samples.flatten(1).double(), frequencies.double())
    sums = torch.zeros(CLASSES, features.shape[1], dtype=torch.float64)
    return sums.index_add_(0, labels, features)


def impossible_floats(released: torch.Tensor, sums: torch.Tensor) -> int:
    """How many released float32 numbers are the sum of these and no float32 noise at all."""
    wanted, exact = released.numpy(), sums.numpy()
    nearest = (wanted.astype(np.float64) - exact).astype(np.float32)
    possible = np.zeros(wanted.shape, dtype=bool)
    for noise in (
        nearest,
        np.nextafter(nearest, np.float32(-np.inf)),
        np.nextafter(nearest, np.float32(np.inf)),
    ):
        possible |= (exact + noise).astype(np.float32) == wanted
    return int((~possible).sum())


def test_no_released_sum_says_which_of_two_data_sets_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    digits, neighbour = digits_without_one()
    released, frequencies, grid = release_of_digits(digits, monkeypatch)
    own = synthetic_data._class_sums(
        digits.train_features.flatten(1), digits.train_labels, CLASSES, frequencies, grid
    )
    other = synthetic_data._class_sums(neighbour[0].flatten(1), neighbour[1], CLASSES, frequencies, grid)
    assert released.dtype == own.dtype == torch.int64
    assert released.numel() == 10_010
    # The noise of either data set takes every step of the grid: all remainders occur, so none rules one of them out.
    assert missing_remainders(released, own) == missing_remainders(released, other) == 0
    # They are at most the sensitivity apart.
    assert 0 < int((own - other).square().sum()) <= (grid.sensitivity * 2**grid.fraction_bits) ** 2
    # What a search would find: sums on a finer grid than the noise, and float32 noise on sums of doubles.
    coarse = own + 8 * (released - own)
    assert missing_remainders(coarse, own) == 56
    assert impossible_coordinates(coarse, other, 8) > 100
    sums = [
        sums_of_doubles(*each, frequencies)
        for each in ((digits.train_features, digits.train_labels), neighbour)
    ]
    noise = gaussian_noise(np.zeros(sums[0].numel(), dtype=np.float32), 6.0)
    rounded = (sums[0] + torch.from_numpy(noise).view_as(sums[0])).float()
    assert impossible_floats(rounded, sums[0]) == 0
    assert impossible_floats(rounded, sums[1]) > 100


def write_mnist(folder: Path, train: np.ndarray, labels: np.ndarray) -> Path:
    """A folder with these training images, and with three black ones for testing."""
    folder.mkdir(parents=True)
    for name, array in {
        "train-images-idx3-ubyte": train,
        "train-labels-idx1-ubyte": labels,
        "t10k-images-idx3-ubyte": np.zeros((3, *train.shape[1:]), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.zeros(3, dtype=np.uint8),
    }.items():
        head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        (folder / name).write_bytes(head + array.astype(np.uint8).tobytes())
    return folder


def neighbours(folder: Path) -> tuple[Dataset, Dataset]:
    """Two data sets of 200 dark images, of which the first one is replaced by a bright one in the second."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 20, (200, 8, 8), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, 200, dtype=np.uint8)
    other = images.copy()
    other[0] = 255
    first, second = (write_mnist(folder / name, x, labels) for name, x in (("a", images), ("b", other)))
    return load_dataset("mnist", first), load_dataset("mnist", second)


def test_one_replaced_record_changes_itself_alone(tmp_path: Path) -> None:
    first, second = neighbours(tmp_path)
    assert torch.equal(first.train_features[1:], second.train_features[1:])
    assert torch.equal(first.test_features, second.test_features)
    assert not torch.equal(first.train_features[0], second.train_features[0])
    frequencies = torch.randn(64, 500, generator=torch.Generator().manual_seed(0)) / 8
    grid = synthetic_data._Grid.choose(4.0, 1000)

    def moved(samples: list[torch.Tensor]) -> float:
        sums = [
            synthetic_data._class_sums(each.flatten(1), first.train_labels, CLASSES, frequencies, grid)
            for each in samples
        ]
        return math.sqrt(int((sums[0] - sums[1]).square().sum())) * 2.0**-grid.fraction_bits

    # Replacing one is that it goes and another one comes.
    assert 0.0 < moved([first.train_features, second.train_features]) <= 2 * grid.sensitivity
    # What normalising by the samples at hand does: all others move along.
    standardised = [
        (each.train_features - each.train_features.mean()) / each.train_features.std()
        for each in (first, second)
    ]
    assert moved(standardised) > 5 * 2 * grid.sensitivity


def test_features_that_no_kernel_takes_add_nothing_to_the_sums() -> None:
    """NaN as an integer is the smallest there is, whose square is 0 in 64 bits: it would pass for short."""
    grid = synthetic_data._Grid.choose(4.0, 10)
    samples, labels = torch.ones(60, 4), torch.zeros(60, dtype=torch.int64)
    broken = synthetic_data._class_sums(samples, labels, 1, torch.full((4, 5), float("inf")), grid)
    assert not broken.any()
    assert synthetic_data._class_sums(samples, labels, 1, torch.full((4, 5), 0.5), grid).any()


def update_of(run: SteppedRun, client: int) -> np.ndarray:
    """What the client sent in the clear, or with noise, in the last round."""
    return np.frombuffer(run.sent["update"][client]["values"], dtype=np.float32).astype(np.float64)


def points(client: int, count: int) -> np.ndarray:
    return np.random.default_rng([7, client]).normal(0.0, 0.5, (count, SIZE))


def synthetic_run(replaced: bool) -> SteppedRun:
    """SI/HE, rounds: synthetic, encrypted, synthetic. One sample of the first client may be another."""
    samples = {client: points(client, 5) for client in range(CLIENTS)}
    if replaced:
        samples[0][0] += 4.0
    train = MeanEstimation(samples, synthetic=points(99, 8))
    run = SteppedRun(variant_of("alt-fl-si-he", interleaving_ratio="1/2"), initial=origin(), train=train)
    for _ in range(2):
        run.run_round()
    return run


def test_updates_from_synthetic_data_tell_the_encrypted_sum_before_them_and_have_no_epsilon():
    run, other = synthetic_run(replaced=False), synthetic_run(replaced=True)
    secret = run.parameters.astype(np.float64)
    for one in (run, other):
        # Until then nothing that can be read depends on the samples.
        assert one.account.spent().reason is None
        one.run_round()
        assert all(client.disclosure.synthetic for client in one.clients)
    # Every client's upload differs by what one sample of one client did in the encrypted round.
    for client in range(CLIENTS):
        assert np.abs(update_of(run, client) - update_of(other, client)).min() > 0.04
    # Training on data that the attacker knows too: an upload is -0.5 (w - mean), which it solves for the hidden model.
    recovered = points(99, 8).mean(axis=0) - 2.0 * update_of(run, 1)
    assert np.abs(recovered - secret).max() < 1e-5
    spent = run.account.spent()
    assert math.isinf(spent.epsilon)
    assert "synthetic data of round 3 depend on the sum of round 2" in spent.reason


def noised_run(outlier: bool, seed: int) -> SteppedRun:
    """PI, rounds: DP-SGD, encrypted, DP-SGD. One sample of the first client may lie far out."""
    samples = {client: points(client, 60) for client in range(CLIENTS)}
    if outlier:
        samples[0][0] += 5000.0
    train = MeanEstimation(samples, seed=seed)
    variant = variant_of("alt-fl-pi", interleaving_ratio="1/2", noise_multiplier=8.0, max_grad_norm=1.0)
    # Values up to 8 are encrypted by default: too few for the outlier.
    run = SteppedRun(variant.with_others(value_bits=30, fraction_bits=16), initial=origin(), train=train)
    for _ in range(3):
        run.run_round()
    return run


def test_noise_does_not_hide_an_outlier_of_the_encrypted_round_before_and_no_epsilon_says_so():
    direction = np.full(SIZE, 1.0 / math.sqrt(SIZE))
    # One step of learning rate 0.5 on 60 samples, with noise of 8 times the clipping norm on their sum.
    deviation = 0.5 * 8.0 / 60
    runs = {outlier: [noised_run(outlier, seed) for seed in range(10)] for outlier in (False, True)}
    views = {
        outlier: [update_of(run, 1) @ direction / deviation for run in made] for outlier, made in runs.items()
    }
    # A client that does not even have the sample: its noise of 8 permits 2 / 8 deviations a step.
    assert np.mean(views[False]) - np.mean(views[True]) > 6.0
    assert min(views[False]) > max(views[True])
    spent = runs[True][0].account.spent()
    assert math.isinf(spent.epsilon)
    assert "noise of round 3 depend on the sum of round 2" in spent.reason
    # What the noise alone was charged is no bound: with it, an event that no run of ten shows would show in at most
    # two of three, not in all ten.
    assert 0.0 < spent.of_noise < 1.0
    assert math.exp(spent.of_noise) * 0.26 + DELTA < 0.8


def test_noise_from_the_start_has_its_epsilon():
    """The same rounds, all with DP-SGD before encryption: the model then moves by noised sums alone."""
    samples = {client: points(client, 60) for client in range(CLIENTS)}
    variant = variant_of("alt-fl-mp", noise_multiplier=8.0, max_grad_norm=1.0, encrypted_share=1.0)
    run = SteppedRun(variant, initial=origin(), train=MeanEstimation(samples))
    for _ in range(3):
        run.run_round()
    spent = run.account.spent()
    assert spent.epsilon == spent.of_noise
    assert 0.0 < spent.epsilon < 2.0


def shielded_run(outlier: bool) -> SteppedRun:
    """SelectiveShield: the first client's update may be large in the encrypted zone of round 1."""
    size = 64

    def train(round_number, client, start):
        # The sensitive positions are the first eight; from the second round on, those that the model says.
        moved = start.parameters.copy()
        scores = np.zeros(size, dtype=np.float32)
        if round_number == 1:
            moved[:8] += np.float32(4.0 if outlier and client == 0 else 0.0)
            scores[:8] = 1.0
        else:
            scores[8:] = 1.0 if start.parameters[0] > 0.5 else 0.0
            scores[:8] = 1.0 - scores[8]
        return start.trained(moved, start.buffers, scores)

    run = SteppedRun(shield(noise_multiplier=20.0, threshold=0.5), initial=origin(size), train=train)
    for _ in range(2):
        run.account.charge_draw(CLIENTS)
        run.run_round()
    return run


def test_uploads_depend_on_an_encrypted_zone_that_was_opened_without_noise_and_have_no_epsilon():
    run, other = shielded_run(outlier=False), shielded_run(outlier=True)
    # Where the noised values of a client without any such update lie tells, without error, whether another had one.
    for client in range(1, CLIENTS):
        assert run.clients[client].disclosure.noised.count == 56
        assert other.clients[client].disclosure.noised.count == 8
    for one in (run, other):
        assert math.isinf(one.account.spent().epsilon)
        assert 0.0 < one.account.spent().of_noise < 1.0


def zoned_run(thresholds: tuple[float, ...]) -> SteppedRun:
    """Thresholds that decide without looking at the data: below 0 a client chooses everything, at 1 nothing."""
    # With room for updates from a model that so much noise has moved.
    variant = shield(noise_multiplier=20.0, threshold=thresholds, value_bits=32)
    return SteppedRun(variant, initial=origin(64), min_clients=2)


def test_without_masks_of_data_the_opened_zone_alone_ends_the_bound():
    run = zoned_run((-1.0, -1.0, 1.0, 1.0))
    run.account.charge_draw(2)
    run.run_round([2, 3])
    # Noised as a whole: nothing was encrypted, and the masks are the same whatever the data hold.
    first = run.account.spent()
    assert first.epsilon == first.of_noise < 1.0
    run.run_round([0, 1])
    assert run.clients[0].disclosure.shares()["encrypted"] == 1.0
    assert run.account.spent().reason is None
    run.run_round([2, 3])
    spent = run.account.spent()
    assert math.isinf(spent.epsilon)
    assert "noise of round 3 depend on the sum of round 2" in spent.reason


@pytest.mark.parametrize("negotiation", ["clear", "encrypted"])
def test_an_empty_zone_leaves_the_bound(negotiation):
    variant = shield(noise_multiplier=20.0, threshold=1.0, negotiation=negotiation)
    run = SteppedRun(variant, initial=origin(64))
    for _ in range(3):
        run.account.charge_draw(CLIENTS)
        run.run_round()
    spent = run.account.spent()
    assert spent.epsilon == spent.of_noise
    assert spent.if_participants_true < spent.epsilon < 1.0


def test_a_deviation_that_follows_the_data_is_covered_by_no_proof():
    run = SteppedRun(shield(noise_multiplier=20.0, threshold=1.0, adaptive_clip=True), initial=origin(64))
    run.account.charge_draw(CLIENTS)
    run.run_round()
    assert math.isinf(run.account.spent().epsilon)


def least_epsilon(probabilities: list[tuple[float, float]], delta: float) -> float:
    """The largest epsilon that events with these probabilities under neighbours disprove."""
    return max(math.log((p - delta) / q) for p, q in probabilities if p > delta and q > 0.0)


def test_no_figure_is_below_what_the_number_of_participants_alone_tells():
    """A client that may be there or not: K tells more than the noise was once charged. So sampling counts for nothing.

    What is stated is for a client whose updates are zeroed out: then K stays, and what is charged is every round.
    """
    clients, rate, rounds = 20, 0.3, 100
    run = SteppedRun(shield(noise_multiplier=20.0), clients=clients, rounds=rounds, initial=origin())
    draws = np.random.default_rng(3).binomial(clients, rate, rounds)
    for participants in draws:
        run.account.charge_draw(int(participants))
    # Each client is told K, so whoever sees one knows all of them; their sum is binomial.
    with_one, without = binom(clients * rounds, rate), binom((clients - 1) * rounds, rate)
    proved = least_epsilon([(with_one.sf(total), without.sf(total)) for total in range(500, 800)], DELTA)
    assert proved > 7.0
    full = epsilon_of({Noise(20.0, "client"): rounds}, DELTA)
    assert run.account.spent().of_noise == full > 2.0
    assert "K stays" in SelectiveShield.privacy_reading.neighbours


def test_a_target_is_not_overspent_on_who_is_seen_to_take_part():
    rounds = 100
    run = SteppedRun(shield(target_epsilon=1.0), clients=20, rounds=rounds, initial=origin())
    sigma = run.settings()["noise_multiplier"]
    for taken, most in ((10, 0.35), (rounds, 1.0)):
        assert epsilon_of({Noise(sigma, "client"): taken}, DELTA) <= most
        # No slack of an accountant: the exact delta of so many releases at epsilon 1.
        shift = math.sqrt(taken) / sigma
        exact = norm.cdf(shift / 2 - 1.0 / shift) - math.e * norm.cdf(-shift / 2 - 1.0 / shift)
        assert exact < DELTA
    # The measure is not blind: a quarter of the noise is too little, also for a client that is seen ten times.
    shift = math.sqrt(10) / (sigma / 4)
    assert norm.cdf(shift / 2 - 1.0 / shift) - math.e * norm.cdf(-shift / 2 - 1.0 / shift) > DELTA


def test_a_method_that_does_not_say_what_it_shows_is_refused(monkeypatch: pytest.MonkeyPatch):
    class Patched(FedAvg):
        """Sends everything in the clear, and says nothing of it."""

    offer(monkeypatch, "patched", Patched)
    config = RunConfig(clients=2, rounds=1, local_epochs=1, model="mlp", threads=1, min_clients=2)
    with pytest.raises(ParameterError, match="names"):
        run_methods(config, ["patched"])
    Patched.names = (NamedMethod("patched", "everything", "a test", "nowhere"),)
    with pytest.raises(ParameterError, match="privacy_reading"):
        run_methods(config, ["patched"])
    Patched.privacy_reading = FedAvg.privacy_reading
    with pytest.raises(ParameterError, match="aggregator_sees"):
        run_methods(config, ["patched"])
    # What it declares does not decide what a reader is told that it hides.
    Patched.aggregator_sees = "ciphertexts alone"
    result = run_methods(config, ["patched"])
    rows = {row.label: row.cells for row in summarise(result)[-1].rows}
    assert rows["hidden from the aggregator"] == ("nothing",)
    assert rows["ε"] == ("∞",)


def test_encryption_is_no_epsilon():
    run = SteppedRun(Variant("full-he", shield().settings, "full-he"), initial=origin(64))
    run.run_round()
    spent = run.account.spent()
    assert math.isnan(spent.epsilon)
    assert math.isnan(spent.of_noise)


def shielded_upload(draws: int, rounds: int, fails_first: bool = False) -> SteppedRun:
    """Uploads with noise, so many rounds of which the driver announced ``draws``; a step may fail and be repeated."""

    def train(round_number, client, start):
        return start.trained(
            start.parameters + np.float32(0.25), start.buffers, np.zeros(64, dtype=np.float32)
        )

    run = SteppedRun(
        shield(noise_multiplier=1.0, threshold=1.0, noise_distribution="discrete-gaussian"),
        initial=origin(64),
        train=train,
    )
    for client in run.clients if fails_first else ():
        client._noised_values = Interrupted(client._noised_values)
    for number in range(rounds):
        if number < draws:
            run.account.charge_draw(CLIENTS)
        run.run_round()
    return run


class Interrupted:
    """Fails the first time, as where the server stated a number of participants that no noise can be made for."""

    def __init__(self, make) -> None:
        self._make = make
        self._failed = False

    def __call__(self):
        if not self._failed:
            self._failed = True
            return self._repeat()
        return self._make()

    def _repeat(self):
        raise ParameterError("no grid fits")


def test_uploads_are_charged_whoever_announced_their_round():
    figures = [shielded_upload(draws, 5).account.spent().of_noise for draws in (0, 1, 5)]
    assert figures[0] == figures[1] == figures[2] > 0.0


def test_an_upload_that_was_made_again_is_recorded():
    run = shielded_upload(0, 0, fails_first=True)
    first = run.begin_round(1)
    client = run.clients[0]
    update = run._train(1, 0, client.begin_round(1, CLIENTS, first))
    client.finish_training(update)
    client.step("negotiate", None)
    zone = Message({"encrypted zone": Mask.empty(64).to_bytes()})
    with pytest.raises(ParameterError, match="no grid"):
        client.step("update", zone)
    assert not any(isinstance(event, NoisedUpload) for event in run.account.book.all)
    assert len(client.step("update", zone)["values"]) > 0
    assert sum(isinstance(event, NoisedUpload) for event in run.account.book.all) == 1
    assert run.account.spent().epsilon > 0.0
