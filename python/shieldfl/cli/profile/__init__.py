"""``shieldfl profile``."""
