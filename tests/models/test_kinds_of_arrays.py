"""What models hold: it is read, kept apart bit for bit, rounded once where it is encrypted, or refused by its name."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.models import ModelLayout


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", "<f4"])
def test_either_byte_order_is_read_and_kept(dtype):
    model = {"w": np.array([1.5, -2.0], dtype), "n": np.array([7], ">i4")}
    layout = ModelLayout.of(model)
    assert (
        layout.digest
        == ModelLayout.of({"w": np.zeros(2, np.dtype(dtype).newbyteorder("=")), "n": 0 * model["n"]}).digest
    )
    assert layout.flatten(model).dtype.isnative
    assert layout.flatten(model).tolist() == [1.5, -2.0]
    arrays = layout.moved(model, np.ones(2))
    assert arrays["w"].dtype == np.dtype(dtype)
    assert arrays["w"].tolist() == [2.5, -1.0]
    layout.load(model, {"w": torch.tensor([3.0, 4.0])})
    assert model["w"].tolist() == [3.0, 4.0]
    target = {"w": torch.zeros(2)}
    layout.load(target, arrays)
    assert target["w"].tolist() == [2.5, -1.0]


REFUSED = {
    "objects": lambda: np.array([1.0, None]),
    "texts": lambda: np.array(["1.0"]),
    "dates": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "records": lambda: np.zeros(2, "f4,f4"),
    "long": lambda: np.zeros(2, np.longdouble),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "compressed": lambda: torch.eye(2).to_sparse_csr(),
    "lazy": lambda: nn.LazyLinear(3).weight,
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_plain_array_of_floats_is_refused_by_its_name(what):
    model = {"good": np.zeros(3, np.float32), "bad": REFUSED[what]()}
    with pytest.raises(sf.ArrayTypeError, match="'bad' is "):
        ModelLayout.of(model)
    layout = ModelLayout.of(model, exclude="bad")
    arrays = layout.replaced(model, np.ones(3))
    assert type(arrays["bad"]) is type(model["bad"])
    assert arrays["bad"] is not model["bad"]
    with pytest.raises(sf.ArrayTypeError, match="'bad' is "):
        ModelLayout.of({"good": np.zeros(3), "bad": np.zeros((2, 2))}).flatten(model)


def test_a_tensor_whose_values_are_elsewhere_is_refused_by_its_name():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(2)
    with pytest.raises(sf.ArrayTypeError, match="'a' is a FakeTensor"):
        ModelLayout.of({"a": fake})
    assert ModelLayout.of({"a": fake, "b": torch.zeros(3)}, exclude="a").size == 3


class WithExtraState(nn.Module):
    def __init__(self, extra):
        super().__init__()
        self.inner = nn.Linear(2, 1)
        self.extra = extra

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


@pytest.mark.parametrize("extra", [{"scale": torch.ones(2)}, b"state", None], ids=["dict", "bytes", "none"])
def test_extra_state_of_a_module_is_passed_through(extra):
    model = nn.Sequential(WithExtraState(extra))
    layout = ModelLayout.of(model)
    assert layout.apart == ("0._extra_state",)
    assert ModelLayout.of(model.state_dict()) == layout
    assert layout.size == layout.flatten(model).size == 3
    for arrays in (layout.replaced(model, np.ones(3)), layout.replaced(model.state_dict(), np.ones(3))):
        assert str(arrays["0._extra_state"]) == str(extra)
        model.load_state_dict(arrays)
    layout.load(model, arrays)
    assert model[0].inner.bias.tolist() == [1.0]
    with pytest.raises(sf.ArrayTypeError, match=r"'0\.state' is a bytes"):
        ModelLayout.of({"0": {"state": b"state", "w": np.zeros(2)}})


def test_other_values_of_a_state_dict_are_refused_by_their_name():
    model = nn.Linear(2, 1)
    model.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.update(version=3))
    with pytest.raises(sf.ArrayTypeError, match="'version' is a int"):
        ModelLayout.of(model)


def test_negated_and_reversed_views_are_read_written_and_loaded():
    numbers = np.arange(4.0, dtype=np.float32)
    model = {"a": torch.zeros(2, dtype=torch.complex64).conj().imag, "b": numbers[::-1]}
    assert model["a"].is_neg()
    layout = ModelLayout.of(model)
    assert layout.flatten(model).tolist() == [0.0, 0.0, 3.0, 2.0, 1.0, 0.0]
    arrays = layout.replaced(model, np.arange(6.0))
    assert arrays["a"].tolist() == [0.0, 1.0]
    layout.load(model, arrays)
    assert model["a"].tolist() == [0.0, 1.0]
    assert numbers.tolist() == [5.0, 4.0, 3.0, 2.0]
    tensors = {"a": torch.zeros(2), "b": torch.zeros(4)}
    layout.load(tensors, model)
    assert tensors["b"].tolist() == [2.0, 3.0, 4.0, 5.0]


def read_only():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    return array


UNWRITABLE = {
    "read-only": read_only,
    "broadcast": lambda: np.broadcast_to(np.float32(0), (3,)),
    "repeated": lambda: np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3,), (0,)),
    "expanded": lambda: torch.zeros(1).expand(3),
}


@pytest.mark.parametrize("what", UNWRITABLE)
def test_nothing_is_loaded_where_one_array_cannot_be_written(what):
    layout = ModelLayout.of({"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)})
    target = {"a": np.zeros(2, np.float32), "b": UNWRITABLE[what]()}
    with pytest.raises(sf.ParameterError, match="'b' cannot be written"):
        layout.load(target, {"a": np.ones(2, np.float32), "b": np.ones(3, np.float32)})
    assert not target["a"].any()
    assert layout.flatten(target).size == 5  # it can be read


def test_an_array_in_the_place_of_a_mask_is_refused():
    model = {"a": torch.zeros(3)}
    layout = ModelLayout.of(model)
    chosen = np.array([True, False, True])
    authority = sf.KeyAuthority(sf.ckks.Parameters())
    for use in (
        lambda: layout.encrypt(sf.ckks.Encryptor(authority.public_key), model, chosen),
        lambda: layout.replaced(model, np.zeros(2), chosen),
        lambda: layout.moved(model, np.zeros(2), torch.from_numpy(chosen)),
    ):
        with pytest.raises(sf.ParameterError, match=r"Mask\.from_bool"):
            use()


# A quiet and a signalling NaN with payloads, the smallest number, minus zero, and bits of all significant places.
BITS = {
    "float16": [0x7E5A, 0x7D01, 1, 0x8000, 0x3555],
    "bfloat16": [0x7FD5, 0x7FA1, 1, 0x8000, 0x3EAB],
    "float32": [0x7FC12345, 0x7FA00001, 1, 0x80000000, 0x3EAAAAAB],
    "float64": [0x7FF8123456789ABC, 0x7FF0000000000001, 1, 0x8000000000000000, 0x3FD5555555555555],
}


def integers_of(dtype):
    return {"float32": np.int32, "float64": np.int64}.get(dtype, np.int16)


def bits_of(array):
    if isinstance(array, torch.Tensor):
        kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[array.element_size()]
        return array.view(kind).numpy().tolist()
    return array.view(integers_of(array.dtype.name)).tolist()


def from_bits(dtype, tensors):
    unsigned = np.array(BITS[dtype], integers_of(dtype).__name__.replace("int", "uint"))
    integers = unsigned.view(integers_of(dtype))
    if tensors:
        return torch.from_numpy(integers).view(getattr(torch, dtype))
    return integers.view(dtype)


@pytest.mark.parametrize("ranges", [None, {"w": 1e4}], ids=["as it is", "scaled"])
@pytest.mark.parametrize(
    ("dtype", "tensors"),
    [(dtype, tensors) for dtype in BITS for tensors in (True, False) if tensors or dtype != "bfloat16"],
)
def test_what_a_mask_did_not_choose_stays_bit_for_bit(dtype, tensors, ranges):
    model = {"w": from_bits(dtype, tensors), "other": from_bits(dtype, tensors)}
    layout = ModelLayout.of(model, ranges=ranges)
    before = bits_of(model["w"])
    mask = sf.Mask.from_indices([1, 4], layout.size)
    for arrays in (
        layout.replaced(model, np.array([1.0, -2.0]), mask),
        layout.moved(model, np.array([1.0, -2.0]), mask),
    ):
        after, zeros_like = bits_of(arrays["w"]), torch.zeros_like if tensors else np.zeros_like
        assert [after[place] for place in (0, 2, 3)] == [before[place] for place in (0, 2, 3)]
        assert after[4] != before[4]
        assert bits_of(arrays["other"]) == bits_of(model["other"])
        assert arrays["other"] is not model["other"]
        # Loading moves bits too.
        target = {name: zeros_like(one) for name, one in model.items()}
        layout.load(target, arrays)
        assert [bits_of(target[name]) for name in target] == [bits_of(arrays[name]) for name in target]
    assert bits_of(model["w"]) == before


def test_wide_arrays_keep_their_places_in_a_model_that_is_encrypted_as_narrow_ones():
    layout = ModelLayout.of({"w": torch.zeros(3)})
    wide = {"w": torch.tensor([1 / 3, 1e300, 1 / 3], dtype=torch.float64)}
    arrays = layout.moved(wide, np.array([2.0**-40]), sf.Mask.from_indices([2], 3))
    assert arrays["w"].tolist() == [1 / 3, 1e300, 1 / 3 + 2.0**-40]
    assert layout.replaced(wide, np.array([0.1, 0.2, 0.3]))["w"].tolist() == [0.1, 0.2, 0.3]


class Kept:
    """An encryptor that hands back what it is given, as one vector."""

    def encrypt(self, pieces, mask):
        return np.concatenate(pieces)


@pytest.mark.parametrize("ranges", [None, {"w": 1e4}], ids=["as it is", "scaled"])
@pytest.mark.parametrize("wide", ["before", "after", "both"])
def test_small_updates_of_large_values_are_not_rounded_away(wide, ranges):
    before, after = np.full(3, 1000.0), np.full(3, 1000.0 + 2.0**-30)
    if wide == "before":
        before, after = after, before.astype(np.float32)
    elif wide == "after":
        before = before.astype(np.float32)
    layout = ModelLayout.of({"w": np.zeros(3, np.float32)}, ranges=ranges)
    update = layout.encrypt(Kept(), {"w": after}, since={"w": before})
    assert update.dtype == np.float32
    scale = 2.0 ** layout.places[0].exponent
    assert (update * scale).tolist() == [(-1 if wide == "before" else 1) * 2.0**-30] * 3


@pytest.mark.parametrize("ranges", [None, {"w": 1e4}], ids=["as it is", "scaled"])
def test_a_value_that_the_vector_cannot_hold_is_refused_by_its_name(ranges):
    layout = ModelLayout.of({"a": np.zeros(2, np.float32), "w": np.zeros(2, np.float32)}, ranges=ranges)
    model = {"a": np.zeros(2), "w": np.array([0.0, 1e300])}
    with pytest.raises(sf.RangeError, match="'w'"):
        layout.flatten(model)
    with pytest.raises(sf.RangeError, match="'w'"):
        layout.encrypt(Kept(), {"a": np.zeros(2), "w": np.zeros(2)}, since=model)
    # What is not finite is for the encryptor to refuse, which knows the mask.
    model["w"] = np.array([np.inf, np.nan])
    assert str(layout.flatten(model)[2:]) == "[inf nan]"
    assert str(layout.encrypt(Kept(), model, since=model)[2:]) == "[nan nan]"


def test_decrypted_values_beyond_a_narrow_dtype_become_infinite_without_a_warning():
    for model in ({"w": np.zeros(1, np.float16)}, {"w": torch.zeros(1, dtype=torch.float16)}):
        layout = ModelLayout.of(model, ranges={"w": 1e6})
        for value in (7.0, 1e308):
            assert np.isinf(np.asarray(layout.replaced(model, np.array([value]))["w"])).all()


class Everything(WithExtraState):
    """A model with all that stays apart: a count, a frozen layer, and extra state that is no array."""

    def __init__(self):
        super().__init__({"seen": [1]})
        self.norm, self.frozen = nn.BatchNorm1d(2), nn.Linear(2, 2).requires_grad_(False)
        self.tied = self.frozen


@pytest.mark.parametrize("change", ["moved", "replaced"])
def test_nothing_that_comes_back_shares_memory_with_the_model(change):
    model = Everything()
    layout = ModelLayout.of(model, trainable_only=True)
    assert {"norm.num_batches_tracked", "frozen.weight", "_extra_state"} <= set(layout.apart)
    before = copy.deepcopy(model.state_dict())
    arrays = getattr(layout, change)(model, np.ones(layout.size))
    assert list(arrays) == list(before)
    assert arrays["tied.weight"] is arrays["frozen.weight"]
    for array in arrays.values():
        if isinstance(array, torch.Tensor):
            array.fill_(7)
    arrays["_extra_state"]["seen"].append(2)
    extra = before.pop("_extra_state")
    assert model.extra == extra
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items() if name in before)
    plain = {"w": np.zeros(2, np.float32), "n": np.array([3])}
    getattr(ModelLayout.of(plain), change)(plain, np.ones(2))["n"][0] = 9
    assert plain["n"].tolist() == [3]
