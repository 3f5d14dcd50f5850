"""Sensitivity scores: how much each parameter tells about a client's data."""
