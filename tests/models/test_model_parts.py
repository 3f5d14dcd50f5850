"""Models in parts: what comes of all parts is what comes of the whole, by each scheme that knows parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shieldfl as sf
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.models import ModelLayout, ModelParts

CLIENTS = 3


def model_of(seed, scale=1.0):
    draw = np.random.default_rng(seed)
    return {
        "embed": torch.tensor(draw.normal(size=(7, 5)) * scale, dtype=torch.float32),
        "body": {"weight": draw.normal(size=(11, 3)) * scale, "steps": np.arange(3)},
        "half": torch.tensor(draw.normal(size=13) * scale, dtype=torch.bfloat16),
        "empty": np.zeros((0, 4), np.float32),
    }


LAYOUT = ModelLayout.of(model_of(0))
P = 35 + 33 + 13


def session(scheme):
    module = getattr(sf, scheme)
    authority = sf.KeyAuthority(module.Parameters(max_clients=4), min_clients=CLIENTS)
    return module, authority, [authority.enrol(f"client {number}") for number in range(CLIENTS)]


def opened_parts(scheme, parts, models, mask=None, **options):
    """All roles, part by part; yield each part's number and its opened sum."""
    module, authority, keys = session(scheme)
    made = [
        parts.encrypt(lambda part, key=key: module.Encryptor(key, part=part), model, mask, round=1, **options)
        for key, model in zip(keys, models, strict=True)
    ]
    for (number, positions), *batches in zip(parts.positions_of_each(mask), *made, strict=True):
        assert {number} == {other for other, _ in batches}
        aggregator = module.Aggregator(
            authority.public_key,
            round=1,
            part=number,
            positions=positions,
            weighted=False,
        )
        for _, batch in batches:
            aggregator.add(batch.to_bytes())
        total = aggregator.total()
        yield number, module.open(total, authority.sum_key(total.request()), keys[0])


@pytest.mark.parametrize("most", [1, 10, 35, 36, P, 1000])
def test_parts_cover_the_vector_once(most):
    parts = ModelParts(LAYOUT, most)
    assert len(parts) == -(-P // most)
    assert [parts.size(number) for number in range(len(parts))] == [
        min(most, P - start) for start in range(0, P, most)
    ]
    mask = LAYOUT.mask("half")
    each = dict(parts.positions_of_each(mask))
    assert all(positions.count for positions in each.values())
    assert sum(positions.count for positions in each.values()) == 13
    every = dict(parts.positions_of_each())
    assert every == {number: sf.Mask.full(parts.size(number)) for number in range(len(parts))}


@pytest.mark.parametrize("scheme", ["kahe", "pads"])
@pytest.mark.parametrize("most", [10, 36])
@pytest.mark.parametrize("masked", [False, True])
def test_a_model_in_parts_comes_to_what_the_whole_comes_to(scheme, most, masked):
    parts, mask = ModelParts(LAYOUT, most), LAYOUT.mask("body.*", "half") if masked else None
    models = [model_of(number) for number in range(1, CLIENTS + 1)]
    means = [(number, sums / CLIENTS) for number, sums in opened_parts(scheme, parts, models, mask)]
    # Rounded as the scheme does it, to 20 bits behind the point.
    vectors = [LAYOUT.flatten(model) for model in models]
    exact = sum(np.rint(vector * 2.0**20) for vector in vectors) / 2**20 / CLIENTS
    values = exact if mask is None else mask.gather(exact)
    for adds in (False, True):
        expected = (LAYOUT.moved if adds else LAYOUT.replaced)(model_of(0), values, mask)
        found = model_of(0)
        parts.load(found, reversed(means), mask, adds=adds)
        found = {"embed": found["embed"], "body.weight": found["body"]["weight"], "half": found["half"]}
        for name, array in found.items():
            np.testing.assert_array_equal(
                np.asarray(torch.as_tensor(array).double()),
                np.asarray(torch.as_tensor(expected[name]).double()),
            )


def test_updates_are_taken_in_parts_too():
    parts, start = ModelParts(LAYOUT, 10), model_of(0)
    trained = [model_of(number) for number in range(1, CLIENTS + 1)]
    found = np.concatenate([sums for _, sums in opened_parts("kahe", parts, trained, since=start)])
    vectors = [LAYOUT.flatten(model) - LAYOUT.flatten(start) for model in trained]
    np.testing.assert_allclose(found, np.sum(vectors, axis=0), atol=CLIENTS * 2**-20)


def test_files_that_are_mapped_are_read_and_written_in_place(tmp_path):
    values = np.arange(1000, dtype=np.float32) / 1000
    np.save(tmp_path / "weights.npy", values)
    layout = ModelLayout.of({"weights": np.load(tmp_path / "weights.npy", mmap_mode="r")})
    parts = ModelParts(layout, 300)
    models = [{"weights": np.load(tmp_path / "weights.npy", mmap_mode="r")}] * CLIENTS
    target = np.lib.format.open_memmap(tmp_path / "new.npy", mode="w+", dtype=np.float32, shape=(1000,))
    parts.load({"weights": target}, opened_parts("kahe", parts, models), adds=False)
    target.flush()
    np.testing.assert_allclose(np.load(tmp_path / "new.npy"), CLIENTS * values, atol=CLIENTS * 2**-20)
    with pytest.raises(ParameterError, match="read-only"):
        parts.load(models[0], [], adds=False)


def test_a_tensor_under_several_names_is_written_under_all():
    shared = np.zeros(6, np.float32)
    layout = ModelLayout.of({"a": shared, "b": shared})
    apart = {"a": np.zeros(6, np.float32), "b": np.ones(6, np.float32)}
    ModelParts(layout, 4).load(apart, [(0, np.full(4, 2.0)), (1, np.full(2, 3.0))], adds=False)
    for one in apart.values():
        np.testing.assert_array_equal(one, [2, 2, 2, 2, 3, 3])
    ModelParts(layout, 4).load({"a": shared, "b": shared}, [(0, np.ones(4)), (1, np.ones(2))], adds=True)
    np.testing.assert_array_equal(shared, np.ones(6))


def whole(parts):
    return [(number, np.zeros(parts.size(number))) for number in range(len(parts))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: parts[:-1], "part 8 is missing, of 1"),
        (lambda parts: [*parts, parts[0]], "part 0 came twice"),
        (lambda parts: [(9, parts[0][1])], "there is none such"),
        (lambda parts: [(0, parts[0][1][:-1])], "expected 10 decrypted floats"),
        (lambda parts: [(0, parts[0][1].astype(int))], "expected 10 decrypted floats"),
        (lambda parts: [(0, parts[0][1].tolist())], "expected 10 decrypted floats"),
    ],
)
def test_parts_that_are_not_those_of_one_model_are_refused(change, words):
    parts = ModelParts(LAYOUT, 10)
    with pytest.raises(ParameterError, match=words):
        parts.load(model_of(0), change(whole(parts)), adds=False)


def test_what_cannot_be_written_piece_by_piece_is_refused_before_anything_is():
    layout = ModelLayout.of({"a": np.zeros((2, 3)), "b": np.zeros((3, 2))})
    target = {"a": np.ones((2, 3)), "b": np.zeros((2, 3)).T}
    with pytest.raises(ParameterError, match="'b' does not lie in memory in its order"):
        ModelParts(layout, 4).load(target, [(0, np.zeros(4))], adds=False)
    assert target["a"].all()
    with pytest.raises(ParameterError, match="'b' does not lie"):
        ModelParts(layout, 4).load({"a": torch.ones(2, 3), "b": torch.zeros(2, 3).T}, [], adds=False)


def test_errors_name_the_tensor():
    parts, (module, _, keys) = ModelParts(LAYOUT, 10), session("kahe")
    model = model_of(1)
    model["body"]["weight"][1, 0] = np.nan
    with pytest.raises(RangeError, match=r"body\.weight"):
        list(parts.encrypt(lambda part: module.Encryptor(keys[0], part=part), model, round=1))
    narrow = ModelLayout.of({"a": np.zeros(4, np.float32)})
    with pytest.raises(RangeError, match="'a' has a value"):
        list(ModelParts(narrow, 3).encrypt(lambda part: None, {"a": np.full(4, 1e300)}))


@pytest.mark.parametrize("most", [0, -1, 1.5])
def test_a_part_has_at_least_one_value(most):
    with pytest.raises(ParameterError, match="most_values must"):
        ModelParts(LAYOUT, most)


def test_parts_and_masks_that_there_are_not_are_refused():
    parts = ModelParts(LAYOUT, 10)
    for number in (-1, 9, 1.0, "0"):
        with pytest.raises(ParameterError, match=r"there is no part|a part's number"):
            parts.size(number)
    with pytest.raises(ParameterError, match="the mask is one of 5 positions"):
        list(parts.positions_of_each(sf.Mask.full(5)))
    with pytest.raises(ArrayTypeError, match="from_bool"):
        list(parts.positions_of_each(np.ones(P, bool)))
