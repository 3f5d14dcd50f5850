from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shieldfl.encryption_budgets import sense_crypt_budgets
from shieldfl.errors import ParameterError


def test_by_hand():
    # Bandwidth over 50 is 1, 0.5, 0.8; speed over 24 is 0.5, 1, 0.25. The smaller ones are 0.5, 0.5, 0.25.
    np.testing.assert_allclose(sense_crypt_budgets([50, 25, 40], [12, 24, 6]), [1.0, 1.0, 0.5])


def test_the_papers_five_kinds():
    budgets = sense_crypt_budgets([50, 45, 40, 35, 30], [24, 16, 12, 10, 8])
    np.testing.assert_allclose(budgets, [1, 2 / 3, 1 / 2, 5 / 12, 1 / 3])


def test_clusters_are_scaled_apart():
    budgets = sense_crypt_budgets([50, 25, 10, 5, 7], [8, 8, 2, 2, 3], [0, 0, 2, 2, 1])
    np.testing.assert_allclose(budgets, [1.0, 0.5, 1.0, 0.5, 1.0])


def test_a_client_that_is_alone_gets_all():
    np.testing.assert_array_equal(sense_crypt_budgets([0.001], [3e9]), [1.0])


@given(
    st.lists(st.tuples(*[st.floats(1e-6, 1e12)] * 2, st.integers(0, 3)), min_size=1, max_size=20),
    st.floats(1e-3, 1e3),
)
def test_properties(clients, scale):
    rates, speeds, clusters = (np.array(column) for column in zip(*clients, strict=True))
    budgets = sense_crypt_budgets(rates, speeds, clusters)
    assert (budgets > 0).all()
    for cluster in set(clusters.tolist()):
        assert budgets[clusters == cluster].max() == 1.0
    np.testing.assert_allclose(sense_crypt_budgets(rates * scale, speeds, clusters), budgets)


@pytest.mark.parametrize(
    ("rates", "speeds", "clusters", "said"),
    [
        ([1, 0], [1, 1], None, "bytes_per_second must be finite and above zero, client 1"),
        ([1, -1], [1, 1], None, "bytes_per_second must be finite and above zero, client 1"),
        ([1, 1], [float("nan"), 1], None, "compute_speed must be finite and above zero, client 0"),
        ([1, 1], [float("inf"), 1], None, "compute_speed must be"),
        ([], [], None, "an entry for each client"),
        ([1], [1, 1], None, "got 1, 2 and 1"),
        ([1, 1], [1, 1], [0], "got 2, 2 and 1"),
        ([1, 1], [1, 1], [0, -1], "whole numbers from 0"),
        ([1, 1], [1, 1], [0.0, 1.0], "whole numbers from 0"),
    ],
)
def test_refused(rates, speeds, clusters, said):
    with pytest.raises(ParameterError, match=said):
        sense_crypt_budgets(rates, speeds, clusters)
