"""Federated training in one process: data sets, partitions, all roles of a method, results.

Methods and a task enter, :class:`ComparedRuns` leaves. Read ``runner.py`` first.
"""

__all__ = ["DATASETS"]

DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
"""Names of the data sets, available without importing torch."""
