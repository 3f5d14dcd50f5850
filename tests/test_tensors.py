"""torch tensors go in without a copy, or are refused with a word on what to pass."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import shieldfl as sf
from shieldfl.array_view import as_pieces, as_update


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
