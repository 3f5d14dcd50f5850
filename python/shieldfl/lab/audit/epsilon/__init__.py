"""What an epsilon must at least be, measured, beside what is claimed."""
