"""The flat vector has exactly the model's parameters, in order, and goes back; tensors go in without a copy."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.array_view import as_pieces, as_update
from shieldfl.errors import ArrayTypeError, ParameterError
from shieldfl.models.torch_bridge import (
    flatten,
    flatten_buffers,
    load_flat,
    load_flat_buffers,
    parameter_layout,
)


def batch_norm_model() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 3, kernel_size=3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))


def test_layout_lists_parameters_in_their_order() -> None:
    layout = parameter_layout(batch_norm_model())
    assert layout.names == ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")
    assert layout.shapes == ((3, 2, 3, 3), (3,), (3,), (3,), (4, 12), (4,))
    assert layout.offsets == (0, 54, 57, 60, 63, 111, 115)
    assert layout.size == 115


def test_positions_have_the_names_and_values_of_their_tensors() -> None:
    model = batch_norm_model()
    layout, vector, parameters = parameter_layout(model), flatten(model), dict(model.named_parameters())
    for name, piece in layout.slices():
        assert {layout.name_of(piece.start), layout.name_of(piece.stop - 1)} == {name}
        np.testing.assert_array_equal(vector[piece], parameters.pop(name).detach().numpy().ravel())
    assert not parameters
    for outside in (-1, layout.size):
        with pytest.raises(ParameterError, match="outside"):
            layout.name_of(outside)


@pytest.mark.parametrize("bad", [float("nan"), 1e9])
def test_a_range_error_names_the_tensor(bad: float) -> None:
    model = batch_norm_model()
    with torch.no_grad():
        model[3].bias[1] = bad
    layout, update = parameter_layout(model), flatten(model)
    encryptor = sf.ckks.Encryptor(sf.KeyAuthority(sf.ckks.Parameters(), min_clients=1).public_key)
    with (
        pytest.raises(sf.RangeError, match=r"position 112 .*\(the tensor '3\.bias'\)$") as caught,
        layout.naming_tensors(),
    ):
        encryptor.encrypt(update)
    assert (caught.value.position, caught.value.size) == (112, 115)
    with pytest.raises(sf.RangeError) as caught, layout.naming_tensors():
        encryptor.encrypt(update[1:])
    assert "tensor" not in str(caught.value)


def test_round_trip_restores_every_bit() -> None:
    source, target = batch_norm_model(), batch_norm_model()
    with torch.no_grad():
        source[3].bias.copy_(torch.tensor([float("nan"), float("inf"), -0.0, 1e-42]))
    load_flat(target, flatten(source))
    assert flatten(target).tobytes() == flatten(source).tobytes()


def test_non_contiguous_parameters_keep_their_logical_order() -> None:
    model = nn.Conv2d(3, 4, kernel_size=3)
    expected = flatten(model)
    model = model.to(memory_format=torch.channels_last)
    assert not model.weight.is_contiguous()
    np.testing.assert_array_equal(flatten(model), expected)
    load_flat(model, expected + 1)
    np.testing.assert_array_equal(flatten(model), expected + 1)


def test_vectors_are_copied_both_ways_into_the_tensors_that_an_optimizer_holds() -> None:
    model = nn.Linear(2, 3)
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    vector = np.arange(9, dtype=np.float32)
    vector.flags.writeable = False
    load_flat(model, vector)
    flat = flatten(model)
    with torch.no_grad():
        model.weight.add_(1.0)
    np.testing.assert_array_equal(vector, np.arange(9))
    np.testing.assert_array_equal(flat, vector)
    assert [parameter.data_ptr() for parameter in model.parameters()] == pointers


def test_tied_parameters_appear_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert parameter_layout(model).names == ("0.weight", "0.bias", "1.bias")
    assert flatten(model).size == 24


def test_a_model_without_parameters_is_refused() -> None:
    for call in (parameter_layout, flatten, lambda m: load_flat(m, np.zeros(0, dtype=np.float32))):
        with pytest.raises(ParameterError, match="no parameters"):
            call(nn.ReLU())


def test_other_dtypes_are_refused_by_name() -> None:
    with pytest.raises(ArrayTypeError, match=r"'bias'|'weight'.*float64"):
        flatten(nn.Linear(2, 2).double())


@pytest.mark.parametrize(
    ("vector", "error"),
    [
        (np.zeros(9, dtype=np.float64), ArrayTypeError),
        (np.zeros((9, 1), dtype=np.float32), ArrayTypeError),
        (np.zeros(18, dtype=np.float32)[::2], ArrayTypeError),
        (np.zeros(8, dtype=np.float32), ParameterError),
        (np.zeros(10, dtype=np.float32), ParameterError),
    ],
)
def test_a_refused_vector_changes_nothing(vector: object, error: type[Exception]) -> None:
    model = nn.Linear(2, 3)
    before = flatten(model)
    with pytest.raises(error):
        load_flat(model, vector)  # type: ignore[arg-type]
    np.testing.assert_array_equal(flatten(model), before)


def test_buffers_round_trip_without_the_batch_counter() -> None:
    source, target = batch_norm_model(), batch_norm_model()
    source(torch.randn(8, 2, 4, 4))
    buffers = flatten_buffers(source)
    assert buffers.shape == (6,)
    np.testing.assert_array_equal(buffers[:3], source[1].running_mean.numpy())
    np.testing.assert_array_equal(buffers[3:], source[1].running_var.numpy())
    counter = target[1].num_batches_tracked.item()
    load_flat_buffers(target, buffers)
    np.testing.assert_array_equal(flatten_buffers(target), buffers)
    assert target[1].num_batches_tracked.item() == counter
    model = nn.Linear(2, 2)
    assert flatten_buffers(model).shape == (0,)
    with pytest.raises(ParameterError, match="0 buffer values"):
        load_flat_buffers(model, np.zeros(1, dtype=np.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cpu_tensors_share_their_memory(dtype):
    tensor = torch.linspace(-1, 1, 100, dtype=dtype)
    assert as_update(tensor).__array_interface__["data"][0] == tensor.data_ptr()


def test_tensor_and_array_encrypt_to_the_same_sums():
    authority = sf.KeyAuthority(sf.ckks.Parameters(), min_clients=1, one_total_per_round=False)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    tensor = torch.linspace(-1, 1, 100)
    opened = []
    for update in (tensor, tensor.numpy()):
        aggregator = sf.ckks.Aggregator(authority.public_key)
        aggregator.add(encryptor.encrypt(update, sf.Mask.from_bool(tensor > 0)))
        opened.append(authority.open(aggregator.total()))
    np.testing.assert_array_equal(*opened)


@pytest.mark.parametrize(
    ("tensor", "advice"),
    [
        (torch.zeros(3, requires_grad=True), "detach"),
        (torch.zeros(3, dtype=torch.float16), "float"),
        (torch.zeros(3, dtype=torch.bfloat16), "float"),
        (torch.zeros(3, dtype=torch.int32), "float"),
        (torch.zeros((2, 3)), "reshape"),
        (torch.zeros(6)[::2], "contiguous"),
        (torch.zeros(3, device="meta"), "cpu"),
        (torch.zeros(4).to_sparse(), "to_dense"),
    ],
    ids=["requires grad", "float16", "bfloat16", "int32", "matrix", "strided", "other device", "sparse"],
)
def test_other_tensors_are_refused_with_the_call_to_use(tensor, advice):
    with pytest.raises(sf.ArrayTypeError, match=rf"pass tensor\.{advice}\("):
        as_update(tensor)
    if tensor.device.type == "cpu":
        mended = getattr(tensor, advice)(*([-1] if advice == "reshape" else []))
        assert as_update(mended).size == tensor.numel()


@pytest.mark.parametrize(
    ("array", "call"),
    [
        (np.zeros(3, dtype=np.float16), "array.astype(numpy.float32)"),
        (np.zeros(3, dtype=">f4"), "array.astype(numpy.float32)"),
        (np.zeros((2, 3), dtype=np.float32), "array.reshape(-1)"),
        (np.zeros(6, dtype=np.float32)[::2], "numpy.ascontiguousarray(array)"),
    ],
    ids=["float16", "big-endian", "matrix", "strided"],
)
def test_other_arrays_are_refused_with_numpys_call(array, call):
    with pytest.raises(sf.ArrayTypeError, match=f"pass {re.escape(call)}$"):
        as_update(array)
    assert as_update(eval(call, {"array": array, "numpy": np})).size == array.size


def test_masks_take_bool_tensors():
    assert sf.Mask.from_bool(torch.tensor([True, False, True])).to_indices().tolist() == [0, 2]
    assert sf.Mask.from_indices(torch.tensor([2, 0]), 3).count == 2


def test_arrays_and_tensors_may_be_pieces_of_one_update():
    pieces = [torch.ones(3), np.zeros(2, np.float32)]
    assert [piece.size for piece in as_pieces(pieces)] == [3, 2]
    assert as_pieces(pieces)[0].__array_interface__["data"][0] == pieces[0].data_ptr()
