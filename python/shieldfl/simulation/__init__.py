"""Federated training in one process: data sets, partitions, driver, results."""
