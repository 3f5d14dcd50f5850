"""Which clients hold a round up, and what would stop it: fleets, calibrated costs, simulated rounds, plans."""
