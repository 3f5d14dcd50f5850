"""How much of this machine each client of a measured fleet may use, whether it has that much, and what limits it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shieldfl.errors import ParameterError
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.measure.cpu_cgroup import CgroupLimit
from shieldfl.fleet.measure.processor_time import DutyCycleLimit

__all__ = ["ProcessorLimit", "ProcessorQuota", "open_limit", "processor_quotas"]

ProcessorLimit = CgroupLimit | DutyCycleLimit
"""Limits processes that this one has started. ``release`` each after it was waited for, then ``close``."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class ProcessorQuota:
    """A client's part of the processor."""

    threads: int
    cores: float
    """Seconds of processor time in a second, of all threads together."""


def processor_quotas(fleet: Fleet, machine_cores: int) -> list[ProcessorQuota]:
    """Return each client's quota: cores times share times speed, in cores of this machine.

    Raises ParameterError for what this machine cannot act out: clients or an aggregator with more cores than it has,
    cores that are faster than its own, and quotas that are more than all of its cores together; also for an
    aggregator whose cores are no whole number, since that one is not slowed down.
    """
    for kind in fleet.kinds:
        if kind.cores > machine_cores:
            raise ParameterError(
                f"{kind.name!r} has {kind.cores:g} cores and this machine {machine_cores}: lower cores"
            )
        if kind.cpu_share * kind.core_speed > 1.0:
            raise ParameterError(
                f"a core of {kind.name!r} is faster than one of this machine: lower core_speed or cpu_share to a "
                "product of at most 1"
            )
    together = float((fleet.cores * fleet.core_rate).sum())
    if together > machine_cores * (1.0 + _ROUNDING):
        raise ParameterError(
            f"the clients together use {together:.2f} cores and this machine has {machine_cores}: lower count, cores, "
            "cpu_share or core_speed"
        )
    cores = fleet.aggregator.cores
    if cores > machine_cores or cores != int(cores):
        raise ParameterError(
            f"the aggregator's cores must be a whole number up to this machine's {machine_cores}, not {cores:g}"
        )
    return [
        ProcessorQuota(max(1, math.ceil(cores)), float(cores * rate))
        for cores, rate in zip(fleet.cores.tolist(), fleet.core_rate.tolist(), strict=True)
    ]


def open_limit() -> ProcessorLimit:
    """Return the kernel's own limits where this process may set them, else ones that stop and continue."""
    return CgroupLimit.open() or DutyCycleLimit()
