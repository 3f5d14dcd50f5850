"""What models hold beside plain floats: it is read, kept apart, or refused by its name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.torch import ModelLayout


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
