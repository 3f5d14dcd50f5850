"""Differential privacy: clipping, noise, and the accounting of what was spent."""
