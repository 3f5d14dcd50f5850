"""Federated training in one process: data sets, partitions, models, local training and the driver."""
