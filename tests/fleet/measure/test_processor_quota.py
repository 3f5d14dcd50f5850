from __future__ import annotations

import pytest

from fleet.fleets import client, fleet_of
from shieldfl.errors import ParameterError
from shieldfl.fleet.measure.processor_quota import ProcessorQuota, processor_quotas


def test_quotas_are_cores_times_share_times_speed():
    fleet = fleet_of(
        client("two", cores=2.0, cpu_share=0.5, core_speed=0.6), client("part", count=2, cores=0.5)
    )
    assert processor_quotas(fleet, 2) == [
        ProcessorQuota(2, pytest.approx(0.6)),
        ProcessorQuota(1, 0.5),
        ProcessorQuota(1, 0.5),
    ]


def test_all_of_a_machine_can_be_used():
    assert len(processor_quotas(fleet_of(client("a", count=10, cpu_share=0.2)), 2)) == 10


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        (fleet_of(client("big", cores=4.0, cpu_share=0.1)), "'big' has 4 cores and this machine 2"),
        (fleet_of(client("fast", core_speed=1.5)), "'fast' is faster"),
        (fleet_of(client("many", count=3)), "use 3.00 cores and this machine has 2: lower count"),
        (fleet_of(client("a"), cores=4.0), "up to this machine's 2"),
        (fleet_of(client("a"), cores=1.5), "whole number"),
    ],
    ids=["cores", "speed", "together", "aggregator", "part-of-a-core"],
)
def test_what_this_machine_cannot_act_out(fleet, said):
    with pytest.raises(ParameterError, match=said):
        processor_quotas(fleet, 2)
