"""Private synthetic data: what it keeps, what it costs, what noise it gets; and the checks on a user's own."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shieldfl.errors import ArrayTypeError, DataError, ParameterError, RangeError
from shieldfl.privacy import synthetic_data
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.synthetic_data import (
    SyntheticData,
    check_labelled_samples,
    fit_synthetic_data,
    load_labelled_samples,
)

SHAPE, CLASSES = (1, 3, 4), 4
WIDE = (torch.tensor(-4.0), torch.tensor(4.0))
WRONG_RANGES = ((1.0, 1.0), (0.0, math.inf), (-3e38, 3e38), ([0.0, 0.0], [1.0, 1.0]))


def samples(count: int, labels: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, *SHAPE, generator=torch.Generator().manual_seed(99))
    if labels is None:
        labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return centres[labels] + 0.3 * torch.randn(len(labels), *SHAPE, generator=generator), labels


def fit(features: torch.Tensor, labels: torch.Tensor, **changed: Any) -> SyntheticData:
    arguments: dict[str, Any] = {
        "feature_range": WIDE,
        "epsilon": 1.0,
        "delta": 1e-5,
        "samples": 400,
        "seed": 3,
        "fourier_features": 100,
        "steps": 100,
    }
    return fit_synthetic_data(features, labels, CLASSES, **(arguments | changed))


def test_synthetic_classes_lie_where_the_real_ones_do() -> None:
    features, labels = samples(4000)
    made = fit(features, labels)
    check_labelled_samples(made.features, made.labels, SHAPE, CLASSES)
    assert len(made.features) == 400
    real_means = torch.stack([features[labels == c].mean(dim=0) for c in range(CLASSES)])
    distances = torch.cdist(made.features.flatten(1), real_means.flatten(1))
    assert float((distances.argmin(dim=1) == made.labels).float().mean()) > 0.9


def test_synthetic_samples_keep_to_the_range_that_real_ones_can_have() -> None:
    lowest = torch.tensor([-1.0, -2.0, -3.0]).view(1, 3, 1)
    features, labels = samples(400)
    made = fit(features, labels, feature_range=(lowest, -lowest), samples=2000)
    assert bool((made.features >= lowest).all() and (made.features <= -lowest).all())
    # Each has its own: the first is too narrow for some classes' centres, so that samples lie at its end.
    reached = (made.features / lowest).abs().amax(dim=(0, 1, 3))
    assert float(reached[0]) > 0.9
    assert float(-lowest[0, 2, 0] * reached[2]) > 1.0


def test_classes_come_in_their_shares_and_absent_ones_never() -> None:
    features, labels = samples(0, torch.tensor([0] * 3000 + [2] * 1000))
    made = fit(features, labels, samples=2000, steps=1)
    shares = torch.bincount(made.labels, minlength=CLASSES) / 2000
    assert shares.tolist() == [pytest.approx(0.75, abs=0.08), 0.0, pytest.approx(0.25, abs=0.08), 0.0]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 20), st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_one_sample_more_moves_what_is_released_by_the_sensitivity_at_most(
    seed: int, others: int, scale: float, multiplier: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = scale * torch.randn(others + 1, 6, generator=generator)
    labels = torch.randint(0, CLASSES, (others + 1,), generator=generator)
    frequencies = torch.randn(6, 50, generator=generator)
    grid = synthetic_data._Grid.choose(multiplier, 100)
    with_it = synthetic_data._class_sums(features, labels, CLASSES, frequencies, grid)
    without = synthetic_data._class_sums(features[1:], labels[1:], CLASSES, frequencies, grid)
    # In integers: exactly.
    moved = int((with_it - without).square().sum())
    assert moved <= (grid.sensitivity * 2**grid.fraction_bits) ** 2
    assert math.sqrt(moved) * 2.0**-grid.fraction_bits == pytest.approx(math.sqrt(2), rel=0.3)
    assert grid.sensitivity == pytest.approx(math.sqrt(2), rel=1e-4) or multiplier > 10.0


def test_more_samples_than_can_be_summed_exactly_are_refused() -> None:
    count = 2**23
    features, labels = torch.zeros(1, 1).expand(count, 1), torch.zeros(1, dtype=torch.int64).expand(count)
    with pytest.raises(ParameterError, match="at most 8,388,607 samples"):
        fit(features, labels)


def test_everything_released_is_noised_once_for_the_stated_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def record(vector: np.ndarray, norm: float, deviation: float, fraction_bits: int) -> Any:
        calls.append((vector, deviation, fraction_bits))
        return np.full(vector.shape, 5000.0), 0.0, False

    sums_of = synthetic_data._class_sums
    summed = []

    def sum_up(*arguments: Any) -> torch.Tensor:
        summed.append(sums_of(*arguments))
        return torch.zeros_like(summed[-1])

    monkeypatch.setattr(synthetic_data, "_class_sums", sum_up)
    monkeypatch.setattr(synthetic_data, "discrete_gaussian_noise", record)
    features, labels = samples(500)
    made = fit(features, labels, epsilon=2.0, delta=1e-4, steps=1)
    multiplier = noise_multiplier_for(2.0, 1e-4, 1)
    assert (made.epsilon, made.delta, made.noise_multiplier) == (2.0, 1e-4, multiplier)
    [(vector, deviation, fraction_bits)] = calls
    grid = synthetic_data._Grid.choose(multiplier, 100)
    assert (deviation, fraction_bits) == (multiplier * grid.sensitivity, grid.fraction_bits)
    assert vector.shape == (CLASSES * 101,)
    assert summed[0].shape == (CLASSES, 101)
    assert summed[0].dtype == torch.int64
    assert (summed[0][:, -1] >> fraction_bits).tolist() == torch.bincount(labels).tolist()
    # The real samples reach the result through those sums only, to which the noise is added.
    other = fit(*samples(0, torch.zeros(50, dtype=torch.int64)), epsilon=2.0, delta=1e-4, steps=1)
    assert torch.equal(other.features, made.features)
    assert torch.equal(other.labels, made.labels)


def test_noise_follows_no_seed_and_torchs_generator_is_left_alone() -> None:
    features, labels = samples(2000)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second = fit(features, labels, steps=2), fit(features, labels, steps=2)
    assert not torch.equal(first.features, second.features)
    assert torch.equal(torch.get_rng_state(), before)


def test_classes_that_the_noise_hides_are_an_error() -> None:
    with pytest.raises(DataError, match="0 to 3"):
        fit(samples(20)[0], samples(20)[1] + 1)
    with pytest.raises(RangeError, match="larger epsilon"):
        fit(*samples(4))  # more, and noise lifts one over the bound once in some hundred runs
    assert set(fit(*samples(40), epsilon=1e4, steps=1).labels.tolist()) <= set(range(CLASSES))


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"samples": 0},
        {"steps": 0},
        {"fourier_features": 0},
        {"fourier_features": 7},
        *({"feature_range": tuple(map(torch.tensor, pair))} for pair in WRONG_RANGES),
    ],
)
def test_impossible_settings_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        fit(*samples(20), **changed)


FEATURES = torch.zeros(5, *SHAPE)
LABELS = torch.tensor([0, 1, 2, 3, 0])


def poisoned(value: float) -> torch.Tensor:
    features = FEATURES.clone()
    features[2, 0, 1, 1] = value
    return features


@pytest.mark.parametrize(
    ("features", "labels", "classes", "error", "message"),
    [
        (FEATURES.double(), LABELS, CLASSES, ArrayTypeError, "float32"),
        (FEATURES, LABELS.int(), CLASSES, ArrayTypeError, "int64"),
        (FEATURES, LABELS.float(), CLASSES, ArrayTypeError, "int64"),
        (FEATURES.flatten(1), LABELS, CLASSES, ParameterError, r"sample of shape \(1, 3, 4\)"),
        (FEATURES.transpose(2, 3), LABELS, CLASSES, ParameterError, r"sample of shape \(1, 3, 4\)"),
        (torch.tensor(0.0), LABELS, CLASSES, ParameterError, r"sample of shape \(1, 3, 4\)"),
        (FEATURES[:0], LABELS[:0], CLASSES, ParameterError, "at least 1 sample"),
        (FEATURES, LABELS[:4], CLASSES, ParameterError, "label for each"),
        (FEATURES, LABELS[:, None], CLASSES, ParameterError, "label for each"),
        (poisoned(math.nan), LABELS, CLASSES, DataError, "NaN"),
        (poisoned(-math.inf), LABELS, CLASSES, DataError, "NaN"),
        (FEATURES, LABELS, 3, DataError, "0 to 2"),
        (FEATURES, LABELS - 1, CLASSES, DataError, "0 to 3"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    features: torch.Tensor, labels: torch.Tensor, classes: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_labelled_samples(features, labels, SHAPE, classes)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int16, ">i4"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_was_saved_is_what_is_loaded(tmp_path: Path, save: Any, dtype: Any) -> None:
    path = tmp_path / "mine.npz"
    save(path, features=FEATURES.numpy(), labels=LABELS.numpy().astype(dtype), more=np.ones(2))
    features, labels = load_labelled_samples(path)
    assert torch.equal(features, FEATURES)
    assert labels.dtype == torch.int64
    assert torch.equal(labels, LABELS)


def test_labels_beyond_int64_stay_out_of_range(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, features=FEATURES.numpy(), labels=np.full(5, 2**64 - 1, dtype=np.uint64))
    with pytest.raises(DataError, match="0 to 3"):
        check_labelled_samples(*load_labelled_samples(path), SHAPE, CLASSES)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"labels": None}, DataError, "no archive of plain"),
        ({"features": None}, DataError, "no archive of plain"),
        ({"features": FEATURES.double().numpy()}, ArrayTypeError, "float64 features"),
        ({"features": FEATURES.numpy().astype(">f4")}, ArrayTypeError, "write float32"),
        ({"labels": LABELS.float().numpy()}, ArrayTypeError, "float32 labels"),
        ({"labels": np.array([None] * 5)}, DataError, "plain arrays"),
    ],
)
def test_an_archive_of_other_arrays_is_refused(
    tmp_path: Path, arrays: dict[str, Any], error: type[Exception], message: str
) -> None:
    path, given = tmp_path / "mine.npz", {"features": FEATURES.numpy(), "labels": LABELS.numpy()} | arrays
    np.savez(path, **{name: array for name, array in given.items() if array is not None})
    with pytest.raises(error, match=message):
        load_labelled_samples(path)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npz"
    np.savez(whole, features=FEATURES.numpy(), labels=LABELS.numpy())
    content = whole.read_bytes()
    np.save(tmp_path / "single.npy", FEATURES.numpy())
    single = (tmp_path / "single.npy").read_bytes()
    # Headers are parsed as Python, and say how much memory an array takes.
    for header in ("'shape': (99999999999999999999999,)}", "'shape': (5,", "'shape': (4611686018427387,)}"):
        text = f"{{'descr': '<f4', 'fortran_order': False, {header}".encode()
        with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
            archive.writestr("features.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
        with pytest.raises(DataError, match="is damaged, or no archive"):
            load_labelled_samples(tmp_path / "bad.npz")
    for bad in (b"", b"text", content[: len(content) // 2], content[:300] + content[310:], single):
        (tmp_path / "bad.npz").write_bytes(bad)
        with pytest.raises(DataError, match=r"cannot be read: [\w ]+$|numpy.savez\(.*\)$"):
            load_labelled_samples(tmp_path / "bad.npz")
    for path, why in ((tmp_path / "missing.npz", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DataError, match=why):
            load_labelled_samples(path)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_archive_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "mine.npz"
    np.savez_compressed(path, features=FEATURES.numpy(), labels=LABELS.numpy())
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        features, labels = load_labelled_samples(path)
    except (DataError, ArrayTypeError):
        return
    assert features.dtype == torch.float32
    assert labels.dtype == torch.int64


@pytest.mark.parametrize("place", [0, 1500, 199_999])
def test_the_sensitivity_is_the_same_among_very_many_samples(place: int) -> None:
    """Sums of about 140,000, where float32 has steps of 2^-6."""
    generator = torch.Generator().manual_seed(place)
    features = torch.randn(200_000, 2, generator=generator)
    frequencies = torch.randn(2, 2, generator=generator) / 8
    labels = torch.zeros(len(features), dtype=torch.int64)
    grid = synthetic_data._Grid.choose(4.0, 2)
    with_it = synthetic_data._class_sums(features, labels, 1, frequencies, grid)
    rest = torch.cat([features[:place], features[place + 1 :]])
    moved = with_it - synthetic_data._class_sums(rest, labels[1:], 1, frequencies, grid)
    assert with_it.abs().max() == len(features) * 2**grid.fraction_bits
    norm = math.sqrt(int(moved.square().sum())) * 2.0**-grid.fraction_bits
    assert norm == pytest.approx(math.sqrt(2), rel=1e-5)
    assert norm <= grid.sensitivity


def test_the_grid_follows_from_public_numbers_and_a_contribution_that_is_too_long_is_left_out() -> None:
    grid = synthetic_data._Grid.choose(4.0, 100)
    assert grid.fraction_bits == 20
    longest = torch.zeros(2, 101, dtype=torch.float64)
    longest[0, :2] = 1.0
    longest[1, :2] = 1.001
    rounded = grid.round(longest)
    assert rounded[0, :2].tolist() == [2**20, 2**20]
    assert not bool(rounded[1].any())
    # Noise of a wider deviation has wider steps, so that it can be drawn.
    wide = synthetic_data._Grid.choose(400.0, 100)
    assert 2**22 < 400.0 * wide.sensitivity * 2**wide.fraction_bits <= 2**24
    assert wide.sensitivity > grid.sensitivity
    step = 2.0**-wide.fraction_bits
    assert wide.sensitivity == pytest.approx(math.sqrt(2) + math.sqrt(100) * step / 2.0, abs=step / 10.0)
    with pytest.raises(ParameterError, match="larger one"):
        synthetic_data._Grid.choose(1e8, 100)
