"""Federated training in one process: data sets, partitions, driver, results."""

__all__ = ["DATASETS"]

DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
"""The names of the data sets, for those who check a name and need no torch."""
