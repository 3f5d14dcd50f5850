"""Which clients hold a round up, and what would stop it: costs, simulated rounds, plans."""
