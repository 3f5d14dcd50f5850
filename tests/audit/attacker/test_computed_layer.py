"""What is told of a weight that is computed of factors, beside its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from audit.small_updates import drawn, relu_model, trained
from shieldfl.audit.attacks.labels import Ilrg, computed_last_layer, last_layer
from shieldfl.methods.dict_pfl.dictionary_layers import factorise
from shieldfl.torch_bridge import flatten, load_flat


def weight_gradient(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    """(p - y) times the features below, the mean over a batch."""
    with torch.no_grad():
        wrong = model(features).softmax(dim=1) - nn.functional.one_hot(labels, 10)
        return (wrong.T @ model[:3](features) / len(labels)).numpy()


@pytest.mark.parametrize(("rank", "off"), [(10, 1e-3), (4, 0.5)])
def test_as_many_directions_as_classes_tell_all_and_fewer_the_nearest_that_fits(rank, off):
    features, labels = drawn(16, seed=1)
    observed = trained(factorise(relu_model(), rank), features, labels)
    true = weight_gradient(observed.model, features, labels)
    layer = computed_last_layer(observed)
    assert layer.of == ("3.weight_dictionary.table",)
    assert layer.bias == "3.bias"
    found = layer.weight_gradient(observed)
    assert np.linalg.norm(found - true) < off * np.linalg.norm(true)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-5)
    directions = observed.model[3].weight_dictionary.directions.numpy()
    np.testing.assert_allclose(directions.T @ found, directions.T @ true, atol=1e-4)


def test_labels_are_counted_of_factors_nearly_as_of_a_plain_layer():
    right = []
    for seed in range(10):
        features, labels = drawn(16, seed)
        observed = trained(factorise(relu_model(seed), 2), features, labels)
        assert Ilrg().inapplicable(observed) is None
        counts = Ilrg().recover(observed, 0).label_counts
        right.append(np.mean(counts == np.bincount(labels.numpy(), minlength=10)))
    assert np.mean(right) > 0.75


def test_layers_of_their_own_and_those_without_a_bias_are_none():
    samples = drawn(4, seed=0)
    assert computed_last_layer(trained(relu_model(), *samples)) is None
    torch.manual_seed(0)
    bare = factorise(nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)))
    observed = trained(bare, *samples)
    assert last_layer(observed) is None
    assert computed_last_layer(observed) is None
    assert "Linear with a bias" in Ilrg().inapplicable(observed)


def test_a_table_that_has_been_trained_already_is_looked_at_where_it_is():
    features, labels = drawn(16, seed=2)
    model = factorise(relu_model(), 10)
    load_flat(model, flatten(model) + np.float32(0.05))
    observed = trained(model, features, labels)
    true = weight_gradient(model, features, labels)
    found = computed_last_layer(observed).weight_gradient(observed)
    np.testing.assert_allclose(found, true, atol=1e-3 * np.abs(true).max())
