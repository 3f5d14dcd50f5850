"""Which clients hold a round up, and what would stop it: costs, simulated rounds, plans.

A fleet file and a device profile enter, times and plans of rounds leave. Read ``fleet_simulation.py`` first.
"""
