"""Arrays that are one in memory, under how many names and frozen; models in parts, of which the whole comes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.models import ModelLayout, ModelParts


def tied():
    """Return a layout of one tensor under the names a and b, and of another, c."""
    one = torch.arange(3.0)
    return ModelLayout.of({"a": one, "b": one, "c": torch.zeros(2)})


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.other, self.last = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        self.last.weight = self.first.weight


def test_tensors_without_memory_are_shared_where_their_storage_is():
    with torch.device("meta"):
        model = Tied()
    for one in (model, model.state_dict(), dict(model.named_parameters(remove_duplicate=False))):
        assert ModelLayout.of(one).places == ModelLayout.of(Tied()).places
    # Not of the same dtype, shape or place within it.
    vector = torch.empty(4, device="meta")
    apart = {
        "a": vector,
        "b": vector[:2],
        "c": vector[2:],
        "d": vector.view(torch.int32),
        "e": vector.view(2, 2),
    }
    assert [name for name, _ in ModelLayout.of(apart).slices()] == ["a", "b", "c", "e"]


def test_tensors_without_memory_are_laid_out_and_neither_read_nor_written():
    with torch.device("meta"):
        model = Tied()
    layout = ModelLayout.of(model)
    loaded = Tied()
    for use in (
        lambda: layout.flatten(model),
        lambda: layout.replaced(model, np.zeros(layout.size)),
        lambda: layout.load(model, loaded.state_dict()),
        lambda: layout.load(loaded, model.state_dict()),
    ):
        with pytest.raises(sf.ArrayTypeError, match=r"'first\.weight' is a tensor on the device meta"):
            use()
    layout.load(loaded, layout.replaced(loaded, np.ones(layout.size)))
    assert bool((loaded.last.weight == 1).all())


CHANGED = {
    "values": (torch.ones(3), sf.ParameterError),
    "shape": (torch.zeros(4), sf.ParameterError),
    "integers": (torch.arange(3), sf.ArrayTypeError),
}


@pytest.mark.parametrize("what", CHANGED)
def test_other_names_of_a_tensor_are_checked_as_it_is(what):
    other, error = CHANGED[what]
    layout = tied()
    model = {"a": torch.arange(3.0), "b": other, "c": torch.zeros(2)}
    for use in (
        lambda: layout.flatten(model),
        lambda: layout.replaced(model, np.zeros(5)),
        lambda: layout.load({name: torch.zeros_like(one) for name, one in model.items()}, model),
    ):
        with pytest.raises(error, match="'b'") as refused:
            use()
        assert what != "values" or "'a'" in str(refused.value)


def test_names_of_one_tensor_may_be_arrays_of_their_own_with_the_same_values():
    layout = tied()
    model = {"a": torch.tensor([0.0, np.nan, 2.0]), "c": torch.zeros(2)}
    model["b"] = model["a"].double()
    assert layout.flatten(model).tolist()[3:] == [0.0, 0.0]
    arrays = layout.replaced(model, np.full(5, 7.0))
    assert arrays["a"].dtype == torch.float32
    assert arrays["b"].dtype == torch.float64
    assert arrays["b"].tolist() == [7.0] * 3


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_loading_writes_under_every_name(make):
    layout = tied()
    target = {"a": make(3), "b": make(3) + 5, "c": make(2)}
    layout.load(target, {"a": np.ones(3), "c": np.ones(2)})
    assert all(bool((one == 1).all()) for one in target.values())


def test_loading_into_a_tensor_that_the_layout_has_twice_needs_one_value():
    layout = ModelLayout.of({"a": torch.zeros(2), "b": torch.zeros(2)})
    one = torch.zeros(2)
    with pytest.raises(sf.ParameterError, match="'a' and 'b' are one tensor"):
        layout.load({"a": one, "b": one}, {"a": torch.ones(2), "b": torch.full((2,), 2.0)})
    assert not one.any()
    layout.load({"a": one, "b": one}, {"a": torch.ones(2), "b": torch.ones(2)})
    assert one.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("integers_first", [True, False])
def test_integers_in_the_memory_of_floats_are_not_the_same_array(integers_first):
    floats = np.ones(3, np.float32)
    both = {"n": floats.view(np.int32), "w": floats}
    layout = ModelLayout.of(both if integers_first else dict(reversed(both.items())))
    assert [name for name, _ in layout.slices()] == ["w"]
    assert layout.apart == ("n",)


def test_a_negated_view_has_the_values_that_it_shows():
    model = {"a": torch.ones(3), "b": torch._neg_view(torch.ones(3))}
    assert ModelLayout.of(model).flatten(model).tolist() == [1.0] * 3 + [-1.0] * 3


@pytest.mark.parametrize("frozen_first", [True, False])
def test_a_tensor_is_trained_where_it_is_under_one_of_its_names(frozen_first):
    memory = torch.zeros(3)
    both = {
        "frozen": nn.Parameter(memory, requires_grad=False),
        "trained": nn.Parameter(memory),
        "other": nn.Parameter(torch.zeros(2), requires_grad=False),
    }
    layout = ModelLayout.of(both if frozen_first else dict(reversed(both.items())), trainable_only=True)
    assert layout.size == 3
    assert layout.apart == ("other",)


def test_trainable_only_needs_parameters_that_know_whether_they_are():
    model = Tied()
    model.other.requires_grad_(False)
    # One parameter does not say what else is frozen.
    mixed = model.state_dict() | {"first.bias": model.first.bias}
    for one in (model.state_dict(), {"a": np.zeros(3)}, mixed):
        with pytest.raises(sf.ParameterError, match=r"dict\(model\.named_parameters\(\)\)"):
            ModelLayout.of(one, trainable_only=True)
    expected = ModelLayout.of(model, trainable_only=True).size
    assert ModelLayout.of(dict(model.named_parameters()), trainable_only=True).size == expected == 4 + 2 + 2


BASE = np.arange(12.0, dtype=np.float32)


class TiedTranspose(torch.nn.Module):
    """A decoder whose weight is the encoder's, turned."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(3, 2, bias=False)
        self.decoder = torch.nn.Linear(2, 3, bias=False)
        self.decoder.weight = torch.nn.Parameter(self.encoder.weight.data.t())


def turned():
    matrix = BASE.reshape(3, 4)
    return {"a": matrix, "b": matrix.T}


SHARED = {
    "a transpose": turned,
    "a transpose in torch": lambda: {name: torch.from_numpy(one) for name, one in turned().items()},
    "a module with a tied transpose": TiedTranspose,
    "overlapping views": lambda: {"a": BASE[:8], "b": BASE[4:]},
    "views within one that ends later": lambda: {"a": BASE[::3], "b": BASE[1:8], "c": BASE[7:9]},
    "bfloat16": lambda: {"a": (one := torch.zeros(4, 4, dtype=torch.bfloat16)), "b": one[1:]},
    "negated": lambda: {"a": (one := torch.ones(4)), "b": torch._neg_view(one)},
}
APART = {
    "columns of one matrix": lambda: {"a": BASE.reshape(3, 4)[:, 0], "b": BASE.reshape(3, 4)[:, 1:]},
    "halves": lambda: {"a": BASE[:6], "b": BASE[6:]},
    "odd and even": lambda: {"a": torch.from_numpy(BASE)[::2], "b": torch.from_numpy(BASE)[1::2]},
    "the same one": lambda: {"a": BASE, "b": BASE},
    "empty ones": lambda: {"a": BASE[4:4], "b": BASE},
    "on meta": lambda: {"a": torch.zeros(4, device="meta"), "b": torch.zeros(4, device="meta")},
}


@pytest.mark.parametrize("case", SHARED)
def test_they_are_refused_by_both_names(case):
    with pytest.raises(ParameterError, match=r"'.*' and '.*' have values in common in memory"):
        ModelLayout.of(SHARED[case]())


@pytest.mark.parametrize("case", APART)
def test_arrays_without_a_value_in_common_are_not(case):
    assert ModelLayout.of(APART[case]()).size


def test_what_is_left_out_may_share():
    layout = ModelLayout.of(turned(), exclude="b")
    layout.load(turned(), turned())


def test_nothing_is_loaded_into_them():
    """The values of one were lost, and nothing said so."""
    source = {"a": np.ones((3, 4), np.float32), "b": np.zeros((4, 3), np.float32)}
    layout, target = ModelLayout.of(source), turned()
    before = target["a"].copy()
    with pytest.raises(ParameterError, match="have values in common"):
        layout.load(target, source)
    with pytest.raises(ParameterError, match="have values in common"):
        ModelParts(layout, 5).load(target, [], adds=False)
    np.testing.assert_array_equal(target["a"], before)


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
