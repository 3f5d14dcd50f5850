"""Averages of noised updates in the clear: dp-fedavg and dp-sgd."""
