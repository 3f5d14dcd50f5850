"""Rounds of a fleet, simulated from costs, and plans of what its clients can encrypt in time."""
