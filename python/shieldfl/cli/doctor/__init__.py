"""``shieldfl doctor``."""
