from __future__ import annotations

import numpy as np

from shieldfl.fleet.fleet_file import parse_fleet
from shieldfl.fleet.simulate.budgets import fleet_budgets


def test_of_a_fleet():
    fleet = parse_fleet(
        """
        [model]
        parameters = 10
        [[client]]
        cores = 4
        cpu_share = 0.5
        core_speed = 2
        bandwidth = "10 MB/s"
        samples = 1
        [[client]]
        cores = 2
        upload = "5 MB/s"
        download = "100 MB/s"
        samples = 1
        """
    )
    np.testing.assert_allclose(fleet_budgets(fleet), [1.0, 0.5])
