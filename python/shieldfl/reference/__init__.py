"""Slow twins of what the core does fast."""
