"""``shieldfl run``."""
