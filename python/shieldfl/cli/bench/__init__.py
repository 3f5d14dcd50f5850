"""``shieldfl bench``."""
